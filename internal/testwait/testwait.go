// Package testwait is for tests only: the one way in which they wait for a condition, and the one deadline of every such wait.
//
// A test does not sleep: it waits for the event itself (a channel, a byte, the end of a process), or, where nothing tells of the event,
// asks again until a condition holds. What is left is in the table of internal/archtest/sleeps_test.go.
package testwait

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// Patience bounds every wait of a test for something that is expected to happen, on however busy a machine.
const Patience = 2 * time.Minute

// Until calls ok until it returns true. It fails the test if that does not happen within [Patience]. It must be
// called by the goroutine of the test.
func Until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	if !For(ok) {
		tb.Fatalf("never: %s", what)
	}
}

// Goroutines returns how many goroutines have the given function among their calls, and how many of these are blocked: by a lock, a channel,
// a socket. It tells of what nothing else tells of: that a call has begun to wait, and that what was left behind has ended.
func Goroutines(function string) (all, blocked int) {
	buf := make([]byte, 1<<18)
	n := runtime.Stack(buf, true)
	for ; n == len(buf); n = runtime.Stack(buf, true) {
		buf = make([]byte, 2*len(buf))
	}
	for stack := range strings.SplitSeq(string(buf[:n]), "\n\n") {
		first, calls, _ := strings.Cut(stack, "\n") // goroutine 7 [IO wait, 2 minutes]:
		if !strings.Contains(calls, function) {
			continue
		}
		all++
		if _, state, _ := strings.Cut(first, " ["); !strings.HasPrefix(state, "run") { // neither running nor runnable
			blocked++
		}
	}
	return all, blocked
}

// For calls ok until it returns true, and reports whether that happened within [Patience]. It is for a test that says more than that it
// waited in vain, and for goroutines and processes that are not the test's.
//
// It asks every 5 ms, and less often when it has waited for long (a fortieth of that, at most 25 ms) or asking takes long (as long as that, at
// most 100 ms): to ask may be a request to each of four daemons, which have other things to do.
func For(ok func() bool) bool {
	const first, soon, later, longest = 50 * time.Microsecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond
	begin := time.Now()
	for pause := first; ; pause = min(2*pause, soon) {
		asked := time.Now()
		if ok() {
			return true
		}
		took := time.Since(asked)
		waited := time.Since(begin)
		if waited > Patience {
			return false
		}
		time.Sleep(max(pause, min(waited/40, later), min(took, longest)))
	}
}
