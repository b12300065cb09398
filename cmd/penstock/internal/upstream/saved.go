package upstream

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A SavedSet is what a Set knows that the configuration does not say, for the next process: the
// changes of operators, and what is known about members. It is written as JSON. What the next
// process has no use for, it ignores.
type SavedSet struct {
	Groups  []SavedGroup  `json:"groups,omitempty"`
	Lookups []SavedLookup `json:"lookups,omitempty"`
}

// A SavedGroup is the state of a group.
type SavedGroup struct {
	Name  string    `json:"name"`
	Panic bool      `json:"panic,omitempty"`
	Turns [2]uint64 `json:"turns"` // of round-robin; the second one is unused
	// Failback is since when flows of backups end; zero: they go on.
	Failback time.Time        `json:"failback,omitzero"`
	Joined   time.Time        `json:"joined,omitzero"` // see groupEnds
	Added    []SavedNewMember `json:"added,omitempty"`
	Removed  []SavedNewMember `json:"removed,omitempty"`
	Moved    []SavedMove      `json:"moved,omitempty"`
	Members  []SavedMember    `json:"members,omitempty"`
}

// A SavedNewMember is a member as a configuration has it.
type SavedNewMember struct {
	Name     string `json:"name,omitempty"`
	To       string `json:"to"`
	Weight   int    `json:"weight,omitempty"`
	Backup   bool   `json:"backup,omitempty"`
	MaxFlows int    `json:"max-flows,omitempty"`
	Drained  bool   `json:"drained,omitempty"`

	CheckPort    uint16     `json:"check-port,omitempty"`
	CheckAddress netip.Addr `json:"check-address,omitzero"`
	AgentPort    uint16     `json:"agent-port,omitempty"`
	AgentAddress netip.Addr `json:"agent-address,omitzero"`
	AgentSend    []byte     `json:"agent-send,omitempty"`
	QUICServerID []byte     `json:"quic-server-id,omitempty"`
}

// A SavedMove is another address of a member of the file.
type SavedMove struct {
	Name string `json:"name"`
	File string `json:"file"`
	To   string `json:"to"`
}

// A SavedMember is the state of a member.
type SavedMember struct {
	Name string `json:"name"`
	URL  string `json:"url"` // of its address

	Weight int `json:"weight,omitempty"` // as configured
	Mode   int `json:"mode,omitempty"`
	// As an operator wants them.
	OwnWeight int `json:"own-weight,omitempty"`
	OwnMode   int `json:"own-mode,omitempty"`

	State          int       `json:"state"`
	Since          time.Time `json:"since,omitzero"`
	Why            string    `json:"why,omitempty"`
	SlowStartSince time.Time `json:"slow-start-since,omitzero"`

	FailuresInARow  int       `json:"failures-in-a-row,omitempty"`
	EjectionsInARow int       `json:"ejections-in-a-row,omitempty"`
	Ejected         bool      `json:"ejected,omitempty"`
	EjectedUntil    time.Time `json:"ejected-until,omitzero"`

	Check    int           `json:"check,omitempty"` // a checkState
	Contrary int           `json:"contrary,omitempty"`
	Checked  time.Time     `json:"checked,omitzero"`
	Took     time.Duration `json:"took,omitempty"`
	Err      string        `json:"err,omitempty"`
	Streak   int           `json:"streak,omitempty"`
	Expires  time.Time     `json:"expires,omitzero"` // of the certificate

	Agent string `json:"agent,omitempty"` // what its agent has said, as it says it

	Passed      time.Time `json:"passed,omitzero"`       // see health
	Failed      time.Time `json:"failed,omitzero"`       // see health
	FailedSince time.Time `json:"failed-since,omitzero"` // see memberEnds
	Ends        string    `json:"ends,omitempty"`        // the reason for which its flows end since then; empty: they go on
}

// A SavedLookup is the last good answer to a lookup.
type SavedLookup struct {
	Query   string    `json:"query"`
	Named   string    `json:"named,omitempty"` // the query of a registry by its name, in case its servers change
	At      time.Time `json:"at,omitzero"`     // when it came
	Targets []Target  `json:"targets"`
}

// Limits of what is believed of a saved text.
const (
	maxSavedText = 512 // bytes of a name, an address, a reason
	maxStreak    = 1 << 30
	maxFactor    = 1<<31 - 1
	// claimTime is how long members and names that appear only later, by discovery, find what was
	// saved of them.
	claimTime = 5 * time.Minute
)

// savedState is what was saved by the process before and nobody has taken yet. It is guarded by the
// Set's lock.
type savedState struct {
	until   time.Time
	groups  map[string]*SavedGroup
	members map[string]*SavedMember // by memberID
	lookups []SavedLookup
}

