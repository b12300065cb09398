package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A nodeDrain is whether the whole relay takes new flows, which an operator of its fleet decides.
//
//	serving ──order──▶ not ready, still accepting ──DrainGrace──▶ listeners closed ──order taken back──▶ serving
//
// Open flows continue in all states. Sockets of the service manager stay open: their clients would wait in a queue
// that nobody empties. So a load balancer in front of such a listener must look whether the relay is ready.
type nodeDrain struct {
	since  time.Time // when the order came; zero: there is none
	timer  *time.Timer
	closed bool                  // the listeners are
	ports  map[string]relay.Addr // of listeners that ask for a free port, which they get again
}

// drainRetry is the time between attempts to open listeners again.
const drainRetry = 5 * time.Second

// drained reports whether the relay takes no new flows because it was ordered so.
func (d *daemon) drained() bool { return d.drainedWord.Load() != 0 }

// setNodeDrain begins or ends the drain of the relay.
func (d *daemon) setNodeDrain(on bool, by, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := &d.nodeDrain
	if on == d.drained() && (!on || !n.since.IsZero()) {
		return
	}
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	if !on {
		n.since = time.Time{}
		d.drainedWord.Store(0)
		d.log.Info("new flows again: the order to drain was taken back")
		d.event(slog.LevelInfo, "drain", "daemon", "new flows again: the order to drain was taken back")
		if n.closed {
			d.openListeners()
		}
		return
	}
	again := d.drained() // the worker before was
	d.drainedWord.Store(1)
	n.since = time.Now()
	message := "no new flows: the fleet's operator has drained this relay"
	if why != "" {
		message += ": " + why
	}
	d.log.Warn(message, "by", by, "listeners_close_in", d.active.Load().Fleet.DrainGrace)
	d.eventBy(by, slog.LevelWarn, "drain", "daemon", message)
	if !again {
		n.timer = d.laterUnlessClosing(d.active.Load().Fleet.DrainGrace, d.closeDrained)
	}
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
		case <-d.closing:
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
	n.closed, n.ports = true, map[string]relay.Addr{}
	stay := map[bindKey]*boundListener{}
	for key, p := range d.bound {
		if key.inherit != "" {
			stay[key] = p
		} else if key.freePortName != "" {
			n.ports[key.freePortName] = p.Addr()
		}
	}
	gone := d.bound
	d.bound = stay
	d.closeListeners(gone, stay)
	d.log.Info("listeners closed, because this relay is drained", "flows", d.engine.Stats().Flows())
}

// openListeners opens the listeners that closeDrained has closed, and tries again if one cannot be opened. The
// caller holds the lock.
func (d *daemon) openListeners() {
	n, f := &d.nodeDrain, d.active.Load()
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	n.closed = false
	bound, err := d.bindListeners(ctx, f.Listeners)
	if err != nil {
		n.closed = true
		d.closeListeners(bound, d.bound)
		d.log.Error("listeners cannot be opened again; another attempt follows", "error", err)
		d.event(slog.LevelError, "drain", "daemon", "listeners cannot be opened again: "+err.Error())
		n.timer = d.laterUnlessClosing(drainRetry, func() {
			if !d.drained() && n.closed {
				d.openListeners()
			}
		})
		return
	}
	d.bound = bound
	for _, l := range f.Listeners {
		d.usePlan(l, f.plans[l.Name], bound)
	}
	n.ports = nil
}

// usePlan gives the sockets of a listener their plan, and makes them accept. Those that are closed have none.
func (d *daemon) usePlan(l *spec.Listener, plan *listenerPlan, bound map[bindKey]*boundListener) {
	for _, b := range bindKeysOf(l) {
		p := bound[b]
		if p == nil {
			continue
		}
		p.plan.Store(plan)
		if err := p.Update(d.listenConfig(l, p)); err != nil {
			d.log.Warn("socket option not changed before the next start", "listener", p.Addr().String(), "error", err)
		}
	}
}
