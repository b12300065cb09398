//go:build race

package sys

import (
	"runtime"
	"unsafe"
)

// RaceEnabled tells whether the race detector watches this build.
const RaceEnabled = true

// The race detector does not see memory that a raw system call touches; these
// two tell it (the way golang.org/x/net/internal/socket does).

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
