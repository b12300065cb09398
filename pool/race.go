//go:build race

package pool

import (
	"runtime"
	"unsafe"
)

const raceEnabled = true

// The race detector knows nothing of pinning. These two tell it what pinning
// guarantees: the sections of one shard follow each other. All else in the
// package is left for it to judge.

// raceEnter orders the caller after every section of the shard at p so far.
func raceEnter(p unsafe.Pointer) { runtime.RaceAcquire(p) }

// raceLeave orders the caller's section before the shard's later ones.
func raceLeave(p unsafe.Pointer) { runtime.RaceReleaseMerge(p) }
