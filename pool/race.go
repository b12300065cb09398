//go:build race

package pool

import (
	"runtime"
	"unsafe"
)

const raceEnabled = true

// The race detector does not know about pinning. These two functions tell it what pinning
// guarantees: the sections of one shard follow each other. It checks everything else.

// raceEnter orders the caller after every section of the shard at p so far.
func raceEnter(p unsafe.Pointer) { runtime.RaceAcquire(p) }

// raceLeave orders the caller's section before the shard's later ones.
func raceLeave(p unsafe.Pointer) { runtime.RaceReleaseMerge(p) }
