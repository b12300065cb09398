package upstream

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// Restore gives l the slot that a flow of another process held: of the member with that name and
// address (of the first port, see [Member.Addr]). It checks nothing, because the flow is connected
// already. If the group has no such member any more, Restore returns one that stands for it, for
// which Member.Removed reports true.
//
// It is called on the flow's loop, once, before any other method of l.
func (g *Group) Restore(l *Lease, name string, addr relay.Addr) *Member {
	l.group = g
	m := g.memberAt(name, addr)
	l.hold(m)
	return m
}

// memberAt returns the member with a name and address, or one that stands for it.
func (g *Group) memberAt(name string, addr relay.Addr) *Member {
	if m := g.table.Load().find(memberKey{name, addr}); m != nil {
		return m
	}
	m := &Member{name: name, addr: addr, ports: 1, group: g}
	m.removed.Store(true)
	return m
}

// RestoreGroup returns the group of that name for flows of another process. If the configuration no
// longer has it, RestoreGroup returns one that stands for it, for which Group.Removed reports true.
func (s *Set) RestoreGroup(name string) *Group {
	if g := s.Group(name); g != nil {
		return g
	}
	g := &Group{name: name, set: s}
	g.queue.total = new(atomic.Int64)
	s.mu.Lock()
	defer s.mu.Unlock()
	g.removed.Store(true)
	g.file = &spec.Group{Name: name, Balance: spec.Balancers[0].Name}
	g.cfg = g.file
	g.buildTable(time.Now())
	return g
}
