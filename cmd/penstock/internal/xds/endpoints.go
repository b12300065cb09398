package xds

import (
	"context"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// Times of a watch. What comes within the interval is merged; an assignment that does not change is confirmed
// while the stream works, so that its age is known.
const (
	minInterval = 100 * time.Millisecond
	heartbeat   = 30 * time.Second
)

// Endpoints has the assignments of a client. Each is asked for as long as somebody watches it.
type Endpoints struct {
	t *ads.Subscription

	mu     sync.Mutex
	failed error // of the stream; nil: it works
	byName map[string]*assignments
	// changed, if not nil, is called after the first answer about a name.
	changed func()
}

// assignments is what is known of one name.
type assignments struct {
	watches  map[*watch]bool
	held     bool // by hold
	answered bool
	latest   *Assignment // nil: none yet; without members after it was removed
	err      error       // it was refused; nil: it was not
	cache    endpointCache
}

// A watch is signalled when there is something new.
type watch struct{ signal chan struct{} }

// NewEndpoints returns the assignments of a client, which can have one Endpoints.
func NewEndpoints(c *ads.Client) *Endpoints {
	e := &Endpoints{byName: map[string]*assignments{}}
	e.t = c.Subscribe(ads.Type{URL: endpointsURL, Handle: e.handle, Failed: e.streamFailed})
	return e
}

// Watch calls update with the assignment of that name, at the start if it is known and whenever it
// changes, and with an error when it cannot be had; what was known before then still holds. An assignment that
// the control plane has removed has no members. It returns when ctx ends.
func (e *Endpoints) Watch(ctx context.Context, name string, update func(*Assignment, error)) {
	w := &watch{make(chan struct{}, 1)}
	e.mu.Lock()
	a := e.need(name)
	a.watches[w] = true
	if a.latest != nil || a.err != nil || e.failed != nil {
		w.signal <- struct{}{}
	}
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(a.watches, w)
		e.release(name, a)
	}()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-w.signal:
		case <-beat.C:
		case <-ctx.Done():
			return
		}
		e.mu.Lock()
		latest, err := a.latest, a.err
		if e.failed != nil {
			err = e.failed
		}
		e.mu.Unlock()
		switch {
		case err != nil:
			update(nil, err)
		case latest != nil:
			update(latest, nil)
		}
		if remote.Sleep(ctx, minInterval) != nil {
			return
		}
	}
}

// need returns what is known of a name, and asks for it. The caller holds the lock.
func (e *Endpoints) need(name string) *assignments {
	a := e.byName[name]
	if a == nil {
		a = &assignments{watches: map[*watch]bool{}, cache: endpointCache{}}
		e.byName[name] = a
		e.t.Add(name)
	}
	return a
}

// release forgets a name that nobody needs. The caller holds the lock.
func (e *Endpoints) release(name string, a *assignments) {
	if len(a.watches) == 0 && !a.held && e.byName[name] == a {
		delete(e.byName, name)
		e.t.Remove(name)
	}
}

// hold asks for these names, and no longer for those that it was given before; groups watch them later. It
// reports how many have not been answered.
func (e *Endpoints) hold(names []string) (missing int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
		a := e.need(name)
		a.held = true
		if !a.answered {
			missing++
		}
	}
	for name, a := range e.byName {
		if a.held && !wanted[name] {
			a.held = false
			e.release(name, a)
		}
	}
	return missing
}

// handle takes a response. An assignment is taken or refused by itself: members change whenever they do.
func (e *Endpoints) handle(r *ads.Response) error {
	var errs assembleErrors
	first := false
	e.mu.Lock()
	for _, res := range r.Resources {
		a := e.byName[res.Name]
		if a == nil || res.Empty() {
			continue // not needed any more, or a sign of life
		}
		parsed, err := parseAssignmentResource(res, a.cache)
		first = first || !a.answered
		a.answered = true
		if a.err = err; err == nil {
			a.latest = parsed
		} else {
			errs = append(errs, resourceError{endpointsURL, res.Name, problemsOf(err)})
		}
		a.notify()
	}
	for _, name := range r.Removed {
		if a := e.byName[name]; a != nil {
			first = first || !a.answered
			a.answered, a.latest, a.err = true, &Assignment{Name: name}, nil
			a.notify()
		}
	}
	changed := e.changed
	e.mu.Unlock()
	if len(errs) > 0 {
		r.Reply(errs)
	} else {
		r.Reply(nil)
	}
	if first && changed != nil {
		changed()
	}
	return nil
}

func problemsOf(err error) []Problem {
	if p, ok := err.(problems); ok {
		return p
	}
	return []Problem{{"", err.Error()}}
}

func (a *assignments) notify() {
	for w := range a.watches {
		select {
		case w.signal <- struct{}{}:
		default:
		}
	}
}

// streamFailed notes that the stream has failed, or that it works again.
func (e *Endpoints) streamFailed(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed = err
	for _, a := range e.byName {
		a.notify()
	}
}
