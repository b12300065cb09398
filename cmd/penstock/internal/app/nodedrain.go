package app

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A nodeDrain is whether the whole relay takes new flows, which an operator of its fleet decides.
//
//	serving ──order──▶ not ready, still accepting ──DrainGrace──▶ listeners closed ──order taken back──▶ serving
//
// Open flows continue in all states. Sockets of the service manager stay open: their clients would wait in a queue
// that nobody empties. So a load balancer in front of such a listener must look whether the relay is ready.
//
// The next worker goes on with the same state. Flows of UDP have sockets of their own while their listener is closed,
// which end with the worker; so the next one opens that listener for them, and closes it again.
type nodeDrain struct {
	word   *atomic.Int64 // which of the states, which the next worker finds, and anybody may read
	since  time.Time     // when the order came; zero: there is none
	timer  *time.Timer
	closed bool                  // the listeners are
	asked  bool                  // for another worker, because this one cannot open some again
	ports  map[string]relay.Addr // of listeners that ask for a free port, which they get again
}

// The values of nodeDrain.word.
const (
	drainServing   = iota
	drainAccepting // not ready, still accepting
	drainClosed
)

// drainRetry is the time between attempts to open listeners again.
const drainRetry = 5 * time.Second

// drained reports whether the relay takes no new flows because it was ordered so.
func (d *daemon) drained() bool { return d.nodeDrain.word.Load() != drainServing }

// setNodeDrain begins or ends the drain of the relay.
func (d *daemon) setNodeDrain(on bool, by, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := &d.nodeDrain
	if on == d.drained() && (!on || !n.since.IsZero()) { // nothing new, unless it is the worker before that was drained: its order is told here, too
		return
	}
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	if !on {
		n.since = time.Time{}
		d.nodeDrain.word.Store(drainServing)
		d.log.Info("new flows again: the order to drain was taken back")
		d.log.event(slog.LevelInfo, "drain", "daemon", "new flows again: the order to drain was taken back")
		if n.closed {
			d.openListeners()
		}
		return
	}
	again := d.drained() // the worker before was; see goOnDraining
	if !again {
		d.nodeDrain.word.Store(drainAccepting)
	}
	n.since = time.Now()
	message := "no new flows: the fleet's operator has drained this relay"
	if why != "" {
		message += ": " + why
	}
	d.log.Warn(message, "by", by, "listeners_close_in", d.active.Load().Fleet.DrainGrace)
	d.log.eventBy(by, slog.LevelWarn, "drain", "daemon", message)
	if !n.closed {
		n.timer = d.laterUnlessClosing(d.active.Load().Fleet.DrainGrace, d.closeDrained)
	}
}

// goOnDraining goes on with the drain of the worker before, whose flows this one has restored.
func (d *daemon) goOnDraining() {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := &d.nodeDrain
	switch {
	case n.closed:
		n.closed = false
		d.closeDrained()
	case d.drained():
		n.timer = d.laterUnlessClosing(d.active.Load().Fleet.DrainGrace, d.closeDrained)
	}
}

// opensForFlows reports whether a listener that is closed is opened for the flows of the worker before, by the first
// configuration.
func (d *daemon) opensForFlows(l *spec.Listener) bool {
	return l.Listen.Kind == spec.UDP && d.active.Load().since.IsZero()
}

// stopNodeDrain stops the timer, because the daemon closes.
func (d *daemon) stopNodeDrain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.nodeDrain.timer; t != nil {
		t.Stop()
	}
}

// laterUnlessClosing calls f later, with the lock, unless the daemon closes first.
func (d *daemon) laterUnlessClosing(after time.Duration, f func()) *time.Timer {
	return time.AfterFunc(after, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		select {
		case <-d.background.closing:
		default:
			f()
		}
	})
}

// closeDrained closes the listeners, as far as they can be opened again. The caller holds the lock.
func (d *daemon) closeDrained() {
	n := &d.nodeDrain
	if !d.drained() || n.closed {
		return
	}
	n.closed = true
	if n.ports == nil {
		n.ports = map[string]relay.Addr{}
	}
	d.nodeDrain.word.Store(drainClosed)
	stay := map[bindKey]*hooks.Socket{}
	for key, p := range d.listening.bound {
		if key.inherit != "" {
			stay[key] = p
		} else if key.freePortName != "" {
			n.ports[key.freePortName] = p.Addr()
		}
	}
	gone := d.listening.bound
	d.listening.bound = stay
	d.closeListeners(gone, stay)
	d.log.Info("listeners closed, because this relay is drained", "flows", d.engine.Stats().Flows())
}

// openListeners opens the listeners that closeDrained has closed. Those that cannot be opened are tried again later, and
// if it is the sandbox that refuses them, by another worker. The caller holds the lock.
func (d *daemon) openListeners() {
	n, f := &d.nodeDrain, d.active.Load()
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	n.closed = false
	var refused []error
	for _, l := range f.Listeners {
		bound, err := d.bindListeners(ctx, []*spec.Listener{l})
		if err != nil {
			d.closeListeners(bound, d.listening.bound)
			refused = append(refused, err)
			continue
		}
		maps.Copy(d.listening.bound, bound)
		d.usePlan(l, f.plans[l.Name], bound)
	}
	if len(refused) == 0 {
		n.ports = nil
		return
	}
	err := errors.Join(refused...)
	told := strings.ReplaceAll(err.Error(), "\n", "; ")
	d.log.Error("listeners cannot be opened again; another attempt follows", "error", told)
	d.log.event(slog.LevelError, "drain", "daemon", "listeners cannot be opened again: "+told)
	if d.refusedBySandbox(err) && d.keeping.Up() && !n.asked {
		n.asked = true
		d.background.Go(func() { d.makeGood("the end of the drain", told) })
	}
	n.timer = d.laterUnlessClosing(drainRetry, func() {
		if !d.drained() {
			d.openListeners()
		}
	})
}

// usePlan gives the sockets of a listener their plan, and makes them accept. Those that are closed have none.
func (d *daemon) usePlan(l *spec.Listener, plan *hooks.Plan, bound map[bindKey]*hooks.Socket) {
	for _, b := range bindKeysOf(l) {
		p := bound[b]
		if p == nil {
			continue
		}
		p.Plan.Store(plan)
		if err := p.Update(d.listenConfig(l, p)); err != nil {
			d.log.Warn("socket option not changed before the next start", "listener", p.Addr().String(), "error", err)
		}
	}
}
