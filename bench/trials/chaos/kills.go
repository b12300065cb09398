//go:build linux

package main

import (
	"slices"
	"sync"
	"time"
)

// kills are the deaths of the worker so far.
type kills struct {
	mu  sync.Mutex
	all []kill
}

// kill is one death of a worker.
type kill struct {
	at   time.Time // when it did its last work, or a little earlier
	dead time.Time // when it was gone
	how  string
	plan bool // it was an upgrade, which ends no flow
}

// add returns the kill's number, from 1.
func (k *kills) add(one kill) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, one)
	return int64(len(k.all))
}

// gone is told when the worker of a kill was gone.
func (k *kills) gone(number int64, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all[number-1].dead = at
}

// list returns all deaths so far.
func (k *kills) list() []kill {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.all)
}

func (k *kills) number() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.all)
}

// between reports whether the worker died unplanned after start and before settled, if that is not
// zero, leaving out the first few kills.
func (k *kills) between(start, settled time.Time, skip int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range k.all[min(int(skip), len(k.all)):] {
		if !one.plan && (one.dead.IsZero() || one.dead.After(start)) && (settled.IsZero() || one.at.Before(settled)) {
			return true
		}
	}
	return false
}

// last returns the kill that was made last.
func (k *kills) last() (one kill, number int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.all) > 0 {
		one = k.all[len(k.all)-1]
	}
	return one, int64(len(k.all))
}