func newSaved(s *SavedSet, now time.Time) *savedState {
	if s == nil {
		return nil
	}
	out := &savedState{until: now.Add(claimTime), groups: map[string]*SavedGroup{}, members: map[string]*SavedMember{}, lookups: s.Lookups}
	for i := range s.Groups {
		g := &s.Groups[i]
		out.groups[g.Name] = g
		for j := range g.Members {
			out.members[memberID(g.Name, g.Members[j].Name, g.Members[j].URL)] = &g.Members[j]
		}
	}
	return out
}

// touch notes that something has changed that Save would return. The caller holds the Set's lock.
func (s *Set) touch() { s.revision.Add(1) }

// Revision returns a number that changes with what Save returns, apart from what changes with each
// check and each flow.
func (s *Set) Revision() uint64 { return s.revision.Load() }

// Save returns the state of the Set for the next process, which passes it as Options.Saved.
func (s *Set) Save() SavedSet {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out SavedSet
	for _, g := range *s.groups.Load() {
		out.Groups = append(out.Groups, g.save())
	}
	slices.SortFunc(out.Groups, func(a, b SavedGroup) int { return strings.Compare(a.Name, b.Name) })
	for _, w := range s.watches {
		if w.answeredOK {
			out.Lookups = append(out.Lookups, w.save())
		}
	}
	sort.Slice(out.Lookups, func(i, j int) bool { return out.Lookups[i].Query < out.Lookups[j].Query })
	return out
}

