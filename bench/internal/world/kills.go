//go:build linux

package world

import (
	"slices"
	"sync"
	"time"
)

// kills are the deaths of the worker so far.
type kills struct {
	mu    sync.Mutex
	All   []Kill
	asked []time.Time // when the last questions began that one worker has answered
	done  time.Time   // see Kill
}

// Kill is one death of a worker.
type Kill struct {
	at   time.Time // when it did its last work, or a little earlier
	done time.Time // until when it is known to have done what was due: a worker that has no CPU time settles nothing
	dead time.Time // when it was gone
	How  string
	Plan bool // it was an upgrade, which ends no flow
}

// add returns the kill's number, from 1.
func (k *kills) add(one Kill) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	one.done, k.asked = k.done, nil
	k.All = append(k.All, one)
	return int64(len(k.All))
}

// answered is told of an answer for which the worker has asked each of its loops, and when it was asked. A loop answers in the course of
// a turn, whose timers may be of a moment before the question; at the third answer the turn that came after the first one is over.
func (k *kills) answered(asked time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asked = append(k.asked, asked); len(k.asked) == 3 {
		k.done, k.asked = k.asked[0], k.asked[1:]
	}
}

// gone is told when the worker of a kill was gone.
func (k *kills) gone(number int64, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.All[number-1].dead = at
}

// List returns all deaths so far.
func (k *kills) List() []Kill {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.All)
}

func (k *kills) number() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.All)
}

// Between reports whether the worker died unplanned after start and before it is known to have been at work at settled, if that is not
// zero, leaving out the first few kills.
func (k *kills) Between(start, settled time.Time, skip int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range k.All[min(int(skip), len(k.All)):] {
		if !one.Plan && (one.dead.IsZero() || one.dead.After(start)) && (settled.IsZero() || one.done.Before(settled)) {
			return true
		}
	}
	return false
}

// last returns the kill that was made last.
func (k *kills) last() (one Kill, number int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.All) > 0 {
		one = k.All[len(k.All)-1]
	}
	return one, int64(len(k.All))
}
