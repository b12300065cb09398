//go:build race

package sys

import (
	"runtime"
	"unsafe"
)

// RaceEnabled reports whether the build has the race detector.
const RaceEnabled = true

// The race detector does not see memory that a raw system call touches; these two functions inform
// it, as golang.org/x/net/internal/socket does.

func raceRead(p unsafe.Pointer, n int) {
	if n > 0 {
		runtime.RaceReadRange(p, n)
	}
}

func raceWrite(p unsafe.Pointer, n int) {
	if n > 0 {
		runtime.RaceWriteRange(p, n)
	}
}
