//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/world"
)

// How many clients hold a flow open.
const (
	poolClients  = 8
	shortClients = 2
)

// An endsServer is a member. It goes on with the connections that it has when it stops listening.
type endsServer struct {
	name, at string
	l        net.Listener // nil: it has stopped
}

func (s *endsServer) start() (err error) {
	if s.l, err = net.Listen("tcp", s.at); err != nil {
		return err
	}
	l := s.l
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 256)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					c.Write(append([]byte(s.name+" "), b[:n]...))
				}
			}()
		}
	}()
	return nil
}

func (s *endsServer) stop() {
	s.l.Close()
	s.l = nil
}

// A poolMember is what the model knows of one.
type poolMember struct {
	*endsServer
	ends  bool // it has stopped, and its flows end if down says close
	maybe bool // that is not known: what came at once may have been before or after
}

func (m *poolMember) up() bool { return m.l != nil }

// A staying client holds its flow open.
type staying struct {
	net.Conn
	listener string
	source   int
	server   string
	born     int // the number of the last event before it
	begun    time.Time
}

// An endsRun is one script that is played with an endsConfig.
type endsRun struct {
	*run
	ends    *endsConfig // of the model; the daemon's is written of it
	pool    [poolMembers + 1]*poolMember
	weights [2]int // with the changes of operators
	banned  [sources + 1]bool
	listed  [sources + 1]bool
	clients []*staying

	now           int
	primaryAway   bool
	failback      int  // the event at which a primary was back; flows of backups that are older end if up says close. 0: none
	failbackMaybe bool // it may not have been noticed

	changed time.Time      // when the worker was another one last
	ended   map[string]int // flows by cause
	unsure  bool           // some may have ended by either cause, or by none
}

// playEnds is play of a script with an endsConfig, after the run was made.
func (r *run) playEnds(s *script, binary string, out io.Writer) (good bool, err error) {
	e := &endsRun{run: r, ends: r.config.Ends, weights: r.config.Ends.Weights, ended: map[string]int{}}
	if err := e.list(); err != nil {
		return false, err
	}
	for n := 1; n <= poolMembers; n++ {
		e.pool[n] = &poolMember{endsServer: &endsServer{name: poolName(n), at: r.places.pool(n)}}
		if err := e.pool[n].start(); err != nil {
			return false, err
		}
		defer func() {
			if e.pool[n].up() {
				e.pool[n].stop()
			}
		}()
	}
	for i, name := range partNames {
		part := &endsServer{name: name, at: r.part(i)}
		if err := part.start(); err != nil {
			return false, err
		}
		defer part.stop()
	}
	if r.d, err = world.Start(binary, r.dir, r.config.text(&r.places), true); err != nil {
		return false, err
	}
	defer func() { r.d.Kill() }()
	defer e.leave()
	e.look("the start")
	for i, event := range s.Events {
		if !r.w.Tally.Good() {
			break
		}
		if !event.Close {
			r.w.Sleep(event.Rest)
		}
		e.now = i + 1
		alone := i+1 == len(s.Events) || !s.Events[i+1].Close
		what := fmt.Sprintf("event %d, %v", i+1, event)
		if err := e.happen(&event, alone); err != nil {
			r.fault("%s: %v", what, err)
		}
		if alone {
			e.look(what)
		}
	}
	if r.w.Tally.Good() {
		e.balance()
	}
	e.leave()
	if code, err := r.d.Terminate(); err != nil || code != 0 {
		r.fault("the daemon ended with code %d: %v", code, err)
	}
	if good = r.w.Tally.Good(); !good {
		fmt.Fprintf(out, "last lines of the log:\n%s\n", r.d.LogTail(25))
	}
	return good, nil
}

// leave closes all clients.
func (r *endsRun) leave() {
	for _, c := range r.clients {
		c.Close()
	}
	r.clients = nil
}

