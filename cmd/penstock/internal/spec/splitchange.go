package spec

import (
	"maps"
	"time"
)

// A SplitChange is what operators have made of the weights of a route's parts, by the names of the parts. It holds where the configuration says
// what it said then.
type SplitChange struct {
	File    map[string]int `json:"file"` // what the configuration said
	Weights map[string]int `json:"weights"`
	By      string         `json:"by,omitempty"`
	At      time.Time      `json:"at,omitzero"`
}

// Valid reports whether operators could have made the change.
func (c *SplitChange) Valid() bool {
	if len(c.File) < 2 || len(c.File) > MaxParts || !maps.EqualFunc(c.File, c.Weights, func(_, _ int) bool { return true }) {
		return false
	}
	sum := 0
	for _, w := range c.Weights {
		if w < 0 || w > MaxPartWeight {
			return false
		}
		sum += w
	}
	return sum > 0
}

// A RouteSplits is what operators have made of the weights of a route's parts on all relays of a fleet. Relays whose
// configurations differ, as while a new one is tried, have different weights to begin with: there is a change for each, the latest first.
type RouteSplits struct {
	Listener string        `json:"listener"`
	Route    string        `json:"route"`
	Revision int64         `json:"revision"` // of etcd: that of the last change
	Changes  []SplitChange `json:"changes,omitempty"`
}

// For returns the change for parts that have these weights in the configuration; nil: there is none.
func (r *RouteSplits) For(file map[string]int) *SplitChange {
	for i := range r.Changes {
		if maps.Equal(r.Changes[i].File, file) {
			return &r.Changes[i]
		}
	}
	return nil
}

// WeightsOf returns the weights of parts by their names.
func WeightsOf(parts []Part) map[string]int {
	m := map[string]int{}
	for i := range parts {
		m[parts[i].Name()] = parts[i].Weight
	}
	return m
}
