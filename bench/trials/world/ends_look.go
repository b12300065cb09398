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
	"time"

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
