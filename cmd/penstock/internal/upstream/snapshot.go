package upstream

import (
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A GroupSnapshot describes a group at one moment.
type GroupSnapshot struct {
	Name        string
	Balance     string
	Named       bool // its flows go to hosts that clients name: it has no members
	Panic       bool
	Queued      int    // flows in the queue
	QueuedTotal uint64 // flows that were ever queued
	DownKept    uint64 // flows of members that went down together with most of the group, which Down has not ended
	Members     []MemberSnapshot
	// Differences are how the members differ from the file, and Running the members that a file
	// would have that says the same. Both are nil if they do not differ.
	Differences []MemberDifference
	Running     []spec.Member
	Lookups     []LookupSnapshot // of members' names and of discovery
}

// A MemberSnapshot describes a member at one moment.
type MemberSnapshot struct {
	Name         string
	Addr         relay.Addr
	Ports        int // of a range that begins at Addr's; 1: it is not a range
	Weight       int // effective
	Backup       bool
	Zone         string
	Priority     int
	Metadata     string // a JSON object; empty: none
	MaxFlows     int
	State        State
	AcceptsFlows bool // new ones
	Since        time.Time
	Why          string    // cause of the state
	Until        time.Time // end of the last ejection
	Mode         Mode      // set by an operator
	Discovered   bool      // found by a lookup, not listed in the file
	Draining     bool      // the lookup says so
	Health       Health    // as the lookup says

	Active      int
	Total       uint64        // leases ever
	Connects    uint64        // successful ones
	ConnectTime time.Duration // how long those took together
	Failures    uint64        // connects that failed
	Answers     uint64        // flows that have ended in which it sent a byte
	AnswerTime  time.Duration // how long their first bytes took together, from the connect
	Ejections   uint64

	Checked   time.Time // the last check; zero: none yet
	CheckTook time.Duration
	CheckErr  string    // empty: it passed
	Streak    int       // checks in a row with the same result
	Expires   time.Time // the certificate that the member has shown last; zero: none

	AgentAt   time.Time // when its agent has answered last; zero: never
	AgentSays string    // all that it has said and not taken back; empty: nothing
	AgentErr  string    // of the last time that it was asked; empty: it has answered
}

// A LookupSnapshot describes a lookup at one moment.
type LookupSnapshot struct {
	Name     string
	Registry string // where it is looked up, by the name in the configuration; empty: DNS
	Targets  int
	LeftOut  int       // members left out because of Lookups.MaxMembers
	Failures uint64    // lookups without a good answer
	At       time.Time // when the last answer came; zero: none yet
	GoodAt   time.Time // when the last good answer came, maybe to an earlier process; zero: none yet
	Err      string    // of the last answer; empty: it was good
}

// Snapshot describes all groups, ordered by name.
func (s *Set) Snapshot() []GroupSnapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []GroupSnapshot
	for _, g := range *s.groups.Load() {
		snap := GroupSnapshot{Name: g.name, Balance: g.cfg.Balance, Named: g.cfg.Destination != nil, Panic: g.panic, Queued: g.queue.len(), QueuedTotal: uint64(g.queue.total.Load()),
			DownKept: uint64(g.row.Words()[downKeptAt].Load())}
		if snap.Differences, snap.Running = g.differences(); snap.Differences == nil {
			snap.Running = nil
		}
		snap.Members = make([]MemberSnapshot, 0, len(g.members))
		for _, m := range g.members {
			snap.Members = append(snap.Members, m.snapshot())
		}
		for _, d := range lookups(g.cfg) {
			w := s.watches[d]
			snap.Lookups = append(snap.Lookups, LookupSnapshot{Name: lookupName(d), Registry: d.Registry.Name, Targets: len(w.targets), LeftOut: w.leftOut,
				Failures: uint64(w.counts.Words()[lookupFailuresAt].Load()), At: w.answeredAt, GoodAt: w.goodAt, Err: text(w.err)})
		}
		all = append(all, snap)
	}
	slices.SortFunc(all, func(a, b GroupSnapshot) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (m *Member) snapshot() MemberSnapshot {
	return MemberSnapshot{
		Name: m.name, Addr: m.addr, Ports: m.ports, Weight: m.weight(), Backup: m.backup, Zone: m.zone, Priority: m.priority, Metadata: m.metadata, MaxFlows: int(m.limit.Load()),
		State: m.state, AcceptsFlows: m.acceptsFlows.Load(), Since: m.since, Why: m.why, Until: m.ejectedUntil, Mode: m.override.mode, Discovered: m.discovered, Draining: m.discovered && m.configured.mode == Drain, Health: m.reported,
		Active: m.Active(), Total: m.counts.load(totalAt), Connects: m.counts.load(connectsAt), ConnectTime: time.Duration(m.counts.load(connectTimeAt)), Failures: m.counts.load(failuresAt),
		Answers: m.counts.load(answersAt), AnswerTime: time.Duration(m.counts.load(answerTimeAt)), Ejections: m.counts.load(ejectionsAt),
		Checked: m.health.at, CheckTook: m.health.took, CheckErr: text(m.health.err), Streak: m.health.streak, Expires: m.health.expires,
		AgentAt: m.agent.at, AgentSays: m.agent.says.String(), AgentErr: text(m.agent.err),
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
