package loop

import (
	"reflect"
	"runtime"
)

// InHook reports whether the calling goroutine is a loop's, which is the case in hooks
// only. There a call that waits for a loop's answer would wait for itself, or for
// another loop that waits for this one.
//
// Goroutines have no name that could be compared, but a loop's has Loop.Run at
// the root of its stack. Looking for it takes a few microseconds.
func InHook() bool {
	var pcs [64]uintptr
	for skip := 1; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		for _, pc := range pcs[:n] {
			if f := runtime.FuncForPC(pc - 1); f != nil && f.Entry() == loopRun {
				return true
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}

var loopRun = reflect.ValueOf((*Loop).Run).Pointer()
