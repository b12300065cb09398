//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/registry"
	"github.com/penstock/penstock/bench/internal/world"
)

// The members of a service: never fewer than leastMembers that take new flows, so that few changes are never most of them.
const (
	leastMembers = 6
	mostMembers  = 14
)

// A churnMember is a member that the registry has, or had.
type churnMember struct {
	registry.Member
	at      *world.Endpoint
	there   bool // the registry has it
	pending *change
}

// A change of a member, until the relay shows it.
type change struct {
	number int64
	what   string
	at     time.Time
	left   *world.Endpoint // which the relay leaves with it; nil: none
	back   bool            // it came right after the server's start
	// It followed another one that the relay had not shown. What the relay shows may then be older than both: the change is
	// there only if a later one of another member is, because a registry's changes come in order.
	follows bool
}

// A service is the members of some groups.
type service struct {
	name    string
	network string
	groups  []string
	members []*churnMember
	shown   int64 // the last change that the relay shows
	back    bool  // the server has been started again, and the relay has shown no change of the service since
}

// taking returns the members that take new flows.
func (s *service) taking() (list []*churnMember) {
	for _, m := range s.members {
		if m.there && !m.Draining {
			list = append(list, m)
		}
	}
	return list
}

// churn changes the members that a daemon finds in a registry.
type churn struct {
	w        *world.World
	d        *world.Daemon
	registry registry.Registry
	host     string
	services []*service
	named    int
	changes  int64
	restarts int
	kinds    map[string]int
	delays   []time.Duration // from a change until the relay shows it
	later    []time.Duration // the same for those that are made before the relay is back in contact with a server
	replaced int             // changes that were followed by another one of the same member before
}

// churnGroups are the groups of the configuration, with their service and balancer.
var churnGroups = []struct{ name, service, network, balance string }{
	{"round-robin", "tcp", "tcp", "round-robin"},
	{"p2c", "tcp", "tcp", "p2c"},
	{"maglev", "tcp", "tcp", "maglev, hash: 4-tuple"},
	{"udp", "udp", "udp", "round-robin"},
}

// churnPlaces returns the listeners of a configuration whose members are in a registry, and its text.
func (o options) churnPlaces(r registry.Registry) (all []*world.Place, config string) {
	var b strings.Builder
	fmt.Fprintf(&b, "engine: {loops: %d}\nadmin: {listen: \"unix://%s\"}\naccess-log: {to: %q}\ndrain: 2s\nlog: {format: json, flows: none}\n",
		o.loops, filepath.Join(o.dir, "admin"), filepath.Join(o.dir, "access.log"))
	fmt.Fprintf(&b, "registries:\n  it: %s\ngroups:\n", r.Registry())
	for _, g := range churnGroups {
		fmt.Fprintf(&b, "  %s: {balance: %s, discover: [%s]}\n", g.name, g.balance, r.Discover(g.service, g.network))
	}
	fmt.Fprintln(&b, "listeners:")
	for i, g := range churnGroups {
		p := &world.Place{Name: g.name, Network: g.network, Upstream: g.network, Addr: fmt.Sprintf("%s:%d", o.host, 20001+i), Own: true}
		more := ""
		if g.network == "udp" {
			more = fmt.Sprintf(", timeouts: {idle: %v}", o.idle)
		}
		fmt.Fprintf(&b, "  %s: {listen: \"%s://%s\", to: %s%s}\n", p.Name, p.Network, p.Addr, g.name, more)
		all = append(all, p)
	}
	return all, b.String()
}

