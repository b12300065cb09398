package upstream

import (
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/relay"
)

// GroupSnapshot is a group at one moment.
type GroupSnapshot struct {
	Name        string
	Balance     string
	Panic       bool
	Queued      int    // in the queue
	QueuedTotal uint64 // flows that ever came to wait there
	Members     []MemberSnapshot
	Lookups     []LookupSnapshot // of names and of what is discovered
}

// MemberSnapshot is a member at one moment.
type MemberSnapshot struct {
	Name         string
	Addr         relay.Addr
	Weight       int // in force
	Backup       bool
	MaxFlows     int
	State        State
	AcceptsFlows bool // new flows
	Since        time.Time
	Why          string    // what made it so
	Until        time.Time // the end of the last ejection
	Mode         Mode      // what an operator wants
	Discovered   bool      // discovered, not in the file

	Active      int
	Total       uint64        // leases ever
	Connects    uint64        // connects that did not fail
	ConnectTime time.Duration // how long those took together
	Failures    uint64        // connects that failed
	Ejections   uint64

	Checked   time.Time // the last check; zero: none yet
	CheckTook time.Duration
	CheckErr  string // empty: it was well
	Streak    int    // checks in a row that ended like it
}

// LookupSnapshot is a look-up at one moment.
type LookupSnapshot struct {
	Name     string
	Targets  int
	LeftOut  int       // members that were left out, beyond Lookups.MaxMembers
	Failures uint64    // answers that were not good
	At       time.Time // the last answer; zero: none yet
	Err      string    // of the last answer; empty: it was good
}

// Snapshot describes all groups, in the order of their names.
func (s *Set) Snapshot() []GroupSnapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []GroupSnapshot
	for _, g := range *s.groups.Load() {
		snap := GroupSnapshot{Name: g.name, Balance: g.cfg.Balance, Panic: g.panic, Queued: g.queue.len(), QueuedTotal: g.queue.total.Load()}
		for _, m := range g.members {
			snap.Members = append(snap.Members, m.snapshot())
		}
		for _, d := range lookups(g.cfg) {
			w := s.watches[d]
			snap.Lookups = append(snap.Lookups, LookupSnapshot{lookupName(d), len(w.targets), w.leftOut, w.failures, w.answeredAt, text(w.err)})
		}
		all = append(all, snap)
	}
	slices.SortFunc(all, func(a, b GroupSnapshot) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (m *Member) snapshot() MemberSnapshot {
	return MemberSnapshot{
		Name: m.name, Addr: m.addr, Weight: m.weight(), Backup: m.backup, MaxFlows: int(m.limit.Load()),
		State: m.state, AcceptsFlows: m.acceptsFlows.Load(), Since: m.since, Why: m.why, Until: m.ejectedUntil, Mode: m.override.mode, Discovered: m.discovered,
		Active: m.Active(), Total: m.total.Load(), Connects: m.connected.Load(), ConnectTime: time.Duration(m.connectTime.Load()), Failures: m.failures.Load(), Ejections: m.ejections,
		Checked: m.health.at, CheckTook: m.health.took, CheckErr: text(m.health.err), Streak: m.health.streak,
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
