package upstream

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A Discoverer finds members and keeps looking for them.
type Discoverer interface {
	// Watch calls update with the complete list of members, at the start and
	// whenever it changes, and with an error when a lookup fails; members then
	// stay as they are. The slice belongs to the Set from then on. Watch
	// returns when ctx ends.
	Watch(ctx context.Context, update func([]Target, error))
}

// A Target is a discovered member.
type Target struct {
	Name     string // empty: the address's URL
	Addr     relay.Addr
	Weight   int // 1 to 256; a weight in the configuration takes precedence
	Backup   bool
	Zone     string `json:",omitempty"` // empty: none
	Priority int    `json:",omitempty"` // 0 is used first; backups are used after all priorities
	Draining bool   `json:",omitempty"` // gets no new flows; its flows finish

	// What is checked instead of its own address and port; zero: those.
	CheckAddress netip.Addr `json:",omitzero"`
	CheckPort    uint16     `json:",omitempty"`

	QUICServerID ServerID `json:",omitempty"` // in connection IDs of QUIC; empty: none

	// What xDS control planes say besides.
	Health   Health   `json:",omitempty"`
	Locality Locality `json:",omitzero"`
	Policy   Policy   `json:",omitzero"` // of all targets of an answer

	// Metadata is a canonical JSON object of at most MaxMetadata bytes; empty: none. It is a string,
	// so that Targets compare.
	Metadata string `json:",omitempty"`
}

// A ServerID is the ID of a server in connection IDs of QUIC: any bytes. As text it is hexadecimal digits.
type ServerID string

// MarshalText returns the digits.
func (s ServerID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, []byte(s)), nil }

// UnmarshalText is the inverse of MarshalText.
func (s *ServerID) UnmarshalText(text []byte) error {
	b, err := hex.AppendDecode(nil, text)
	*s = ServerID(b)
	return err
}

// Health is what an xDS control plane says of the health of a member; empty: healthy, or not known.
type Health string

// What is not healthy. Those that are unhealthy or draining get no new flows, unless their level panics. Draining ones
// do not count when the health of a level is computed, and degraded ones get what healthy ones cannot take.
const (
	Degraded  Health = "degraded"
	Unhealthy Health = "unhealthy"
	Draining  Health = "draining"
)

// A Locality is where a member is. Its members together get flows by its weight, where the group says so.
type Locality struct {
	Name   string `json:",omitempty"`
	Weight uint32 `json:",omitempty"` // 0: none; its members get no flows while others have weights
}

// A Policy is how flows are spread over the levels of a group that finds its members in xDS.
type Policy struct {
	Factor int  `json:",omitempty"` // the overprovisioning factor, in percent; 0: 140
	Weigh  bool `json:",omitempty"` // members count by their weights
}

// MaxMetadata bounds the metadata of a member.
const MaxMetadata = 1 << 10

// maxTargets is the maximum number of members in one answer; the rest is left out.
const maxTargets = 1 << 16

// maxPriority is the greatest priority of a member.
const maxPriority = 1<<16 - 1

// A watch is a lookup that is repeated. Groups share it. The fields after cancel are guarded by
// the Set's lock.
type watch struct {
	query        spec.Discover
	text, named  string          // queryText and namedText of query
	answered     chan struct{}   // closed after the first answer, good or bad
	ended        <-chan struct{} // closed when no group needs the watch any more
	cancel       context.CancelFunc
	targets      []Target
	answeredOK   bool // there was a good answer
	err          error
	answeredAt   time.Time // when the last answer came
	goodAt       time.Time // when the last good answer came
	leftOut      int       // members of the last good answer that were left out
	counts       *counts.Row
	restored     bool        // the targets are those of the process before, and answered is closed
	missingTimer *time.Timer // removes the members of a name that does not exist; nil: it exists
	doubt        *doubt      // nil: the last good answer is believed
}

// A LookupEvent is a change of a lookup's result.
type LookupEvent struct {
	Groups  []string
	Name    string
	Err     error // nil: the lookup works again
	Missing bool  // DNS says that the name does not exist or has no address; otherwise the lookup failed
	Members int   // present number of members
	LeftOut int   // members left out because of Lookups.MaxMembers
	Removed bool  // the members were removed, because the answer has been so for Lookups.Keep
	// Vanished is how many members the last answer no longer has, if they are so many that they
	// stay: see spec.Lookups.Vanish.
	Vanished int
}

// lookupOf returns the lookup of a member whose endpoint has a name.
func lookupOf(cfg *spec.Group, e spec.Endpoint) spec.Discover {
	return spec.Discover{Network: e.Kind, Host: e.Host, Port: e.Port, Lookups: cfg.Lookups}
}

// lookupKey returns the part of d that is looked up, without what is done with the answer.
func lookupKey(cfg *spec.Group, d spec.Discover) spec.Discover {
	d.Weight, d.MaxFlows, d.Lookups = 0, 0, cfg.Lookups
	return d
}

// lookups returns all lookups of a group.
func lookups(cfg *spec.Group) (ds []spec.Discover) {
	for _, m := range cfg.Members {
		if _, ok := m.To.Literal(); !ok {
			ds = append(ds, lookupOf(cfg, m.To))
		}
	}
	for _, d := range cfg.Discover {
		ds = append(ds, lookupKey(cfg, d))
	}
	return ds
}

// lookupName returns the name of a lookup, for messages.
func lookupName(d spec.Discover) string { return d.String() }

