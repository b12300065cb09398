package upstream

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/relay"
)

// Member is one upstream of a group. The pointer is the same for as long as the
// group has a member of that name and address, reloads included.
type Member struct {
	name  string
	addr  relay.Addr
	group *Group

	// What event loops read and write.
	acceptsFlows atomic.Bool  // new flows
	limit        atomic.Int32 // flows at once; 0: no bound
	active       atomic.Int32 // leases that are out
	total        atomic.Uint64
	failures     atomic.Uint64 // connects that failed
	// Connects that did not fail, and how long they took together, in nanoseconds.
	connected      atomic.Uint64
	connectTime    atomic.Int64
	failuresInARow atomic.Int32 // of them, since the last that did not
	ejecting       atomic.Bool  // one failure too many, which is being dealt with
	// Ejections since the last connect that did not fail.
	ejectionsInARow atomic.Int32

	heapIndex int // in the group's heap; under the heap's lock
	memberState
}

// memberState is what the Set's lock guards.
type memberState struct {
	configured, override settings // what the file says, and what an operator says over it
	backup               bool
	state                State
	since                time.Time
	why                  string    // what made it so
	discovered           bool      // discovered, not in the file
	slowStartSince       time.Time // when it began to take flows; zero if it is warm
	health               health
	checker              *checker
	ejected              bool      // ejected
	ejectedUntil         time.Time // the end of the last ejection
	ejections            uint64
	ejectTimer           *time.Timer // ends an ejection
	removed              atomic.Bool // set under the Set's lock
}

// Addr is where to connect. The pointer is the same at each call, and what it
// points to never changes.
func (m *Member) Addr() *relay.Addr { return &m.addr }

// Name is what the file calls it, or its address's URL.
func (m *Member) Name() string { return m.name }

// Group is the group that it is a member of.
func (m *Member) Group() *Group { return m.group }

// Gone tells whether the configuration, or discovery, no longer has the member.
func (m *Member) Removed() bool { return m.removed.Load() }

// Active is how many leases of it are out.
func (m *Member) Active() int { return int(m.active.Load()) }

// reserve takes one of the member's slots, if one is free.
func (m *Member) reserve() bool {
	for {
		n, most := m.active.Load(), m.limit.Load()
		if most > 0 && n >= most {
			return false
		}
		if m.active.CompareAndSwap(n, n+1) {
			m.total.Add(1)
			return true
		}
	}
}

// full tells whether all slots are taken.
func (m *Member) full() bool {
	most := m.limit.Load()
	return most > 0 && m.active.Load() >= most
}
