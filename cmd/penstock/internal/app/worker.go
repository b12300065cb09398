package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/budget"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/hold"
)

// handOverTimeout bounds how long a worker takes to make room for another one. If it takes longer, the
// keeper kills it, and the flows continue as after a crash.
const handOverTimeout = 5 * time.Second

// restore continues the flows of the worker before this one, and tells what became of them. Without a keeper there are none.
func (d *daemon) restore() error {
	k := d.keeping
	cause := d.deathBefore()
	r, err := d.engine.Restore(relay.RestoreConfig{Listener: d.goneListener})
	switch {
	case errors.Is(err, errors.ErrUnsupported) && k.First():
		return nil
	case err != nil:
		return fmt.Errorf("restore flows: %w", err)
	}
	crashed := d.hooks.Accounting.Counters().Settle(d.liveVolumes)
	if k.First() {
		return nil
	}
	// Of the lost flows, those whose state could be decoded have ended in their series; the others are
	// among those that Settle has counted, with the flows that were not settled.
	undecoded := int64(r.TotalLost()) - (d.hooks.Reentered() - int64(r.Flows+r.Ended))
	tls, unsettled := d.hooks.TLS.Settle(max(0, crashed-max(0, undecoded)))
	r.Lost.Add(hold.LossTLS, tls)
	r.Lost.Add(hold.LossUnsettled, unsettled)
	w := api.WorkerStart{
		Time: time.Now(), Reason: k.Started().Reason.String(), Cause: cause, Version: version(),
		Pause:         k.Start().Downtime.Seconds(),
		RestoredFlows: api.RestoredFlows{Restored: int64(r.Flows), Holding: int64(r.Holding), Bytes: r.Bytes},
	}
	for l, n := range r.Lost.All() {
		if n > 0 {
			w.Lost = append(w.Lost, api.LostFlows{Reason: l.String(), Count: n})
		}
	}
	young := k.DiedYoung()
	k.AddStart(&w)
	d.tellStart(&w, young)
	d.saveState(savedSources) // the event, should this worker die soon, too
	d.flows.ScheduleEnds()
	return nil
}

// deathBefore says how the worker before this one has ended. That it was the kernel's OOM killer shows in the count of those that it has
// killed in the control group, which each worker leaves to the next one.
func (d *daemon) deathBefore() string {
	died := d.keeping.Started().Died
	kills, ok := budget.OOMKills("/")
	if !ok {
		return died.String()
	}
	before := d.keeping.Values.Word("oom-kills").Swap(kills + 1) // 0: it has not counted
	// The kernel does not say whom it has killed: a signal 9 that the keeper did not send, while the group's count has grown, is taken for
	// it (628b1bd).
	if died.Signal == int(syscall.SIGKILL) && died.Why == "" && before != 0 && kills >= before {
		died.Why = "the kernel's OOM killer"
	}
	return died.String()
}

// tellStart logs the start of a worker after the first one. young is what diedYoung has reported.
func (d *daemon) tellStart(w *api.WorkerStart, young bool) {
	message, level := "", slog.LevelInfo
	switch w.Reason {
	case "crash":
		message, level = "worker restarted after "+w.Cause, slog.LevelWarn
		if young {
			message += ", soon after it had taken over for a change of the configuration"
		}
	case "upgrade":
		message = "upgraded to " + w.Version
	case "rollback":
		message, level = "upgrade undone: the worker ended with "+w.Cause, slog.LevelWarn
	default:
		message = "worker replaced"
	}
	verb := "continue"
	if w.Restored == 1 {
		verb = "continues"
	}
	told := fmt.Sprintf("%s: %s %s, %d lost, %.2f s without traffic", message, config.Counted(int(w.Restored), "flow"), verb, w.TotalLost(), w.Pause)
	attrs := []any{"reason", w.Reason, "cause", w.Cause, "flows", w.Restored, "holding", w.Holding, "held_bytes", w.Bytes, "lost", w.TotalLost(), "pause", time.Duration(w.Pause * float64(time.Second))}
	for _, l := range w.Lost {
		attrs = append(attrs, "lost_"+l.Reason, l.Count)
	}
	d.log.Log(context.Background(), level, told, attrs...)
	d.log.event(level, "worker", "daemon", told)
}

