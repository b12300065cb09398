package app

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A shutdown is the state of the daemon's end: no new flows are accepted, and open ones continue
// until the deadline.
type shutdown struct {
	requested chan struct{} // closed when an operator asks for it by the API, or the worker before was asked for it and handed over

	mu           sync.Mutex
	once         sync.Once
	ready        bool
	since        time.Time // zero: it has not begun
	deadline     time.Time
	flowsAtStart int64
}

// drain begins the shutdown. The channel receives nil when every flow has ended, or the engine's
// error when the configured deadline has passed.
func (d *daemon) drain() <-chan error {
	most := d.active.Load().Drain
	stats := d.engine.Stats()
	e := &d.shutdown
	e.mu.Lock()
	e.since = time.Now()
	e.deadline = e.since.Add(most)
	e.flowsAtStart = stats.Flows()
	deadline := e.deadline
	e.mu.Unlock()
	d.fleet.changed()
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	drained := make(chan error, 1)
	go func() {
		defer cancel()
		drained <- d.engine.Drain(ctx)
	}()
	return drained
}

// setReady sets the status of the daemon to ready. If announce is true it also logs a line for
// each listener.
func (d *daemon) setReady(announce bool) {
	d.shutdown.mu.Lock()
	d.shutdown.ready = true
	d.shutdown.mu.Unlock()
	d.fleet.changed()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !announce {
		return
	}
	f := d.active.Load()
	for _, l := range f.Listeners {
		upstreams, seen := 0, map[*spec.Group]bool{}
		for _, r := range l.AllRoutes() {
			for g := range r.Groups() {
				if !seen[g] {
					seen[g] = true
					upstreams += d.set.Group(g.Name).Len()
				}
			}
		}
		d.log.Info("ready", "name", l.Name, "listener", d.listensAt(l), "upstreams", upstreams)
	}
}

// listensAt returns the URL of a listener, with its actual port if it is open. The caller holds the lock.
func (d *daemon) listensAt(l *spec.Listener) string {
	if p := d.listening.bound[bindKeyOf(l, 0)]; p != nil {
		return spec.URL(p.Addr(), l.Listen.Ports())
	}
	return l.Listen.String()
}

// Drain begins the shutdown, unless it has begun, like a first signal.
func (d *daemon) Drain() { d.shutdown.once.Do(func() { close(d.shutdown.requested) }) }

// due reports whether an operator has asked for the shutdown by the API, or it was left to this worker.
func (s *shutdown) due() bool {
	select {
	case <-s.requested:
		return true
	default:
		return false
	}
}

// Draining returns the progress of the shutdown.
func (d *daemon) Draining() api.Drain {
	stats := d.engine.Stats()
	e := &d.shutdown
	e.mu.Lock()
	defer e.mu.Unlock()
	state := api.StateReady
	switch {
	case !e.since.IsZero():
		state = api.StateDraining
	case e.ready && d.drained():
		state = api.StateDrained
	case !e.ready:
		state = api.StateStarting
	}
	return api.Drain{State: state, Since: e.since, Deadline: e.deadline, AtStart: e.flowsAtStart, Flows: stats.Flows()}
}

// sameSignal is the time within which a repeated signal does not count as a second one: timeout(1)
// and some managers send one to the process and one to its group. Of a drain that the worker before has left, nobody knows which one it was.
const sameSignal = 200 * time.Millisecond

// drain drains and closes the daemon. s is the signal that began it; nil: a request by the API.
func (l *lifecycle) drain(s os.Signal, signals host.Signals) int {
	cfg, by := l.d.active.Load(), "request"
	if s != nil {
		by = s.String()
	}
	began := time.Now()
	l.keeping.Leaving()
	drained := l.d.drain()
	l.log.Info("draining", "signal", by, "flows", l.d.Draining().AtStart, "deadline", cfg.Drain)
	l.logNotifyError(l.keeping.Manager().Stopping("draining", cfg.Drain))
	code, how := cli.ExitOK, "drained"
wait:
	for {
		select {
		case err := <-drained:
			if err != nil {
				code, how = cli.ExitCut, "deadline passed"
			}
			break wait
		case <-signals.Reopen:
			l.d.reopen()
		case again := <-signals.End:
			if s != nil && again != s || time.Since(began) >= sameSignal {
				code, how = cli.ExitAtOnce, "second signal"
				break wait
			}
		}
	}
	l.stopScreen()
	l.d.engine.Close() // also ends the drain
	l.d.close()        // writes the last records of flows
	stats := l.d.engine.Stats()
	total := stats.Total()
	l.log.Info("ended", "how", how, "accepted", total.Accepted, "bytes", total.BytesWritten)
	return code
}
