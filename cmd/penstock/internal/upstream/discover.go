package upstream

import (
	"context"
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
	answered chan struct{}   // closed after the first answer, good or not
	ended    <-chan struct{} // closed when nobody wants it any more
	cancel   context.CancelFunc
	targets  []Target
	good     bool // there was a good answer
	err      error
	at       time.Time // of the last answer
}

// lookupOf is the look-up of a member whose endpoint has a name.
func lookupOf(e spec.Endpoint) spec.Discover {
	return spec.Discover{Network: e.Kind, Host: e.Host, Port: e.Port}
}

// lookupKey is what of d is asked; the rest is what becomes of the answer.
func lookupKey(d spec.Discover) spec.Discover {
	d.Weight, d.MaxFlows = 0, 0
	return d
}

// lookups are all look-ups of a group.
func lookups(cfg *spec.Group) (ds []spec.Discover) {
	for _, m := range cfg.Members {
		if _, ok := Literal(m.To); !ok {
			ds = append(ds, lookupOf(m.To))
		}
	}
	for _, d := range cfg.Discover {
		ds = append(ds, lookupKey(d))
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
	w := &watch{answered: make(chan struct{}), ended: ctx.Done(), cancel: cancel}
	finder := s.opt.Discoverer(d)
	s.start(func() {
		finder.Watch(ctx, func(targets []Target, err error) { s.found(ctx, d, w, targets, err) })
	})
	return w
}

// found is the update of a watch.
func (s *Set) found(ctx context.Context, d spec.Discover, w *watch, targets []Target, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	if w.at.IsZero() {
		close(w.answered)
	}
	w.at, w.err = now, err
	targets = targets[:min(len(targets), maxTargets)]
	if err != nil || w.good && slices.Equal(targets, w.targets) {
		return
	}
	w.good, w.targets = true, targets
	for _, g := range *s.groups.Load() {
		for _, used := range lookups(g.cfg) {
			if used == d {
				g.refresh(now)
				break
			}
		}
	}
}
