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
	tiers   []tier    // at least one, in the order in which they are tried
	// first is the tier in which flows begin, if several is false. Otherwise each flow begins in one,
	// by the tiers' shares.
	first   int
	several bool

	byServer map[string]*Member // by their IDs in connection IDs of QUIC; nil: these have none

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

// seed returns where the search of a new flow begins, in all tiers alike.
func (t *table) seed(c Client) uint64 { return t.tiers[0].seed(c) }

// begin returns the tier in which a flow begins. It is the same one for the same seed as long as the
// shares are the same, and when they change, it is another one for no more flows than they say.
func (t *table) begin(seed uint64) int {
	if !t.several {
		return t.first
	}
	at := uint32(seed * golden >> 32)
	i := 0
	for i < len(t.tiers)-1 && at > t.tiers[i].until {
		i++
	}
	return i
}

// golden is 2^64 divided by the golden ratio: the multiples of it, as of a turn that is counted, are
// spread evenly.
const golden = 0x9e3779b97f4a7c15

// pick reserves a slot of a member for l: of the tier in which the flow begins, or else of the first
// one that has a member. full reports that there is a member, but that none has a free slot.
func (t *table) pick(l *Lease) (m *Member, full bool) {
	begin := t.begin(l.seed)
	if m, full = t.tiers[begin].pick(l); m != nil {
		return m, false
	}
	for i := range t.tiers {
		if i == begin {
			continue
		}
		m, fullToo := t.tiers[i].pick(l)
		if m != nil {
			return m, false
		}
		full = full || fullToo
	}
	return nil, full
}
