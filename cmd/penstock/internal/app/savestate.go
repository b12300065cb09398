package app

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/logs"
	"github.com/penstock/penstock/relay/stats"
)

// saveInterval is the least time between two savings.
const saveInterval = time.Second

// The bounds of what is saved in between, and of what is saved when another worker takes over.
const (
	savedSources    = 1 << 16 // of each listener
	allSavedSources = admit.MaxSources
	savedEvents     = 256
)

// saveChanges saves the state whenever it has changed, until the daemon closes. It is called when a configuration is the running one: before,
// nobody has taken yet what the worker before has saved, which would be lost if this one could not start.
func (d *daemon) saveChanges() {
	if !d.keeping.SavesState() {
		return
	}
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	next := time.Time{}
	for {
		select {
		case <-tick.C:
			if start := time.Now(); !start.Before(next) && d.stateChanged() {
				d.saveState(savedSources)
				next = d.keeping.NextSave(start)
			}
		case <-d.background.closing:
			return
		}
	}
}

func (d *daemon) stateChanged() bool {
	if d.keeping.StateIsOld(d.set.Revision(), d.log.events.Last()) {
		return true
	}
	f := d.active.Load()
	if f.total != nil && f.total.Saves() {
		return true
	}
	for _, p := range f.plans {
		if p.Gate.Saves() {
			return true
		}
	}
	return false
}

// saveState writes what the daemon knows for the next worker. sources bounds the sources of each listener.
func (d *daemon) saveState(sources int) {
	err := d.keeping.SaveState(d.set, sources == allSavedSources, func(now time.Time) (keeping.Rest, uint64) {
		f, events := d.active.Load(), d.log.events.Last()
		rest := keeping.Rest{Started: d.started, Limits: map[string]admit.SavedLimits{}, Events: d.log.events.Latest(savedEvents), Failed: d.reloads.lastFailed(), Reloads: d.reloads.saved(), Drain: d.shutdown.due(), Bans: d.bans.All(now)}
		rest.Splits, rest.Fleet = d.splits.saved()
		if f.total != nil && f.total.Saves() {
			total := f.total.Save(now)
			rest.Total = &total
		}
		for name, p := range f.plans {
			if p.Gate.Saves() {
				rest.Limits[name] = p.Gate.Save(now, sources)
			}
		}
		return rest, events
	})
	if err != nil {
		d.log.Warn("the next worker would not know the state of members", "error", err)
	}
}

// reportValues reports what is not counted in memory that outlives the process, and returns it.
func (d *daemon) reportValues(s stats.Engine) (stats.Engine, []admin.LogCounters) {
	own, access := d.hooks.Accounting.Dropped()
	return d.keeping.Values.ContinueEngine(s), []admin.LogCounters{{Name: "log", Dropped: own, LeftOut: d.keeping.Values.GoOn("log.left-out", logs.LeftOut(d.log.Logger))}, {Name: "access", Dropped: access}}
}
