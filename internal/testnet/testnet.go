// Package testnet is for tests only: connected pairs of every kind of stream socket, peers that run
// in child processes, and leak checks that say where a leak was created.
//
// A package opts in with one line:
//
//	func TestMain(m *testing.M) { testnet.Main(m) }
//
// which lets its test binary act as a peer when it is started as one, and makes a descriptor or
// goroutine that outlives the tests a failure.
package testnet

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/feature"
)

// WantRace is the environment variable that the race job sets to 1. With it,
// tests of a binary that was built without -race fail, so that the job cannot
// silently become a second run of the plain tests.
const WantRace = "PENSTOCK_WANT_RACE"

// OneGoroutine skips a long test under the race detector, which finds nothing in what one goroutine does.
func OneGoroutine(tb testing.TB) {
	tb.Helper()
	if RaceEnabled {
		tb.Skip("one goroutine does all of it, and the race detector finds nothing")
	}
}

// AlsoWithoutRace does nothing. The check runs a test with the race detector only, unless the test asks whether there is one; see
// .ci/withoutrace.go. One that calls AlsoWithoutRace runs without it, too: it is about what happens at the speed of a released binary.
func AlsoWithoutRace(testing.TB) {}

// Main runs the tests of a package and ends the process. It belongs in TestMain and does not
// return.
//
// If the process was started by [Start] or [StartServer] it acts as that peer instead. After the
// tests it fails the run if descriptors or goroutines are left that were not there before.
//
// Each setup function runs before the tests, and the function that it returns runs after them.
func Main(m *testing.M, setup ...func() (teardown func(), err error)) {
	if script, ok := os.LookupEnv(peerEnv); ok {
		os.Exit(runPeer(script))
	}
	if os.Getenv(WantRace) == "1" && !RaceEnabled {
		fmt.Fprintf(os.Stderr, "testnet: %s=1, but this test binary was built without -race\n", WantRace)
		os.Exit(1)
	}
	var teardowns []func()
	for _, f := range setup {
		teardown, err := f()
		if err != nil {
			fmt.Fprintf(os.Stderr, "testnet: %v\n", err)
			os.Exit(1)
		}
		teardowns = append(teardowns, teardown)
	}
	warmUp()
	before := snapshot()
	code := m.Run()
	for _, f := range slices.Backward(teardowns) {
		f()
	}
	if leaks := before.leaks(grace); leaks != "" {
		fmt.Fprintf(os.Stderr, "testnet: left behind by the tests:\n%s", leaks)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Need skips a test on a kernel that is older than the feature, and fails it if the kernel is new
// enough but the probe reports that the feature is missing: then the probe is wrong, or the machine
// forbids what penstock relies on.
func Need(tb testing.TB, p *feature.Probe) {
	tb.Helper()
	err := p.Err()
	if err == nil {
		return
	}
	have, kerr := feature.Kernel()
	switch {
	case runtime.GOOS != "linux":
		tb.Skip(err)
	case kerr != nil:
		tb.Fatal(kerr)
	case have.Less(p.Since):
		tb.Skipf("%v; this is %v", err, have)
	default:
		tb.Fatalf("%v; but this is %v", err, have)
	}
}