// list writes the list of addresses.
func (r *endsRun) list() error {
	text := "# who is listed\n"
	for n, is := range r.listed {
		if is {
			text += r.source(n) + "\n"
		}
	}
	next := r.places.list() + ".next"
	return errors.Join(os.WriteFile(next, []byte(text), 0o644), os.Rename(next, r.places.list()))
}

// happen makes an event happen to the daemon and to the model. alone is whether it is over before anything else happens.
func (r *endsRun) happen(e *event, alone bool) error {
	switch e.Do {
	case "stop":
		return r.stop(alone, e.Member)
	case "stop-primaries":
		return r.stop(alone, 1, 2, 3)
	case "stop-all":
		return r.stop(alone, 1, 2, 3, 4)
	case "start":
		return r.start(alone, e.Member)
	case "start-all":
		return r.start(alone, 1, 2, 3, 4)
	case "down":
		r.ends.Down = e.Value
		return r.reload(e)
	case "up":
		r.ends.Up = e.Value
		return r.reload(e)
	case "weights":
		fmt.Sscan(e.Value, &r.weights[0], &r.weights[1])
		return r.ask(http.MethodPatch, "/v1/listeners/split/routes/default", fmt.Sprintf(`{"weights": {%q: %d, %q: %d}}`, partNames[0], r.weights[0], partNames[1], r.weights[1]))
	case "file-weights":
		before := r.ends.Weights
		fmt.Sscan(e.Value, &r.ends.Weights[0], &r.ends.Weights[1])
		if r.ends.Weights != before {
			r.weights = r.ends.Weights
		}
		return r.reload(e)
	case "ban", "ban-and-end":
		r.banned[e.Member] = true
		err := r.ask(http.MethodPost, "/v1/bans", fmt.Sprintf(`{"network": %q, "end_flows": %v}`, r.source(e.Member), e.Do != "ban"))
		if e.Do != "ban" {
			for _, c := range r.clients {
				if c.source == e.Member {
					r.mustEnd(c, "its address was banned, with its flows")
				}
			}
			r.clients = slices.DeleteFunc(r.clients, func(c *staying) bool { return c.source == e.Member })
		}
		return err
	case "unban":
		if !r.banned[e.Member] {
			return nil
		}
		r.banned[e.Member] = false
		return r.ask(http.MethodDelete, "/v1/bans/"+r.source(e.Member), "")
	case "list", "unlist":
		r.listed[e.Member] = e.Do == "list"
		return r.list()
	case "kill", "upgrade":
		if err := r.settled(); err != nil {
			return err
		}
		err := r.run.happen(e)
		r.changed = time.Now()
		return err
	case "loops":
		return r.loops(e)
	}
	return fmt.Errorf("the event %s is unknown", e.Do)
}

// loops changes the number of loops, which needs another worker.
func (r *endsRun) loops(e *event) error {
	loops := func() int {
		if r.config.Loops == 0 {
			return runtime.NumCPU()
		}
		return r.config.Loops
	}
	before, pid := loops(), 0
	err := r.status("the worker", func(s *endsStatus) error { pid = s.PID; return nil })
	if err = errors.Join(err, r.reload(e)); err != nil || loops() == before {
		return err
	}
	err = r.status("another worker", func(s *endsStatus) error {
		if s.PID == pid {
			return errors.New("it is the same one")
		}
		return nil
	})
	r.changed = time.Now()
	return err
}

// stop has members stop listening.
func (r *endsRun) stop(alone bool, numbers ...int) error {
	numbers = slices.DeleteFunc(numbers, func(n int) bool { return !r.pool[n].up() })
	kept, err := r.kept()
	if err != nil {
		return err
	}
	for _, n := range numbers {
		r.pool[n].stop()
	}
	for _, n := range numbers {
		m := r.pool[n]
		m.ends, m.maybe = r.ends.Down != "keep", !alone
	}
	if !r.primary() {
		r.primaryAway, r.failback, r.failbackMaybe = true, 0, false
	}
	if 2*len(numbers) <= poolMembers || r.ends.Down == "keep" {
		return nil
	}
	if !alone || r.ends.Down != "close" {
		for _, n := range numbers {
			r.pool[n].maybe = true
		}
		return nil
	}
	return r.most(numbers, kept)
}