// newChurn returns the services with their first members, which the registry has.
func newChurn(w *world.World, r registry.Registry, host string) (*churn, error) {
	c := &churn{w: w, registry: r, host: host, kinds: make(map[string]int)}
	for _, g := range churnGroups {
		i := slices.IndexFunc(c.services, func(s *service) bool { return s.name == g.service })
		if i < 0 {
			i = len(c.services)
			c.services = append(c.services, &service{name: g.service, network: g.network})
		}
		c.services[i].groups = append(c.services[i].groups, g.name)
	}
	for _, s := range c.services {
		for range leastMembers + 2 {
			m, err := c.newMember(s)
			if err == nil {
				err = c.put(s, m)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// newEndpoint starts an upstream.
func (c *churn) newEndpoint(s *service) (*world.Endpoint, error) {
	e := &world.Endpoint{Service: s.name}
	if s.network == "udp" {
		conn, err := net.ListenPacket("udp", c.host+":0")
		if err != nil {
			return nil, err
		}
		conn.(*net.UDPConn).SetReadBuffer(4 << 20)
		e.Addr = conn.LocalAddr().String()
		c.w.ServeDatagrams(conn, e)
		return e, nil
	}
	l, err := net.Listen("tcp", c.host+":0")
	if err != nil {
		return nil, err
	}
	e.Addr = l.Addr().String()
	c.w.Serve(l, 0, e)
	return e, nil
}

func (c *churn) newMember(s *service) (*churnMember, error) {
	at, err := c.newEndpoint(s)
	if err != nil {
		return nil, err
	}
	c.named++
	m := &churnMember{Member: registry.Member{Name: fmt.Sprint("m", c.named), Addr: at.Addr, Weight: 1}, at: at}
	s.members = append(s.members, m)
	return m, nil
}

// put tells the registry of a member.
func (c *churn) put(s *service, m *churnMember) error {
	if !m.Draining {
		m.at.Left.Store(0)
	}
	m.there = true
	return c.registry.Put(s.name, m.Member)
}

// step makes one change.
func (c *churn) step(r *rand.Rand) error {
	s := c.services[0]
	if r.IntN(4) == 0 {
		s = c.services[1]
	}
	taking := s.taking()
	pick := func(list []*churnMember) *churnMember { return list[r.IntN(len(list))] }
	only := func(fits func(*churnMember) bool) (list []*churnMember) {
		for _, m := range s.members {
			if fits(m) {
				list = append(list, m)
			}
		}
		return list
	}
	for {
		var m *churnMember
		var left *world.Endpoint
		var err error
		what := []string{"add", "remove", "remove", "return", "drain", "undrain", "move", "weight"}[r.IntN(8)]
		if !c.registry.Can(registry.Weights) && what == "weight" || !c.registry.Can(registry.Draining) && what == "drain" {
			continue
		}
		switch what {
		case "add":
			if len(taking) >= mostMembers {
				continue
			}
			if m, err = c.newMember(s); err != nil {
				return err
			}
			if m.there = true; c.registry.Can(registry.Weights) {
				m.Weight = 1 + r.IntN(4)
			}
		case "remove": // one that takes flows, or one that is drained and perhaps has none left
			list := only(func(m *churnMember) bool { return m.there && (m.Draining || len(taking) > leastMembers) })
			if len(list) == 0 {
				continue
			}
			m = pick(list)
			m.there, m.Draining, left = false, false, m.at
		case "return": // with its address
			list := only(func(m *churnMember) bool { return !m.there })
			if len(list) == 0 || len(taking) >= mostMembers {
				continue
			}
			m = pick(list)
			m.there = true
		case "drain":
			if len(taking) <= leastMembers {
				continue
			}
			m = pick(taking)
			m.Draining, left = true, m.at
		case "undrain":
			list := only(func(m *churnMember) bool { return m.there && m.Draining })
			if len(list) == 0 {
				continue
			}
			m = pick(list)
			m.Draining = false
		case "move":
			return c.move(s, pick(taking))
		case "weight":
			m = pick(taking)
			m.Weight = 1 + (m.Weight+r.IntN(7))%8
		}
		return c.change(s, m, what, left)
	}
}

// move gives a member another address.
func (c *churn) move(s *service, m *churnMember) error {
	left := m.at
	at, err := c.newEndpoint(s)
	if err != nil {
		return err
	}
	m.at, m.Addr = at, at.Addr
	return c.change(s, m, "move", left)
}

// change tells the registry of a change.
func (c *churn) change(s *service, m *churnMember, what string, left *world.Endpoint) error {
	if m.pending != nil {
		c.replaced++
	}
	c.changes++
	c.kinds[what]++
	m.pending = &change{number: c.changes, what: what, at: time.Now(), left: left, back: s.back, follows: m.pending != nil}
	c.w.Tally.Count(world.MemberChanges, 1)
	if !m.there {
		return c.registry.Remove(s.name, m.Name)
	}
	return c.put(s, m)
}

// start waits until the relay has all members.
func (c *churn) start(d *world.Daemon) error {
	c.d = d
	for _, s := range c.services {
		for _, m := range s.members {
			m.pending = &change{at: time.Now()}
		}
	}
	err := proc.Until("the relay to know all members", world.Patience, 20*ms, func() error {
		pending, err := c.look()
		if err == nil && pending > 0 {
			err = fmt.Errorf("%d are not known", pending)
		}
		return err
	})
	c.delays = nil
	for _, s := range c.services {
		s.shown = 0
	}
	return err
}

// restart kills the registry's server, sees to it that the relay keeps its members, and starts it again.
func (c *churn) restart() error {
	if err := c.settle(); err != nil { // what the registry said last may be on its way
		return err
	}
	c.registry.Kill()
	c.restarts++
	c.w.Sleep(time.Second)
	for _, s := range c.services {
		for _, m := range s.members {
			m.pending = &change{at: time.Now()}
		}
	}
	delays := c.delays
	pending, err := c.look()
	for end := time.Now().Add(world.Patience); err != nil && c.d.Failed() == nil && time.Now().Before(end); pending, err = c.look() {
	}
	if err != nil || pending > 0 {
		c.w.Tally.Fault(world.OtherFaults, "while the registry was away, %d members are not as they were: %v", pending, err)
	}
	c.delays = delays
	for _, s := range c.services {
		s.back = true
		for _, m := range s.members {
			m.pending = nil
		}
	}
	return c.registry.Start()
}

// churnAll makes the changes, and kills the registry now and then.
func (s *settings) churnAll(c *churn, r *rand.Rand) error {
	for i := range s.changes {
		if s.interrupted() {
			break
		}
		if err := errors.Join(c.step(r), c.d.Failed()); err != nil {
			return fmt.Errorf("change %d: %w", c.changes, err)
		}
		for end := time.Now().Add(time.Duration(r.Int64N(int64(2*s.between) + 1))); ; c.w.Sleep(10 * ms) {
			c.look() // an answer that does not come in time is missed; settle insists on one
			if !time.Now().Before(end) {
				break
			}
		}
		if s.restarts > 0 && (i+1)%max(1, s.changes/(s.restarts+1)) == 0 && c.restarts < s.restarts {
			if err := c.restart(); err != nil {
				return err
			}
		}
		s.show(c.w, i+1)
	}
	return c.settle()
}

// print says what was changed, and how soon the relay knew it.
func (c *churn) print(out io.Writer) {
	fmt.Fprintf(out, "\n%d changes of members:", c.changes)
	for _, what := range []string{"add", "remove", "return", "drain", "undrain", "move", "weight"} {
		fmt.Fprintf(out, " %s %d", what, c.kinds[what])
	}
	endpoints, left := 0, 0
	for _, s := range c.services {
		for _, m := range s.members {
			endpoints++
			if !m.there {
				left++
			}
		}
	}
	fmt.Fprintf(out, "\n%d members, %d of them removed in the end; the registry was killed and started again %d times\n", endpoints, left, c.restarts)
	world.PrintWaits(out, "from a change until the relay shows it", c.delays)
	world.PrintWaits(out, "from a change right after the server's start", c.later)
	fmt.Fprintf(out, "%d changes were followed by another one of the same member before the relay showed them\n", c.replaced)
}
