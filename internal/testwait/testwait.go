// Package testwait is for tests only: the one way in which they wait for a condition, and the one deadline of every such wait.
//
// A test does not sleep: it waits for the event itself (a channel, a byte, the end of a process), or, where nothing tells of the event,
// asks again until a condition holds. What is left is in the table of internal/archtest/sleeps_test.go.
package testwait

import (
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

// For calls ok until it returns true, and reports whether that happened within [Patience]. It is for a test that says more than that it
// waited in vain, and for goroutines and processes that are not the test's.
func For(ok func() bool) bool {
	const first, longest = 50 * time.Microsecond, 5 * time.Millisecond
	end := time.Now().Add(Patience)
	for pause := first; !ok(); pause = min(2*pause, longest) {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}