// most finds out whose flows have ended, of so many members that have stopped at once that those of some go on.
func (r *endsRun) most(numbers []int, kept float64) error {
	flows := map[string]int{}
	for _, c := range r.clients {
		for _, n := range numbers {
			if c.server == r.pool[n].name {
				flows[c.server]++
			}
		}
	}
	all := 0
	for _, n := range flows {
		all += n
	}
	gone := map[string]int{}
	err := proc.Until("each flow of a member that is down has ended or was kept", world.Patience, 20*time.Millisecond, func() error {
		now, err := r.kept()
		if err != nil {
			return err
		}
		clear(gone)
		ended := 0
		for _, c := range r.clients {
			if flows[c.server] > 0 && !c.open() {
				gone[c.server]++
				ended++
			}
		}
		if ended+int(now-kept) != all {
			return fmt.Errorf("of %d flows %d have ended, and %v were kept", all, ended, now-kept)
		}
		return nil
	})
	if err != nil {
		return err
	}
	whole := 0
	for _, n := range numbers {
		m := r.pool[n]
		if m.ends = gone[m.name] > 0 || flows[m.name] == 0; gone[m.name] > 0 && gone[m.name] < flows[m.name] {
			return fmt.Errorf("%d of %d flows of %s have ended", gone[m.name], flows[m.name], m.name)
		}
		if m.ends {
			whole++
		}
	}
	if whole < poolMembers/2 {
		return fmt.Errorf("%d of %d members have stopped, and flows of %d have ended", len(numbers), poolMembers, whole)
	}
	if len(numbers) == poolMembers && len(flows) >= backup-1 && whole == poolMembers {
		return errors.New("all members have stopped at once, and all flows have ended")
	}
	return nil
}

