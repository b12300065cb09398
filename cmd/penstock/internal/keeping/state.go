package keeping

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/lists"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// A state is what the daemon knows and goes on with in the next worker, apart from flows and counters: a document that is written when
// something changes.
type state struct {
	file   *saved.Document // nil: nothing is saved, and each worker begins anew
	before State
	seen   int64 // Reloads.Number of the worker before when this one began; -1: it is not known

	mu      sync.Mutex // serializes SaveState
	left    bool       // to the next worker
	members json.RawMessage
	saved   struct { // what was written
		members, events uint64    // revisions
		at              time.Time // of members
	}
}

const labelState = earlykeeper.LabelState

// Before returns what the worker before knew.
func (s *state) Before() *State { return &s.before }

// MissedReload reports whether the worker before was asked for a reload after this one had read the configuration, or has left one to it.
func (k *Link) MissedReload() bool {
	now := k.state.before.Reloads
	if k.Unplanned() { // the configuration is that of the worker before
		return now.Due
	}
	return !k.First() && k.state.seen >= 0 && now.Number != k.state.seen
}

// State is the document of what the daemon knows. A version that knows more adds fields, and one
// that knows less ignores them.
type State struct {
	Version int               `json:"version"`
	Members upstream.SavedSet `json:"members"`
	Rest
}

// Rest is the state without what is known about members, which is large where there are many, and
// seldom changes.
type Rest struct {
	Started time.Time                    `json:"started"` // of the service, not of a worker
	Total   *admit.SavedLimits           `json:"total,omitempty"`
	Limits  map[string]admit.SavedLimits `json:"limits,omitempty"` // by listener
	Events  []api.Event                  `json:"events,omitempty"`
	Failed  *api.FailedReload            `json:"failed_reload,omitempty"` // the last one, if it failed
	Reloads Reloads                      `json:"reloads"`
	Drain   bool                         `json:"drain,omitempty"` // the next worker is to drain
	Splits  []Split                      `json:"splits,omitempty"`
	Fleet   []spec.RouteSplits           `json:"fleet_splits,omitempty"`
	Bans    []lists.Ban                  `json:"bans,omitempty"`
}

// Reloads are those that all workers were asked for. A worker that is to take over reads the configuration while the one before still
// serves: from then on a reload of that one is missing in it.
//
//	the next worker connects ── reads the configuration ── waits ──▶ takes over: the number is another one? it reloads
//	the worker before             reload (+1)   hands over, reload (+1, due)
//
// One for which another worker is to take over is due until that has read the configuration.
type Reloads struct {
	Number int64 `json:"number,omitempty"` // that were carried out, or are due
	Due    bool  `json:"due,omitempty"`    // one is left to the next worker
}

// A Split is the weights of the parts of a route, by their names, which operators have changed.
type Split struct {
	Listener string `json:"listener"`
	Route    string `json:"route"`
	spec.SplitChange
}

const stateVersion = 1

// readState reads the document that a worker before this one has written.
func readState(d *saved.Document) (s State, err error) {
	text, err := d.Read()
	if errors.Is(err, saved.ErrNoDocument) {
		return s, nil
	}
	if err == nil {
		s, err = parseState(text)
	}
	return s, err
}

func parseState(text []byte) (s State, err error) {
	if err := json.Unmarshal(text, &s); err != nil {
		return State{}, err
	}
	if s.Version != stateVersion {
		return State{}, fmt.Errorf("version %d of the state; known: %d", s.Version, stateVersion)
	}
	if s.Started.After(time.Now()) {
		s.Started = time.Time{}
	}
	return s, nil
}

// RestoreLimits continues the rates of a listener, once.
func (s *state) RestoreLimits(listener string, g *admit.Controller) {
	if limits, ok := s.before.Limits[listener]; ok {
		delete(s.before.Limits, listener)
		g.RestoreLimits(limits, time.Now())
	}
}

// RestoreTotal continues the rate of all listeners, once.
func (s *state) RestoreTotal(t *admit.Total) {
	if limits := s.before.Total; limits != nil {
		s.before.Total = nil
		t.RestoreLimits(*limits, time.Now())
	}
}

// Intervals of the document: when something has changed, and when not, because the times of checks do
// not count as changes.
const (
	saveAnyway = 30 * time.Second
	saveLarge  = 256 << 10 // bytes of the text of members, from which on saving is delayed
	saveShare  = 50        // by so many times what the last one took
	saveWait   = 10 * time.Second
)

// SavesState reports whether the state is saved.
func (s *state) SavesState() bool { return s.file != nil }

// NextSave returns when the next save may begin after one that has ended now: members of large groups
// that change all the time take at most a part of the time.
func (s *state) NextSave(start time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.members) < saveLarge {
		return now
	}
	return now.Add(min(saveShare*now.Sub(start), saveWait))
}

// StateIsOld reports whether what was saved last is not what members and events are now, by their revisions, or was saved long ago.
func (s *state) StateIsOld(members, events uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return members != s.saved.members || events != s.saved.events || time.Since(s.saved.at) >= saveAnyway
}

// SaveState writes the document. The last time, when this worker has handed over, members are written also if they have not changed; from then on
// the document is the next worker's, and nothing is written. rest returns the rest of it, and the revision of its events.
func (s *state) SaveState(set *upstream.Set, last bool, rest func(now time.Time) (Rest, uint64)) error {
	if s.file == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		return nil
	}
	s.left = last
	now := time.Now()
	r, events := rest(now)
	err := s.updateMembers(set, now, last)
	var text []byte
	if err == nil {
		text, err = json.Marshal(struct {
			Version int             `json:"version"`
			Members json.RawMessage `json:"members"`
			Rest
		}{stateVersion, s.members, r})
	}
	if err == nil {
		err = s.file.Write(text)
	}
	if err == nil {
		s.saved.events = events
	}
	return err
}

// updateMembers encodes what is known about members, if it has changed.
func (s *state) updateMembers(set *upstream.Set, now time.Time, anyway bool) error {
	revision := set.Revision() // before the reading: what changes meanwhile is written next time
	if revision == s.saved.members && now.Sub(s.saved.at) < saveAnyway && !anyway {
		return nil
	}
	text, err := json.Marshal(set.Save())
	if err == nil {
		s.members, s.saved.members, s.saved.at = text, revision, now
	}
	return err
}
