package app

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/keeper"
)

// lingers returns for how long this worker goes on with the TLS of its flows once it has handed over; 0: they end.
func (d *daemon) lingers() time.Duration { return d.keeping.Lingers(d.active.Load().Keeper) }

// tlsEnds returns how many flows end when this worker hands over, because their TLS ends or begins here.
func (d *daemon) tlsEnds() int64 {
	if d.lingers() > 0 {
		return 0
	}
	return d.hooks.TLS.Now()
}

// lingerLast bounds how long a worker that lingers takes when it is asked to end: for what is on its way to clients, of flows that have ended.
// The keeper kills it after ten seconds (keeper.Config.HandOverTimeout).
const lingerLast = 9 * time.Second

// linger goes on with the TLS of flows that another worker has, until they have ended, the time is over, or the keeper wants this worker
// to end. All else of the daemon is the other worker's, and ends here.
func (l *lifecycle) linger(signals host.Signals, end <-chan struct{}) {
	l.watch.Close()
	l.remotes.Close()
	l.d.leave()
	debug.FreeOSMemory()
	ctx, cancel := context.WithTimeout(context.Background(), l.lingers)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- l.d.engine.Drain(ctx) }()
	how := "their flows have ended"
	for waits := true; waits; {
		select {
		case err := <-drained:
			if err != nil {
				how = "the time is over"
			}
			waits = false
		case <-end: // from the keeper
			how = "it was asked to"
			time.AfterFunc(lingerLast, cancel)
		// Signals come to all processes of a service at once, and are for those that have its flows, which drain them for as long as their
		// configuration says.
		case <-signals.End:
		case <-signals.Upgrade:
		case <-signals.Reload:
		case <-signals.Reopen:
		}
	}
	l.d.engine.Close()
	l.log.Info("a worker that lingered with TLS connections ends", "why", how)
}

// tellLingered tells how a worker that lingered has ended, if that is another one than before.
func (d *daemon) tellLingered(before keeper.Death) keeper.Death {
	_, last := d.keeping.Lingering()
	if last.PID == 0 || last == before {
		return last
	}
	level, told := slog.LevelInfo, fmt.Sprintf("worker %d no longer lingers", last.PID)
	if last.Signal != 0 || last.Code != 0 {
		level, told = slog.LevelWarn, fmt.Sprintf("worker %d, which lingered, has ended with %s: the flows whose TLS it had have ended", last.PID, last)
	}
	d.log.Log(context.Background(), level, told)
	d.log.event(level, "worker", "daemon", told)
	return last
}

// leave ends all that the next worker does from now on.
func (d *daemon) leave() {
	d.memory.budget.Close()
	d.stopNodeDrain()
	d.background.end()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flows.Close()
	d.set.Close()
	d.hooks.Names.Close()
	d.listening.inherited.Close()
}