// open reports whether a flow has not ended.
func (c *staying) open() bool {
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// start has members listen again.
func (r *endsRun) start(alone bool, numbers ...int) error {
	for _, n := range numbers {
		m := r.pool[n]
		if m.up() {
			continue
		}
		r.clients = slices.DeleteFunc(r.clients, func(c *staying) bool { return m.maybe && c.server == m.name && !c.open() })
		m.ends, m.maybe = false, false
		if err := m.start(); err != nil {
			return err
		}
	}
	if r.primary() && r.primaryAway {
		r.primaryAway = false
		if r.failback = 0; r.ends.Up != "keep" {
			r.failback, r.failbackMaybe = r.now, !alone
		}
	}
	return nil
}

// primary reports whether a member that is no backup is up.
func (r *endsRun) primary() bool {
	return slices.ContainsFunc(r.pool[1:backup], (*poolMember).up)
}

// endsStatus is what is read of the daemon's state.
type endsStatus struct {
	PID    int
	Keeper struct{ Flows int }
}

// status waits until the daemon's state is as it should be.
func (r *endsRun) status(what string, is func(*endsStatus) error) error {
	return proc.Until(what, world.Patience, 50*time.Millisecond, func() error {
		text, err := r.d.Get("/v1/status")
		if err != nil {
			return err
		}
		var s endsStatus
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		return is(&s)
	})
}

// settled waits until all flows would survive a kill.
func (r *endsRun) settled() error {
	return r.status("settled flows", func(s *endsStatus) error {
		r.clients = slices.DeleteFunc(r.clients, func(c *staying) bool { return c.listener == "short" && !c.open() })
		if s.Keeper.Flows < len(r.clients) {
			return fmt.Errorf("%d of %d", s.Keeper.Flows, len(r.clients))
		}
		return nil
	})
}

// kept returns how many flows were kept because most members went down at once.
func (r *endsRun) kept() (float64, error) {
	m, err := r.d.Metrics()
	return m.Sum("penstock_down_kept_flows_total", "group")["pool"], err
}

// look compares the daemon with the model, after something has happened.
func (r *endsRun) look(after string) {
	for _, step := range []func() error{r.states, r.flows, r.parts, r.strangers, r.more} {
		if err := step(); err != nil {
			r.fault("after %s: %v", after, err)
			return
		}
	}
}

// states waits until the daemon has found out which members are up, and has checked those that are in the worker that there is.
func (r *endsRun) states() error {
	return proc.Until("the states of the members", world.Patience, 20*time.Millisecond, func() error {
		text, err := r.d.Get("/v1/groups")
		if err != nil {
			return err
		}
		var in struct {
			Groups []struct {
				Name    string
				Members []struct {
					Name, State string
					Check       struct {
						Time time.Time
						OK   bool
					}
				}
			}
		}
		if err := json.Unmarshal(text, &in); err != nil {
			return err
		}
		for _, g := range in.Groups {
			if g.Name != "pool" {
				continue
			}
			for i, m := range g.Members {
				want := "down"
				if r.pool[i+1].up() {
					want = "up"
				}
				if m.State != want || want == "up" && (!m.Check.OK || !m.Check.Time.After(r.changed)) {
					return fmt.Errorf("%s is %s, and should be %s", m.Name, m.State, want)
				}
			}
		}
		return nil
	})
}

// fate returns the cause by which a flow must end; empty: it goes on. maybe is whether it may do either.
func (r *endsRun) fate(c *staying) (cause string, maybe bool) {
	if c.listener != "pool" {
		return "", false
	}
	i := slices.IndexFunc(r.pool[1:], func(m *poolMember) bool { return m.name == c.server }) + 1
	m := r.pool[i]
	back := i == backup && c.born < r.failback
	switch {
	case m.maybe && !m.up(), back && r.failbackMaybe:
		return "", true
	case m.ends && !m.up() && r.ends.Down == "close":
		return "down", false
	case m.ends && !m.up(): // the end of the other occasion waits until the member is up
		return "", false
	case back && r.ends.Up == "close":
		return "failback", false
	}
	return "", false
}

// flows sees that those end that must, and that the others go on.
func (r *endsRun) flows() (err error) {
	var stay []*staying
	for _, c := range r.clients {
		age := time.Since(c.begun)
		switch cause, maybe := r.fate(c); {
		case cause != "":
			err = errors.Join(err, r.mustEnd(c, "its end is "+cause))
			r.ended[cause]++
		case maybe:
			r.unsure = true
			if c.open() {
				stay = append(stay, c)
			}
		case c.listener == "short" && !c.open():
			if age < shortLife-shortJitter {
				err = errors.Join(err, fmt.Errorf("a flow has ended after %v, and its life is %v", age, shortLife))
			}
		case c.listener == "short" && age > shortLife+world.Patience:
			err = errors.Join(err, fmt.Errorf("a flow goes on after %v, and its life is %v", age, shortLife))
		case c.listener == "short":
			stay = append(stay, c)
		default:
			c.SetDeadline(time.Now().Add(world.Patience))
			if got, e := ask(c, r.probes.next()); e != nil || got != c.server {
				err = errors.Join(err, fmt.Errorf("a flow at %s, as old as event %d, does not go on: %q, %v", c.server, c.born, got, e))
			}
			stay = append(stay, c)
		}
	}
	r.clients = stay
	return err
}

// mustEnd waits for the end of a flow.
func (r *endsRun) mustEnd(c *staying, why string) error {
	defer c.Close()
	c.SetDeadline(time.Now().Add(world.Patience))
	if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("a flow at %s, as old as event %d, goes on, although %s", c.server, c.born, why)
	}
	return nil
}

// parts compares the weights that the daemon says with the model's.
func (r *endsRun) parts() error {
	return proc.Until("the weights of the parts", world.Patience, 20*time.Millisecond, func() error {
		text, err := r.d.Get("/v1/listeners")
		if err != nil {
			return err
		}
		var in struct {
			Listeners []struct {
				Name   string
				Routes []struct{ Parts []struct{ Weight int } }
			}
		}
		if err := json.Unmarshal(text, &in); err != nil {
			return err
		}
		for _, l := range in.Listeners {
			if l.Name != "split" {
				continue
			}
			for _, p := range l.Routes {
				if len(p.Parts) == 2 && (p.Parts[0].Weight != r.weights[0] || p.Parts[1].Weight != r.weights[1]) {
					return fmt.Errorf("they are %+v, and should be %v", p.Parts, r.weights)
				}
			}
			return nil
		}
		return errors.New("there is no listener split")
	})
}