// watch begins a lookup. The caller holds s.mu.
func (s *Set) watch(d spec.Discover) *watch {
	ctx, cancel := context.WithCancel(s.ctx)
	w := &watch{query: d, text: queryText(d), named: namedText(d), answered: make(chan struct{}), ended: ctx.Done(), cancel: cancel, counts: s.countLookup(lookupName(d))}
	w.restore(s.saved, time.Now())
	w.restoreFromDisk(s, time.Now())
	finder := s.opt.Discoverer(d)
	s.start(func() {
		finder.Watch(ctx, func(targets []Target, err error) { s.applyAnswer(ctx, w, targets, err) })
	})
	return w
}

// inherit takes over the members of a watch that looks up the same with other settings, or that looked
// it up in the same registry before its servers or credentials changed, so that a reload removes no
// members. The caller holds the Set's lock.
func (w *watch) inherit(from map[spec.Discover]*watch) {
	var named *watch
	for _, old := range from {
		switch {
		case old == w || !old.answeredOK:
		case old.text == w.text:
			w.answeredOK, w.targets, w.goodAt = true, old.targets, old.goodAt
			return
		case old.named == w.named && w.named != "":
			named = old
		}
	}
	if named != nil {
		w.answeredOK, w.targets, w.goodAt = true, named.targets, named.goodAt
	}
}

// applyAnswer applies an answer to a watch.
//
// A good answer lists the members. If the answer is that the name does not exist, its members stay
// for Lookups.Keep, because that may be a mistake that is soon corrected. If the lookup failed,
// they stay.
func (s *Set) applyAnswer(ctx context.Context, w *watch, targets []Target, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	was, err := w.err, s.opt.Explain(err)
	if w.answeredAt.IsZero() && !w.restored {
		close(w.answered)
	}
	now := time.Now()
	w.answeredAt, w.err = now, err
	if err != nil {
		w.doubt.pause()
		w.counts.Words()[lookupFailuresAt].Add(1)
		missing := isMissing(err)
		if was == nil || missing != isMissing(was) || isDoubt(was) {
			s.notifyLookup(w, LookupEvent{Err: err, Missing: missing})
		}
		if !missing && w.missingTimer != nil {
			// Nobody says any more that the name does not exist.
			w.missingTimer.Stop()
			w.missingTimer = nil
		}
		if missing && w.missingTimer == nil && len(w.targets) > 0 && w.query.Lookups.Keep > 0 {
			w.missingTimer = s.after(w.query.Lookups.Keep, func(now time.Time) { s.removeMissing(ctx, w, now) })
		}
		return
	}
	if w.missingTimer != nil {
		w.missingTimer.Stop()
		w.missingTimer = nil
	}
	most := maxTargets
	if n := w.query.Lookups.MaxMembers; n > 0 {
		most = min(most, n)
	}
	cut := max(0, len(targets)-most)
	targets = targets[:len(targets)-cut]
	targets, vanished := s.judge(ctx, w, targets)
	change := was != nil && vanished == 0 || vanished > 0 && !isDoubt(was) || cut > 0 && w.leftOut == 0
	w.leftOut = cut
	if vanished == 0 {
		w.goodAt = now
	}
	if !w.answeredOK || !slices.Equal(targets, w.targets) {
		w.answeredOK, w.targets = true, targets
		s.touch()
		s.answersRevision.Add(1)
		s.refresh(w, now, "found by "+lookupName(w.query))
	}
	if change {
		s.notifyLookup(w, LookupEvent{Err: w.err, LeftOut: cut, Vanished: vanished})
	}
}

// removeMissing removes the members of a name that has been missing for too long. The caller holds
// s.mu.
func (s *Set) removeMissing(ctx context.Context, w *watch, now time.Time) {
	if ctx.Err() != nil || w.missingTimer == nil {
		return
	}
	w.missingTimer, w.targets, w.leftOut, w.doubt = nil, nil, 0, nil
	s.answersRevision.Add(1)
	s.refresh(w, now, "found by "+lookupName(w.query))
	s.notifyLookup(w, LookupEvent{Err: w.err, Missing: true, Removed: true})
}

// isMissing reports whether an error is DNS's answer that a name does not exist or has no address,
// and not a failed lookup.
func isMissing(err error) bool {
	var no *net.DNSError
	return errors.Is(err, errNoAddress) || errors.As(err, &no) && no.IsNotFound
}

// refresh updates the groups that use a watch. The caller holds s.mu.
func (s *Set) refresh(w *watch, now time.Time, why string) {
	for _, g := range s.users(w) {
		g.refresh(now, why, false)
	}
}

// users returns the groups that use a watch. The caller holds s.mu.
func (s *Set) users(w *watch) (list []*Group) {
	for _, g := range *s.groups.Load() {
		if slices.ContainsFunc(g.entries, func(e entry) bool { return e.watch == w }) {
			list = append(list, g)
		}
	}
	return list
}

// notifyLookup reports a change of a watch. The caller holds s.mu.
func (s *Set) notifyLookup(w *watch, e LookupEvent) {
	if s.opt.LookupChanged == nil {
		return
	}
	e.Name, e.Members = lookupName(w.query), len(w.targets)
	for _, g := range s.users(w) {
		e.Groups = append(e.Groups, g.name)
	}
	slices.Sort(e.Groups)
	s.jobs.add(func() { s.opt.LookupChanged(e) })
}