// goneListener returns the configuration for flows of a listener that the configuration no longer has.
func (d *daemon) goneListener(string) (relay.ListenConfig, bool) {
	return relay.ListenConfig{Hooks: d.hooks.Funcs(), Value: &hooks.Socket{}}, true
}

// liveVolumes calls add with what open flows have moved so far.
func (d *daemon) liveVolumes(add func(*account.Series, account.Volume, account.Volume)) {
	hooks.EachFlow(d.engine, func(f *relay.FlowInfo, p *hooks.State) {
		if s := p.Series(); s != nil {
			add(s, hooks.Moved(&f.Up), hooks.Moved(&f.Down))
		}
	})
}

// serveKeeper tells the keeper that this worker runs, and from time to time that its loops answer. The
// channel receives when the keeper wants another worker to take over.
func (d *daemon) serveKeeper() <-chan struct{} {
	k := d.keeping
	if !k.Present() {
		return nil
	}
	handOver := make(chan struct{}, 1)
	k.OnHandOver(func() { handOver <- struct{}{} })
	if err := k.Ready(); err != nil {
		d.log.Warn("cannot tell the keeper that the worker is ready", "error", err)
	}
	d.background.Go(d.heartbeat)
	d.background.Go(d.watchKeeper)
	d.mu.Lock()
	lacks := strings.Join(d.shortfall.lacks, "; ")
	d.mu.Unlock()
	if lacks != "" && k.Unplanned() {
		d.background.Go(func() { d.makeGood("crash", lacks) })
	}
	return handOver
}

// heartbeatInterval is how often the loops are asked whether they are alive, unless the watchdog's limit
// is so short that it must be more often.
const heartbeatInterval = time.Second

// heartbeat tells the keeper that the loops answer, until the daemon closes. It asks all of them, so
// that one that hangs is noticed.
func (d *daemon) heartbeat() {
	var failures keepFailures
	_, lingered := d.keeping.Lingering()
	for {
		lingered = d.tellLingered(lingered)
		stats := d.engine.Stats()
		d.keeping.Alive()
		d.reportValues(stats)
		total := stats.Total()
		if text, level := failures.noteErrors(total.KeepErrors, time.Now()); text != "" {
			s := d.keeping.Stats()
			d.log.Log(context.Background(), level, text, "descriptors", s.Descriptors, "most_descriptors", s.MaxDescriptors, "items", s.Items, "most_items", s.MaxItems)
			d.log.event(level, "worker", "daemon", text)
		}
		every := heartbeatInterval
		if cfg := d.active.Load().Keeper; cfg != nil && cfg.Watchdog > 0 {
			every = min(every, cfg.Watchdog/4)
		}
		select {
		case <-time.After(every):
		case <-d.background.closing:
			return
		}
	}
}

// keepFailures knows whether the keeper refuses to hold flows.
type keepFailures struct {
	looked bool
	errors int64
	last   time.Time // zero: it does not
}

// calmAfter is how long nothing must be refused until all is well again: a loop tries again every ten seconds.
const calmAfter = 30 * time.Second

// noteErrors takes the number of errors so far and returns what is to be told, or an empty text.
func (r *keepFailures) noteErrors(errors int64, now time.Time) (text string, level slog.Level) {
	more := errors > r.errors && r.looked
	r.errors, r.looked = errors, true
	switch {
	case more && r.last.IsZero():
		text, level = "some flows are not held, and would end with this worker", slog.LevelWarn
		r.last = now
	case more:
		r.last = now
	case !r.last.IsZero() && now.Sub(r.last) >= calmAfter:
		text, level = "all flows are held again", slog.LevelInfo
		r.last = time.Time{}
	}
	return text, level
}

