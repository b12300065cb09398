package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/logs"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// kept is what goes on in the next worker, apart from flows: what the daemon counts, in memory that the
// keeper holds, and what it knows, in a document that is written when it changes. Without a keeper it
// ends with the process.
type kept struct {
	counts *counts.Memory // nil: in the heap
	values *saved.Values
	file   *saved.Document // nil: nothing is saved
	before savedState

	mu      sync.Mutex // serializes saveState
	members json.RawMessage
	saved   struct { // what was written
		members, events uint64    // revisions
		at              time.Time // of members
	}
}

const labelState = "state"

// openKept returns what the worker before had, or begins anew. Nothing that goes wrong keeps the worker
// from starting.
func (k *keeping) openKept(log *slog.Logger) *kept {
	out := &kept{counts: k.counts, values: saved.NewValues(counts.Heap(saved.ValuesLayout))}
	if k.counts != nil {
		out.values = saved.NewValues(k.counts.Table(saved.ValuesLayout.Name))
	}
	var err error
	if out.file, err = k.document(labelState); err == nil {
		out.before, err = readState(out.file)
	}
	if err != nil {
		log.Warn("what the worker before knew of members cannot be used", "error", err)
	}
	return out
}

// takeKept returns what openKept has returned; without a keeper, what ends with the process.
func (k *keeping) takeKept() *kept {
	if k == nil || k.kept == nil {
		return &kept{values: saved.NewValues(counts.Heap(saved.ValuesLayout))}
	}
	return k.kept
}

// savedState is the document of what the daemon knows. A version that knows more adds fields, and one
// that knows less ignores them.
type savedState struct {
	Version int               `json:"version"`
	Members upstream.SavedSet `json:"members"`
	savedRest
}

// savedRest is the state without what is known about members, which is large where there are many, and
// seldom changes.
type savedRest struct {
	Started time.Time                    `json:"started"` // of the service, not of a worker
	Total   *admit.SavedLimits           `json:"total,omitempty"`
	Limits  map[string]admit.SavedLimits `json:"limits,omitempty"` // by listener
	Events  []api.Event                  `json:"events,omitempty"`
	Failed  *api.FailedReload            `json:"failed_reload,omitempty"` // the last one, if it failed
}

const stateVersion = 1

// readState reads the document that a worker before this one has written.
func readState(d *saved.Document) (s savedState, err error) {
	text, err := d.Read()
	if errors.Is(err, saved.ErrNoDocument) {
		return s, nil
	}
	if err == nil {
		s, err = parseState(text)
	}
	return s, err
}

func parseState(text []byte) (s savedState, err error) {
	if err := json.Unmarshal(text, &s); err != nil {
		return savedState{}, err
	}
	if s.Version != stateVersion {
		return savedState{}, fmt.Errorf("version %d of the state; known: %d", s.Version, stateVersion)
	}
	if s.Started.After(time.Now()) {
		s.Started = time.Time{}
	}
	return s, nil
}

// restoreLimits continues the rates of a listener, once.
func (k *kept) restoreLimits(listener string, g *admit.Controller) {
	if s, ok := k.before.Limits[listener]; ok {
		delete(k.before.Limits, listener)
		g.RestoreLimits(s, time.Now())
	}
}

// restoreTotal continues the rate of all listeners, once.
func (k *kept) restoreTotal(t *admit.Total) {
	if s := k.before.Total; s != nil {
		k.before.Total = nil
		t.RestoreLimits(*s, time.Now())
	}
}

// Intervals of the document: when something has changed, and when not, because the times of checks do
// not count as changes.
const (
	saveInterval = time.Second
	saveAnyway   = 30 * time.Second
	saveLarge    = 256 << 10 // bytes of the text of members, from which on saving is delayed
	saveShare    = 50        // by so many times what the last one took
	saveWait     = 10 * time.Second
)

// The bounds of what is saved in between, and of what is saved when another worker takes over.
const (
	savedSources    = 1 << 16 // of each listener
	allSavedSources = admit.MaxSources
	savedEvents     = 256
)

// saveChanges saves the state whenever it has changed, until the daemon closes.
func (d *daemon) saveChanges() {
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	next := time.Time{}
	for {
		select {
		case <-tick.C:
			if start := time.Now(); !start.Before(next) && d.stateChanged() {
				d.saveState(savedSources)
				next = d.kept.nextSave(start)
			}
		case <-d.closing:
			return
		}
	}
}

// nextSave returns when the next save may begin after one that has ended now: members of large groups
// that change all the time take at most a part of the time.
func (k *kept) nextSave(start time.Time) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if len(k.members) < saveLarge {
		return now
	}
	return now.Add(min(saveShare*now.Sub(start), saveWait))
}

func (d *daemon) stateChanged() bool {
	k := d.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	if d.set.Revision() != k.saved.members || d.events.Last() != k.saved.events || time.Since(k.saved.at) >= saveAnyway {
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

// saveState writes the document. sources bounds the sources of each listener.
func (d *daemon) saveState(sources int) {
	k := d.kept
	if k.file == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now, f := time.Now(), d.active.Load()
	events := d.events.Last()
	err := k.updateMembers(d.set, now, sources == allSavedSources)
	rest := savedRest{Started: d.started, Limits: map[string]admit.SavedLimits{}, Events: d.events.Latest(savedEvents), Failed: d.reloads.lastFailed()}
	if f.total != nil && f.total.Saves() {
		total := f.total.Save(now)
		rest.Total = &total
	}
	for name, p := range f.plans {
		if p.Gate.Saves() {
			rest.Limits[name] = p.Gate.Save(now, sources)
		}
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(struct {
			Version int             `json:"version"`
			Members json.RawMessage `json:"members"`
			savedRest
		}{stateVersion, k.members, rest})
	}
	if err == nil {
		err = k.file.Write(text)
	}
	if err != nil {
		d.log.Warn("the next worker would not know the state of members", "error", err)
		return
	}
	k.saved.events = events
}

// updateMembers encodes what is known about members, if it has changed.
func (k *kept) updateMembers(set *upstream.Set, now time.Time, anyway bool) error {
	revision := set.Revision() // before the reading: what changes meanwhile is written next time
	if revision == k.saved.members && now.Sub(k.saved.at) < saveAnyway && !anyway {
		return nil
	}
	text, err := json.Marshal(set.Save())
	if err == nil {
		k.members, k.saved.members, k.saved.at = text, revision, now
	}
	return err
}

// reportValues reports what is not counted in memory that outlives the process, and returns it.
func (d *daemon) reportValues(s relay.Stats) (relay.Stats, []admin.LogCounters) {
	own, access := d.hooks.Accounting.Dropped()
	return d.kept.values.Engine(s), []admin.LogCounters{{Name: "log", Dropped: own, LeftOut: d.kept.values.GoOn("log.left-out", logs.LeftOut(d.log))}, {Name: "access", Dropped: access}}
}