// come has a client come from a source to a listener. Its error is that of a client that is not served.
func (r *endsRun) come(listener string, source int) (*staying, error) {
	c := &staying{listener: listener, source: source, born: r.now, begun: time.Now()}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(r.source(source))}, Timeout: world.Patience}
	conn, err := d.Dial("tcp", r.places.ends(listener))
	if err != nil {
		return nil, err
	}
	c.Conn = conn
	c.SetDeadline(time.Now().Add(world.Patience))
	if c.server, err = ask(c, r.probes.next()); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// serves reports whether a server may serve clients of a listener.
func (r *endsRun) serves(listener, server string) bool {
	if listener == "split" {
		return slices.Index(partNames[:], server) >= 0 && r.weights[slices.Index(partNames[:], server)] > 0
	}
	if listener == "short" {
		return server == partNames[0]
	}
	i := slices.IndexFunc(r.pool[1:], func(m *poolMember) bool { return m.name == server }) + 1
	return i > 0 && r.pool[i].up() && (i != backup || !r.primary())
}

// admits reports whether a listener serves clients from a source.
func (r *endsRun) admits(listener string, source int) bool {
	return !r.banned[source] && (listener != "pool" || !r.listed[source] && slices.ContainsFunc(r.pool[1:], (*poolMember).up))
}

// strangers has a client come to each listener from each source.
func (r *endsRun) strangers() error {
	for source := 1; source <= sources; source++ {
		for _, listener := range []string{"pool", "split"} {
			err := proc.Until(fmt.Sprintf("a client from source %d at the listener %s", source, listener), world.Patience, 50*time.Millisecond, func() error {
				c, err := r.come(listener, source)
				switch admits := r.admits(listener, source); {
				case err != nil && admits:
					return err
				case err != nil:
					return nil
				case !admits:
					c.Close()
					return fmt.Errorf("it is served by %s, and should be refused", c.server)
				}
				c.Close()
				if !r.serves(listener, c.server) {
					return fmt.Errorf("it is served by %s", c.server)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// more has as many clients hold a flow as there should be.
func (r *endsRun) more() error {
	for listener, most := range map[string]int{"pool": poolClients, "short": shortClients} {
		n := 0
		for _, c := range r.clients {
			if c.listener == listener {
				n++
			}
		}
		for source := 1; n < most; source = source%sources + 1 {
			if !slices.ContainsFunc([]int{1, 2, 3}, func(s int) bool { return r.admits(listener, s) }) {
				break
			}
			if !r.admits(listener, source) {
				continue
			}
			c, err := r.come(listener, source)
			if err != nil {
				return fmt.Errorf("a client of the listener %s: %w", listener, err)
			}
			r.clients = append(r.clients, c)
			if n++; !r.serves(listener, c.server) {
				return fmt.Errorf("a client of the listener %s is at %s", listener, c.server)
			}
		}
	}
	return nil
}

// balance compares how many flows the daemon says that it has ended with how many have.
func (r *endsRun) balance() {
	if r.unsure {
		return
	}
	err := proc.Until("the causes", world.Patience, 50*time.Millisecond, func() error {
		m, err := r.d.Metrics()
		if err != nil {
			return err
		}
		causes := m.Sum("penstock_flows_ended_total", "cause")
		for _, cause := range []string{"down", "failback"} {
			if n := int(math.Round(causes[cause])); n != r.ended[cause] {
				return fmt.Errorf("%d flows have ended by %s, and %d are counted", r.ended[cause], cause, n)
			}
		}
		return nil
	})
	if err != nil {
		r.fault("at the end: %v", err)
	}
}
