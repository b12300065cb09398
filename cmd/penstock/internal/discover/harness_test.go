package discover

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/internal/testnet"
)

// patience is how long a test waits for what must happen.
const patience = testnet.Patience

// A watched is a source whose reports a test reads.
type watched struct {
	t       *testing.T
	mu      sync.Mutex
	reports               // so far: until's ok reads them, and everybody else those that seen returns
	told    chan struct{} // closed at the next report

	patience time.Duration // 0: the usual
}

type reports struct {
	// What was told last; have: there was a list.
	list   []upstream.Target
	have   bool
	err    error
	lists  int
	errors int
	wrong  []string
	six    bool // some list had an IPv6 address
}

func (w *watched) seen() reports {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reports
}

// watchFor watches a lookup in a network in memory until the test ends, which must be in a bubble of testing/synctest.
func watchFor(t *testing.T, network *testnet.Network, d spec.Discover) *watched {
	t.Helper()
	w := newWatched(t)
	opt := Options{dial: network.DialContext, LeftOut: func(_ spec.Discover, problem string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wrong = append(w.wrong, problem)
		w.touch()
	}}
	w.run(New(opt).Discoverer(d))
	return w
}

func newWatched(t *testing.T) *watched { return &watched{t: t, told: make(chan struct{})} }

// run watches a source until stop is called, or the test ends.
func (w *watched) run(source upstream.Discoverer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		source.Watch(ctx, w.update)
	}()
	stop = func() {
		cancel()
		<-done
	}
	w.t.Cleanup(stop)
	return stop
}

func (w *watched) touch() {
	close(w.told)
	w.told = make(chan struct{})
}

func (w *watched) update(list []upstream.Target, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err = err; err == nil {
		w.list, w.have = list, true
		w.six = w.six || slices.ContainsFunc(list, func(t upstream.Target) bool { return t.Addr.AddrPort.Addr().Is6() })
		w.lists++
	} else {
		w.errors++
	}
	w.touch()
}

// until waits until ok, which is called with the lock held, says so.
func (w *watched) until(what string, ok func() bool) {
	w.t.Helper()
	late := time.After(cmp.Or(w.patience, patience))
	w.mu.Lock()
	defer w.mu.Unlock()
	for !ok() {
		told := w.told
		w.mu.Unlock()
		select {
		case <-told:
			w.mu.Lock()
		case <-late:
			w.mu.Lock()
			w.t.Fatalf("%s: still not after %v: %q, error %v, wrong %q", what, patience, showTargets(w.list), w.err, w.wrong)
		}
	}
}

// wants waits for members, written as showTargets does.
func (w *watched) wants(want string) {
	w.t.Helper()
	w.until("members "+want, func() bool { return w.have && w.err == nil && showTargets(w.list) == want })
}

// fails waits for an error, which must have a part.
func (w *watched) fails(part string) {
	w.t.Helper()
	w.until("an error with "+part, func() bool { return w.err != nil && strings.Contains(w.err.Error(), part) })
}

// keeps checks that the members of the last list are still these.
func (w *watched) keeps(want string) {
	w.t.Helper()
	if got := showTargets(w.seen().list); got != want {
		w.t.Errorf("members %q, want %q", got, want)
	}
}

// showTargets writes members with what is unusual about them.
func showTargets(list []upstream.Target) string {
	var parts []string
	for _, t := range list {
		s := t.Addr.AddrPort.String()
		if t.Weight != 1 {
			s += fmt.Sprintf("*%d", t.Weight)
		}
		if t.Zone != "" {
			s += "@" + t.Zone
		}
		if t.Draining {
			s += " draining"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ", ")
}
