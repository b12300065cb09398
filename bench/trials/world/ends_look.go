//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/admin"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/world"
)

// primary reports whether a member that is no backup is up.
func (r *endsRun) primary() bool {
	return slices.ContainsFunc(r.pool[1:backup], (*poolMember).up)
}

// endsStatus is what is read of the daemon's state.
type endsStatus struct {
	PID    int
	Keeper struct{ Flows int }
	Totals struct{ Flows int }
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
		flows := 0
		for _, c := range r.clients {
			if c.listener != "pool" || r.goesOn(c.server, c.born, func(m *poolMember) bool { return m.maybe }) {
				flows++
			}
		}
		for _, c := range r.spread.clients {
			if c.open() {
				flows++
			}
		}
		for _, c := range r.grams {
			if c.server != "" && !c.maybe && r.goesOn(c.server, c.born, func(m *poolMember) bool { return m.gramMaybe }) {
				flows++
			}
		}
		flows = max(flows, s.Totals.Flows) // those too whose fate is not known: some of them may be settled, and others not
		if s.Keeper.Flows < flows {
			return fmt.Errorf("%d of %d", s.Keeper.Flows, flows)
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
	for _, step := range []func() error{r.states, r.flows, r.datagrams, r.parts, r.owners, r.strangers, r.more, r.spreadFlows} {
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
			if g.Name != "pool" && g.Name != "grams" {
				continue
			}
			for i, m := range g.Members {
				want := "down"
				if r.pool[i+1].up() {
					want = "up"
				}
				if m.State != want || want == "up" && (!m.Check.OK || !m.Check.Time.After(r.changed)) {
					return fmt.Errorf("%s of %s is %s, and should be %s", m.Name, g.Name, m.State, want)
				}
			}
		}
		return nil
	})
}

// fate returns the cause by which a flow at a server of the group pool must end; empty: it goes on. unsure is whether it may do either, as maybe
// says of flows at a member that is down.
func (r *endsRun) fate(server string, born int, maybe func(*poolMember) bool) (cause string, unsure bool) {
	i := slices.IndexFunc(r.pool[1:], func(m *poolMember) bool { return m.name == server }) + 1
	m := r.pool[i]
	back := i == backup && born < r.failback
	switch {
	case maybe(m) && !m.up(), back && r.failbackMaybe:
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

// goesOn reports whether a flow goes on for certain; see fate.
func (r *endsRun) goesOn(server string, born int, maybe func(*poolMember) bool) bool {
	cause, unsure := r.fate(server, born, maybe)
	return cause == "" && !unsure
}

// flows sees that those end that must, and that the others go on.
func (r *endsRun) flows() (err error) {
	var stay []*staying
	for _, c := range r.clients {
		age, cause, maybe := time.Since(c.begun), "", false
		if c.listener == "pool" {
			cause, maybe = r.fate(c.server, c.born, func(m *poolMember) bool { return m.maybe })
		}
		switch {
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
		found := 0
		for _, l := range in.Listeners {
			if l.Name != "split" && l.Name != "hashed" {
				continue
			}
			found++
			for _, p := range l.Routes {
				if len(p.Parts) == 2 && (p.Parts[0].Weight != r.weights[0] || p.Parts[1].Weight != r.weights[1]) {
					return fmt.Errorf("those of %s are %+v, and should be %v", l.Name, p.Parts, r.weights)
				}
			}
		}
		if found != 2 {
			return errors.New("there are no listeners split and hashed")
		}
		return nil
	})
}

// come has a client come from a source to a listener. Its error is that of a client that is not served.
func (r *endsRun) come(listener string, source int) (*staying, error) {
	c, err := r.comeFrom(listener, r.source(source))
	if err == nil {
		c.source = source
	}
	return c, err
}

// comeFrom is come from an address.
func (r *endsRun) comeFrom(listener, address string) (*staying, error) {
	c := &staying{listener: listener, born: r.now, begun: time.Now()}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: world.Patience}
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
	switch listener {
	case "split":
		return slices.Index(partNames[:], server) >= 0 && r.weights[slices.Index(partNames[:], server)] > 0
	case "short":
		return server == partNames[0]
	case "spread":
		n := slices.Index([]string{1: spreadName(1), 2: spreadName(2), 3: spreadName(3)}, server)
		return n > 0 && !r.spread.away[n]
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

// causes returns how many flows of a listener have ended, by cause.
func (r *endsRun) causes(listener string) (map[string]int, error) {
	m, err := r.d.Metrics()
	causes := map[string]int{}
	for series, n := range m.Values {
		if name, _, _ := strings.Cut(series, "{"); name == "penstock_flows_ended_total" && admin.Label(series, "listener") == listener {
			causes[admin.Label(series, "cause")] += int(math.Round(n))
		}
	}
	return causes, err
}

// balance compares how many flows the daemon says that it has ended with how many have.
func (r *endsRun) balance() {
	compare := func(listener string, ended map[string]int) error {
		return proc.Until("the causes", world.Patience, 50*time.Millisecond, func() error {
			causes, err := r.causes(listener)
			for _, cause := range []string{"down", "failback"} {
				if causes[cause] != ended[cause] {
					err = errors.Join(err, fmt.Errorf("%d flows of the listener %s have ended by %s, and %d are counted", ended[cause], listener, cause, causes[cause]))
				}
			}
			return err
		})
	}
	var err error
	if !r.unsure {
		err = compare("pool", r.ended)
	}
	if !r.gramsUnsure {
		err = errors.Join(err, compare("grams", r.gramsEnded))
	}
	if err = errors.Join(err, r.balanced()); err != nil {
		r.fault("at the end: %v", err)
	}
}