func (g *Group) save() SavedGroup {
	out := SavedGroup{Name: g.name, Panic: g.panic}
	out.Turns[0] = g.turn.Load()
	if g.failback != nil {
		out.Failback = g.failback.Since
	}
	out.Joined = g.joined
	c := g.changesOfNext()
	for i := range c.added {
		out.Added = append(out.Added, saveNew(c.added[i]))
	}
	for _, m := range c.removed {
		out.Removed = append(out.Removed, saveNew(m))
	}
	for name, m := range c.moved {
		out.Moved = append(out.Moved, SavedMove{name, m.file.String(), m.to.String()})
	}
	slices.SortFunc(out.Removed, func(a, b SavedNewMember) int { return strings.Compare(a.Name+a.To, b.Name+b.To) })
	slices.SortFunc(out.Moved, func(a, b SavedMove) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range g.members {
		saved := m.save()
		out.Members = append(out.Members, saved)
		if to, ok := g.movesNext(m); ok { // its state goes with it
			saved.URL = to.String()
			out.Members = append(out.Members, saved)
		}
	}
	return out
}

func saveNew(m spec.Member) SavedNewMember {
	return SavedNewMember{Name: m.Name, To: m.To.String(), Weight: m.Weight, Backup: m.Backup, MaxFlows: m.MaxFlows, Drained: m.Drained,
		CheckPort: m.CheckPort, CheckAddress: m.CheckAddress, AgentPort: m.AgentPort, AgentAddress: m.AgentAddress, AgentSend: []byte(m.AgentSend), QUICServerID: []byte(m.QUICServerID)}
}

func (m *Member) save() SavedMember {
	h := &m.health
	out := SavedMember{
		Name: m.name, URL: spec.URL(m.addr, m.ports),
		Weight: m.configured.weight, Mode: int(m.configured.mode), OwnWeight: m.override.weight, OwnMode: int(m.override.mode),
		State: int(m.state), Since: m.since, Why: short(m.why), SlowStartSince: m.slowStartSince,
		FailuresInARow: int(m.failuresInARow.Load()), EjectionsInARow: int(m.ejectionsInARow.Load()), Ejected: m.ejected, EjectedUntil: m.ejectedUntil,
		Check: int(h.effective()), Contrary: h.contrary, Checked: h.at, Took: h.took, Err: short(text(h.err)), Streak: h.streak, Expires: h.expires, Agent: short(m.agent.says.String()),
		Passed: h.passed, Failed: h.failed, FailedSince: m.failedSince,
	}
	if m.downEnd != nil {
		out.Ends = m.downEnd.Reason.String()
	}
	return out
}

func short(s string) string {
	if len(s) > maxSavedText {
		s = strings.ToValidUTF8(s[:maxSavedText], "")
	}
	return s
}

// queryText returns a lookup without the settings that change nothing about the answer, as text.
func queryText(d spec.Discover) string {
	if d.Registry.Kind == "" { // as versions without registries wrote it
		return fmt.Sprintf("{Network:%+v Host:%s Port:%d Service:%s Every:0s Lookups:{Keep:0s MaxMembers:0} Weight:%d MaxFlows:%d}",
			d.Network, d.Host, d.Port, d.Service, d.Weight, d.MaxFlows)
	}
	r := d.Registry
	return fmt.Sprintf("%s %q context %q: %s", r.Kind, r.Servers, r.Context, soughtText(d))
}

// namedText returns a lookup in a registry with the registry's name instead of its servers; empty: it has
// none.
func namedText(d spec.Discover) string {
	if d.Registry.Kind == "" || d.Registry.Name == "" {
		return ""
	}
	return fmt.Sprintf("%s %q: %s", d.Registry.Kind, d.Registry.Name, soughtText(d))
}

// soughtText returns what is looked for in a registry.
func soughtText(d spec.Discover) string {
	text := fmt.Sprintf("%q network %v port %d port-name %q tags %q datacenter %q stale %v weight %d max-flows %d",
		d.Key, d.Network, d.Port, d.PortName, d.Tags, d.Datacenter, d.Stale, d.Weight, d.MaxFlows)
	for _, k := range [...]struct{ name, value string }{{"namespace", d.Namespace}, {"partition", d.Partition}, {"peer", d.Peer}, {"family", d.Family}, {"docker-network", d.DockerNetwork}, {"published", map[bool]string{true: "true"}[d.Published]}} {
		if k.value != "" { // versions without these keys wrote nothing of them
			text += fmt.Sprintf(" %s %q", k.name, k.value)
		}
	}
	return text
}

// savedIn returns what was saved of a lookup, or else of the same one in a registry of the same name that
// had other servers; nil: nothing.
func (w *watch) savedIn(list []SavedLookup) *SavedLookup {
	i := slices.IndexFunc(list, func(l SavedLookup) bool { return l.Query == w.text })
	if i < 0 && w.named != "" {
		i = slices.IndexFunc(list, func(l SavedLookup) bool { return l.Named == w.named })
	}
	if i < 0 {
		return nil
	}
	return &list[i]
}

func (w *watch) save() SavedLookup {
	return SavedLookup{w.text, w.named, w.goodAt, w.targets}
}

// restore takes over the operators' changes of a group that was saved. It is called before the file
// is applied to a new group. The caller holds the Set's lock.
func (g *Group) restore() (turns [2]uint64) {
	if g.set.saved == nil {
		return turns
	}
	from := g.set.saved.groups[g.name]
	if from == nil {
		return turns
	}
	delete(g.set.saved.groups, g.name)
	g.panic = from.Panic
	if !from.Failback.IsZero() {
		g.failback = &End{relay.CauseFailback, spec.ReasonNone, notAfter(from.Failback, time.Now())}
	}
	g.joined = notAfter(from.Joined, time.Now())
	g.changes, g.next = g.set.permitted(from.changes())
	return from.Turns
}

// changes returns the operators' changes that were saved, as far as they are some that operators could have made.
func (from *SavedGroup) changes() (c memberChanges) {
	for _, m := range from.Added[:min(len(from.Added), MaxAdded)] {
		if a, ok := m.member(); ok && a.Name != "" && !slices.ContainsFunc(c.added, func(o spec.Member) bool { return o.Name == a.Name }) {
			c.added = append(c.added, a)
		}
	}
	for _, m := range from.Removed {
		if r, ok := m.member(); ok {
			setIn(&c.removed, nameOf(&r), r)
		}
	}
	for _, m := range from.Moved {
		file, err := spec.ParseUpstream(m.File)
		to, err2 := spec.ParseUpstream(m.To)
		if err == nil && err2 == nil && validText(m.Name) {
			setIn(&c.moved, m.Name, move{file, to})
		}
	}
	return c
}

// member returns the member that was saved, if it is one that a configuration could have.
func (m *SavedNewMember) member() (spec.Member, bool) {
	to, err := spec.ParseUpstream(m.To)
	ok := err == nil && validText(m.Name) && m.Weight >= 0 && m.Weight <= 256 && m.MaxFlows >= 0 && m.MaxFlows <= 1<<30
	return spec.Member{Name: m.Name, To: to, Weight: m.Weight, Backup: m.Backup, MaxFlows: m.MaxFlows, Drained: m.Drained,
		CheckPort: m.CheckPort, CheckAddress: m.CheckAddress, AgentPort: m.AgentPort, AgentAddress: m.AgentAddress, AgentSend: string(m.AgentSend), QUICServerID: string(m.QUICServerID)}, ok
}

func validText(s string) bool {
	return len(s) <= maxSavedText && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd })
}

// setTurns continues the turns of round-robin, so that a restart does not favour the first members.
// The caller holds the Set's lock.
func (g *Group) setTurns(turns [2]uint64) {
	g.turn.Store(turns[0])
}

