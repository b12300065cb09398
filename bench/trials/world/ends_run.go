//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
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

	gramMaybe bool // the same of its datagram flows, which the daemon judges by checks of their own
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
	ended   map[string]int // flows of the listener pool by cause
	unsure  bool           // some may have ended by either cause, or by none

	grams       []*gramClient
	gramsEnded  map[string]int // their flows by cause
	gramsUnsure bool           // as unsure
	spread      spread
	hashed      [hashSources]owner
}

// playEnds is play of a script with an endsConfig, after the run was made.
func (r *run) playEnds(s *script, binary string, out io.Writer) (good bool, err error) {
	e := &endsRun{run: r, ends: r.config.Ends, weights: r.config.Ends.Weights, ended: map[string]int{}, gramsEnded: map[string]int{}}
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
		stop, err := serveGrams(poolName(n), r.places.pool(n), e.ends.Header)
		if err != nil {
			return false, err
		}
		defer stop()
	}
	var others []*endsServer
	for i, name := range partNames {
		others = append(others, &endsServer{name: name, at: r.part(i)})
	}
	for n := 1; n <= spreadMembers; n++ {
		others = append(others, &endsServer{name: spreadName(n), at: r.places.spread(n)})
	}
	for _, other := range others {
		if err := other.start(); err != nil {
			return false, err
		}
		defer other.stop()
	}
	if r.d, err = world.Start(binary, r.dir, r.config.text(&r.places), true); err != nil {
		return false, err
	}
	defer func() { r.d.Kill() }()
	defer e.leave()
	if err := e.beginGrams(); err != nil {
		return false, err
	}
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
	if err := e.endGrams(); err != nil {
		r.fault("at the end: %v", err)
	}
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
	for _, c := range r.spread.clients {
		c.Close()
	}
	for _, c := range r.grams {
		c.Close()
	}
	r.clients, r.spread.clients = nil, nil
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
		body := fmt.Sprintf(`{"weights": {%q: %d, %q: %d}}`, partNames[0], r.weights[0], partNames[1], r.weights[1])
		return errors.Join(r.ask(http.MethodPatch, "/v1/listeners/split/routes/default", body), r.ask(http.MethodPatch, "/v1/listeners/hashed/routes/default", body))
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
	case "leave":
		return r.leaveSpread(e.Member)
	case "join":
		return r.joinSpread(e.Member)
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
		m.gramMaybe = !alone || 2*len(numbers) > poolMembers && r.ends.Down != "keep"
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
		for _, c := range r.grams {
			c.maybe = c.maybe || m.gramMaybe && c.server == m.name
		}
		m.ends, m.maybe, m.gramMaybe = false, false, false
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
