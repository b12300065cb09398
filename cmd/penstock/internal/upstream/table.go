package upstream

import (
	"sync"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// table is what Pick reads. It never changes; what its balancers count they guard themselves.
type table struct {
	cfg     *spec.Group
	members []*Member // of the group, in whatever state
	// Backups get flows while no primary can take one, because all are down or full.
	primary, backup balancer

	indexed sync.Once
	index   map[memberKey]*Member // for Group.Restore
}

// find returns the member with a name and address, nil if there is none.
func (t *table) find(k memberKey) *Member {
	t.indexed.Do(func() {
		t.index = make(map[memberKey]*Member, len(t.members))
		for _, m := range t.members {
			t.index[memberKey{m.name, m.addr}] = m
		}
	})
	return t.index[k]
}

// memberKey identifies a member of a group.
type memberKey struct {
	name string
	addr relay.Addr
}

// seed returns where the search of a new flow begins, in primaries and backups alike.
func (t *table) seed(c Client) uint64 { return t.primary.seed(c) }

// pick reserves a slot of a member for l. full reports that there is a member, but that none has
// a free slot.
func (t *table) pick(l *Lease) (m *Member, full bool) {
	if m, full = t.primary.pick(l); m != nil {
		return m, false
	}
	m, fullToo := t.backup.pick(l)
	return m, m == nil && (full || fullToo)
}

// released tells the balancers that a slot of m is free.
func (t *table) released(m *Member) {
	t.primary.released(m)
	t.backup.released(m)
}