// restore takes over what was saved about a new member: it begins in the state that it had, without
// a report. The caller holds the Set's lock, and updates the state next.
func (m *Member) restore(now time.Time) bool {
	s := m.group.set.saved
	if s == nil {
		return false
	}
	id := m.id()
	from := s.members[id]
	if from == nil {
		return false
	}
	delete(s.members, id)
	if now.After(s.until) || !from.valid() {
		return false
	}
	past := func(t time.Time) time.Time { return notAfter(t, now) } // no time is in the future, whatever the clock was
	m.configured = settings{from.Weight, Mode(from.Mode)}
	m.override = settings{from.OwnWeight, Mode(from.OwnMode)}
	m.state, m.since, m.why = State(from.State), past(from.Since), from.Why
	m.slowStartSince = past(from.SlowStartSince)
	if m.failedSince = past(from.FailedSince); downReasonNamed(from.Ends) != spec.ReasonNone && !m.failedSince.IsZero() {
		m.downEnd = &End{relay.CauseDown, downReasonNamed(from.Ends), m.failedSince}
	}
	m.failuresInARow.Store(int32(from.FailuresInARow))
	m.ejectionsInARow.Store(int32(from.EjectionsInARow))
	m.ejectedUntil = from.EjectedUntil
	m.health = health{state: checkState(from.Check), contrary: from.Contrary, at: past(from.Checked), took: from.Took, streak: from.Streak, expires: from.Expires,
		passed: past(from.Passed), failed: past(from.Failed)}
	if from.Err != "" {
		m.health.err = errors.New(from.Err)
	}
	m.agent.says, _ = parseAgent(from.Agent)
	if cfg := m.group.cfg.Eject; cfg != nil && from.Ejected && from.EjectedUntil.After(now) {
		rest := min(from.EjectedUntil.Sub(now), max(cfg.Max, cfg.For))
		m.ejected, m.ejectedUntil = true, now.Add(rest)
		m.endEjectionAfter(rest)
	}
	// What it was, so that it does not seem to come up now.
	m.accept(m.state >= Checking || m.group.panic && (m.state == Down || m.state == Ejected))
	return true
}

// downReasonNamed returns the reason with a name, of those for which flows end; ReasonNone: there is none.
func downReasonNamed(name string) spec.Reason {
	for _, r := range [...]spec.Reason{spec.ReasonCheckFailed, spec.ReasonUnhealthy, spec.ReasonEjected} {
		if r.String() == name {
			return r
		}
	}
	return spec.ReasonNone
}

// notAfter returns t, or most if t is later.
func notAfter(t, most time.Time) time.Time {
	if t.After(most) {
		return most
	}
	return t
}

// valid reports whether every value is one that a member can have.
func (m *SavedMember) valid() bool {
	between := func(n, least, most int) bool { return n >= least && n <= most }
	return between(m.Weight, 0, 256) && between(m.OwnWeight, 0, 256) && between(m.Mode, 0, int(Disable)) && between(m.OwnMode, 0, int(Disable)) &&
		between(m.State, int(Removed), int(Up)) && between(m.FailuresInARow, 0, maxStreak) && between(m.EjectionsInARow, 0, maxStreak) &&
		between(m.Check, 0, int(failing)) && between(m.Contrary, 0, maxStreak) && between(m.Streak, 0, maxStreak) && m.Took >= 0 && (m.Ends == "" || downReasonNamed(m.Ends) != spec.ReasonNone) &&
		len(m.Why) <= 4*maxSavedText && len(m.Err) <= 4*maxSavedText && len(m.Agent) <= 4*maxSavedText
}

// restore takes over the targets of a watch that were saved. The members are there at once, and the
// next answer updates them. The caller holds the Set's lock.
func (w *watch) restore(s *savedState, now time.Time) {
	if s == nil || now.After(s.until) {
		return
	}
	l := w.savedIn(s.lookups)
	if l == nil {
		return
	}
	w.answeredOK, w.restored, w.targets, w.goodAt = true, true, slices.Clone(usable(l.Targets)), l.At
	if w.goodAt.After(now) {
		w.goodAt = now
	}
	close(w.answered)
}

// usable returns those of the targets that another process takes over.
func usable(targets []Target) []Target {
	targets = targets[:min(len(targets), maxTargets)]
	if !slices.ContainsFunc(targets, func(t Target) bool { return !t.valid() }) {
		return targets
	}
	return slices.DeleteFunc(slices.Clone(targets), func(t Target) bool { return !t.valid() })
}

func (t *Target) valid() bool {
	return validText(t.Name) && t.Weight >= 0 && t.Weight <= 256 && (t.Addr.AddrPort.IsValid() || t.Addr.Path != "") &&
		(t.Health == "" || t.Health == Degraded || t.Health == Unhealthy || t.Health == Draining) && validText(t.Locality.Name) && t.Policy.Factor >= 0 && t.Policy.Factor <= maxFactor &&
		validText(t.Zone) && t.Priority >= 0 && t.Priority <= maxPriority && len(t.Metadata) <= MaxMetadata
}