// watchKeeper tells when the keeper is gone.
func (d *daemon) watchKeeper() {
	select {
	case <-d.keeping.Lost():
		const told = "the keeper is gone: flows end with this process, and it cannot be upgraded"
		d.log.Error(told)
		d.log.event(slog.LevelError, "worker", "daemon", told)
	case <-d.background.closing:
	}
}

// lastAnswers bounds how long the last answers of the admin server may take while nobody relays.
const lastAnswers = 50 * time.Millisecond

// lastReload bounds how long a hand-over waits for the answer to the reload, or the change of a member, that has asked for it.
const lastReload = time.Second

// lastRequest bounds how long a hand-over waits for a collector to answer. If it has not, the next worker sends these records of flows again.
const lastRequest = time.Second

// handOver makes room for another worker: flows and sockets are left to it. It reports false if the flows cannot be
// handed over, so that they would be lost: then this worker goes on, and the keeper is told. Reloads that were asked for meanwhile, and
// a drain, are the next worker's.
func (l *lifecycle) handOver(signals host.Signals) bool {
	l.d.handingOver.Store(true)
	tls, linger := l.d.hooks.TLS.Now(), l.d.lingers()
	l.log.Info("handing over to another worker"+tlsEndText(tls, linger), "tls_flows", tls)
	l.keeping.SetLinger(linger > 0)
	ctx, cancel := context.WithTimeout(context.Background(), handOverTimeout)
	defer cancel()
	l.d.hooks.Accounting.Pause(lastRequest) // flows go on meanwhile
	if err := l.d.saveEnded(); err != nil { // flows that end from now on are not in the next worker's list
		l.log.Warn("the next worker does not know the flows that ended last", "error", err)
	}
	for until := time.Now().Add(lastReload); l.d.server != nil && l.d.server.Changing() && time.Now().Before(until); {
		time.Sleep(time.Millisecond) // flows go on meanwhile
	}
	l.d.hooks.TLS.HandingOver(true)
	if err := l.d.engine.HandOver(ctx); err != nil {
		l.d.hooks.TLS.HandingOver(false)
		l.d.hooks.Accounting.Continue()
		l.d.handingOver.Store(false)
		l.d.stay(err)
		if l.d.reloads.all().Due {
			l.reload("it was left to another worker")
		}
		return false
	}
	l.stopScreen()
	l.d.closeAdmin(lastAnswers)
	signals.Settle()
	select {
	case <-signals.Reload:
		l.d.reloads.count(true)
	default:
	}
	select {
	case <-signals.End:
		l.d.Drain() // by the next worker
	default:
	}
	l.d.saveState(allSavedSources)
	l.d.hooks.Accounting.Leave()
	if n := l.d.engine.Stats().Flows(); linger == 0 || n == 0 {
		linger = 0
	}
	var err error
	if linger > 0 {
		err = l.keeping.Linger(linger, l.d.active.Load().Keeper.MaxLingering)
	} else {
		err = l.keeping.HandedOver()
	}
	if err != nil {
		l.log.Warn("hand over", "error", err)
	}
	l.lingers = linger
	return true
}

// tlsEndText says what a hand-over does to n flows with TLS, of a worker that lingers for so long; empty: there are none.
func tlsEndText(n int64, linger time.Duration) string {
	if n == 0 {
		return ""
	}
	text := "; " + config.Counted(int(n), "flow") + " whose TLS ends or begins here will end"
	if linger > 0 {
		text += " after " + linger.String() + ", when the present worker does"
	}
	return text
}

// stay keeps this worker, because it cannot hand over.
func (d *daemon) stay(why error) {
	d.log.Error("this worker goes on, because it cannot hand over", "error", why)
	d.log.event(slog.LevelError, "worker", "daemon", "this worker goes on, because it cannot hand over: "+why.Error())
	if err := d.keeping.Stay(why.Error()); err != nil {
		d.log.Warn("cannot tell the keeper that the worker goes on", "error", err)
	}
}
