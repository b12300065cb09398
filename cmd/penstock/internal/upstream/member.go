package upstream

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A Member is one upstream of a group. Its pointer stays the same for as long as the group has a
// member of that name and address, across reloads.
type Member struct {
	name  string
	given string // the name, unless it is the address's URL
	addr  relay.Addr
	ports int // from that of addr on; 1: it is not a range
	group *Group

	// Read and written by event loops.
	acceptsFlows   atomic.Bool  // new ones
	limit          atomic.Int32 // open flows; 0: no limit
	active         atomic.Int32 // leases held
	counts         memberCounts
	failuresInARow atomic.Int32 // since the last successful connect
	ejecting       atomic.Bool  // an ejection is under way
	// Ejections since the last successful connect.
	ejectionsInARow atomic.Int32

	end       atomic.Pointer[End]       // of its flows; nil: they continue
	tier      atomic.Pointer[tierState] // of the last table; nil: it was in none
	heapIndex atomic.Int32              // in the heap of leastConnections
	moved     atomic.Bool               // from one heap to another
	host      atomic.Pointer[string]    // see Host; nil: the group does not use TLS
	memberState
}

// memberState is guarded by the Set's lock.
type memberState struct {
	configured, override settings // settings of the file, and an operator's, which take precedence
	memberFacts
	memberEnds
	index          int32  // in the group's list
	refreshed      uint64 // the last refresh that found it
	counted        counted
	listed         bool // in the last table, and has accepted flows since
	limitWanted    int  // of open flows, unless its agent says another one; 0: none
	state          State
	since          time.Time
	why            string    // cause of the state
	slowStartSince time.Time // when it began to accept flows; zero: it is not in slow start
	missingSteps   int       // of slow start, in the last table
	health         health
	checker        *checker
	agent          agent
	ejected        bool        // ejected
	ejectedUntil   time.Time   // end of the last ejection
	ejectTimer     *time.Timer // ends an ejection
	removed        atomic.Bool // written under the Set's lock

	hash [2]uint64 // of maglev; zero: not computed yet

	// Of least-connections: the heap that has the member, and with which weight.
	heaped     *heapState
	heapWeight int
	marked     bool // in the list that is being compared
}

// memberFacts is what the file, or what was discovered, says of a member besides its settings.
type memberFacts struct {
	backup       bool
	discovered   bool // found by a lookup, not listed in the file
	reported     Health
	zone         string
	locality     Locality
	priority     int
	metadata     string
	host         string // a name that stands for the address; empty: none
	quicServerID string // empty: none
	checked      checkAt
	agentAt      agentAt
}

// Addr returns the address to connect to. The pointer is the same on each call, and the address
// never changes.
func (m *Member) Addr() *relay.Addr { return &m.addr }

// AddrAt returns the address to connect to for a flow that came to the i-th port of a listener's
// range: the i-th port of the member's range, or the member's only port.
func (m *Member) AddrAt(i int) *relay.Addr {
	if m.ports <= 1 {
		return &m.addr
	}
	a := m.addr
	a.AddrPort = netip.AddrPortFrom(a.AddrPort.Addr(), a.AddrPort.Port()+uint16(i%m.ports))
	return &a
}

// Name returns the member's name: from the file, or the URL of its address.
func (m *Member) Name() string { return m.name }

// Host returns the host with which the member's certificate is compared: the name that it was looked up by, or its address. It is empty for
// a Unix socket, and where the group uses no TLS.
func (m *Member) Host() string {
	if host := m.host.Load(); host != nil {
		return *host
	}
	return ""
}

// setHost sets what Host returns. The caller holds the Set's lock.
func (m *Member) setHost() {
	if g := m.group.cfg; g.TLS == nil && g.CheckTLS() == nil {
		m.host.Store(nil)
		return
	}
	host := strings.TrimSuffix(m.memberFacts.host, ".")
	if host == "" && m.addr.Path == "" {
		host = m.addr.AddrPort.Addr().Unmap().String()
	}
	if was := m.host.Load(); was == nil || *was != host {
		m.host.Store(&host)
	}
}

// Is reports whether operators may call the member by a name: its name, or the URL of its address.
func (m *Member) Is(name string) bool { return m.name == name || spec.URL(m.addr, m.ports) == name }

// Group returns the member's group.
func (m *Member) Group() *Group { return m.group }

// Removed reports whether the configuration, or discovery, no longer has the member.
func (m *Member) Removed() bool { return m.removed.Load() }

// Active returns the number of leases held.
func (m *Member) Active() int { return int(m.active.Load()) }

// reserve takes one of the member's slots and reports whether one was free.
func (m *Member) reserve() bool {
	for {
		n, most := m.active.Load(), m.limit.Load()
		if most > 0 && n >= most {
			return false
		}
		if m.active.CompareAndSwap(n, n+1) {
			m.counts.add(totalAt, 1)
			return true
		}
	}
}

// full reports whether all slots are taken.
func (m *Member) full() bool {
	most := m.limit.Load()
	return most > 0 && m.active.Load() >= most
}
