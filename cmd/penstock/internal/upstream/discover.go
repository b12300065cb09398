package upstream

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// Discoverer finds members and keeps finding them.
type Discoverer interface {
	// Watch calls update with all members that there are now, at the start and
	// whenever they change, and with an error when it cannot tell; then those of
	// the last good answer stay. The slice belongs to the Set from then on. Watch
	// returns when ctx ends.
	Watch(ctx context.Context, update func([]Target, error))
}

// Target is a member that was discovered.
type Target struct {
	Name   string // empty: the address's URL
	Addr   relay.Addr
	Weight int // 1 to 256; what the file says goes before
	Backup bool
}

// maxTargets bounds what one answer may have; more are dropped.
const maxTargets = 4096

// watch is one look-up that goes on. Groups share it. What follows cancel is
// guarded by the Set's lock.
type watch struct {
	query        spec.Discover
	answered     chan struct{}   // closed after the first answer, good or not
	ended        <-chan struct{} // closed when nobody wants it any more
	cancel       context.CancelFunc
	targets      []Target
	answeredOK   bool // there was a good answer
	err          error
	answeredAt   time.Time // of the last answer
	leftOut      int       // members of the last good answer that were left out
	failures     uint64
	missingTimer *time.Timer // ends the members of a name that is not there; nil: it is there
}

// LookupEvent is a change of what is known of a name.
type LookupEvent struct {
	Groups  []string
	Name    string
	Err     error // nil: it is well again
	Missing bool  // DNS says that there is no such name, or no address; else it cannot be asked
	Members int   // that it has now
	LeftOut int   // members that were left out, beyond Lookups.MaxMembers
	Removed bool  // the members are removed, for the name has been missing for Lookups.Keep
}

// lookupOf is the look-up of a member whose endpoint has a name.
func lookupOf(cfg *spec.Group, e spec.Endpoint) spec.Discover {
	return spec.Discover{Network: e.Kind, Host: e.Host, Port: e.Port, Lookups: cfg.Lookups}
}

// lookupKey is what of d is asked; the rest is what becomes of the answer.
func lookupKey(cfg *spec.Group, d spec.Discover) spec.Discover {
	d.Weight, d.MaxFlows, d.Lookups = 0, 0, cfg.Lookups
	return d
}

// lookups are all look-ups of a group.
func lookups(cfg *spec.Group) (ds []spec.Discover) {
	for _, m := range cfg.Members {
		if _, ok := Literal(m.To); !ok {
			ds = append(ds, lookupOf(cfg, m.To))
		}
	}
	for _, d := range cfg.Discover {
		ds = append(ds, lookupKey(cfg, d))
	}
	return ds
}

// lookupName is what is looked up, for messages.
func lookupName(d spec.Discover) string {
	if d.Service != "" {
		return d.Service
	}
	return spec.Endpoint{Kind: d.Network, Host: d.Host, Port: d.Port}.String()
}

// watch begins a look-up. Under the lock.
func (s *Set) watch(d spec.Discover) *watch {
	ctx, cancel := context.WithCancel(s.ctx)
	w := &watch{query: d, answered: make(chan struct{}), ended: ctx.Done(), cancel: cancel}
	finder := s.opt.Discoverer(d)
	s.start(func() {
		finder.Watch(ctx, func(targets []Target, err error) { s.applyAnswer(ctx, w, targets, err) })
	})
	return w
}

// inherit gives a new watch the members of one that asks for the same in another way, so
// that a reload takes nobody away. Under the lock.
func (w *watch) inherit(from map[spec.Discover]*watch) {
	asked := func(d spec.Discover) spec.Discover {
		d.Every, d.Lookups = 0, spec.Lookups{}
		return d
	}
	for d, old := range from {
		if old != w && old.answeredOK && asked(d) == asked(w.query) {
			w.answeredOK, w.targets = true, old.targets
			return
		}
	}
}

// found is the update of a watch.
//
// An answer, "there is no such name" is one, says what members there are; members of a name
// that is missing stay for Lookups.Keep, for that may be a mistake that is soon
// corrected. No answer says nothing: members stay.
func (s *Set) applyAnswer(ctx context.Context, w *watch, targets []Target, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	first, was := w.answeredAt.IsZero(), w.err
	if first {
		close(w.answered)
	}
	now := time.Now()
	w.answeredAt, w.err = now, err
	if err != nil {
		w.failures++
		missing := isMissing(err)
		if was == nil || missing != isMissing(was) {
			s.notifyLookup(w, LookupEvent{Err: err, Missing: missing})
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
	change := was != nil || cut > 0 && w.leftOut == 0
	w.leftOut = cut
	if !w.answeredOK || !slices.Equal(targets, w.targets) {
		w.answeredOK, w.targets = true, targets
		s.refresh(w, now, "found by "+lookupName(w.query))
	}
	if change {
		s.notifyLookup(w, LookupEvent{LeftOut: cut})
	}
}

// expire removes the members of a name that has been missing for too long. Under the lock.
func (s *Set) removeMissing(ctx context.Context, w *watch, now time.Time) {
	if ctx.Err() != nil || w.missingTimer == nil {
		return
	}
	w.missingTimer, w.targets, w.leftOut = nil, nil, 0
	s.refresh(w, now, "found by "+lookupName(w.query))
	s.notifyLookup(w, LookupEvent{Err: w.err, Missing: true, Removed: true})
}

// isMissing reports whether an error is DNS's answer that there is no such name or no address
// of it, and not that there is no answer.
func isMissing(err error) bool {
	var no *net.DNSError
	return errors.Is(err, errNoAddress) || errors.As(err, &no) && no.IsNotFound
}

// refresh brings the groups that use a look-up in line with it. Under the lock.
func (s *Set) refresh(w *watch, now time.Time, why string) {
	for _, g := range s.users(w) {
		g.refresh(now, why)
	}
}

// users are the groups that use a look-up. Under the lock.
func (s *Set) users(w *watch) (list []*Group) {
	for _, g := range *s.groups.Load() {
		if slices.Contains(lookups(g.cfg), w.query) {
			list = append(list, g)
		}
	}
	return list
}

// tell tells the owner of a change of a look-up. Under the lock.
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
