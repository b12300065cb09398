package testnet

import (
	"fmt"
	"io"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// CheckLeaks fails tb if, at its end, there are descriptors or goroutines that did not exist when
// CheckLeaks was called. Call it first in a test: functions that the test registers with Cleanup
// later run before the check. Tests that run in parallel see each other's.
func CheckLeaks(tb testing.TB) {
	tb.Helper()
	before := snapshot()
	tb.Cleanup(func() {
		if leaks := before.leaks(grace); leaks != "" {
			tb.Errorf("left behind:\n%s", leaks)
		}
	})
}

// census is what existed at one moment.
type census struct {
	fds        map[int]string
	goroutines map[string]string // stacks by number
}

func snapshot() census { return census{openFds(), stacks()} }

// grace is how long the end of something may take. Only a leak takes all of it.
const grace = time.Minute

// leaks describes what exists now and did not exist at c, with the line that created it. It waits
// up to the given time for that to go away; garbage collection closes pipes in caches of the
// standard library.
func (c census) leaks(wait time.Duration) string {
	var fds map[int]string
	var goroutines []string
	deadline := time.Now().Add(wait)
	testwait.For(func() bool {
		fds, goroutines = openFds(), nil
		maps.DeleteFunc(fds, func(fd int, what string) bool { return c.fds[fd] == what })
		for id, stack := range stacks() {
			if _, ok := c.goroutines[id]; !ok {
				goroutines = append(goroutines, stack+"\n")
			}
		}
		if len(fds)+len(goroutines) == 0 || time.Now().After(deadline) {
			return true
		}
		runtime.GC()
		return false
	})
	all := goroutines
	if len(fds) > 0 {
		describeSockets(fds)
	}
	for fd, what := range fds {
		all = append(all, fmt.Sprintf("fd %d: %s\n", fd, what))
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// stacks returns all goroutines except for the caller's and those of the runtime, package testing
// and signal handling.
func stacks() map[string]string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	all := strings.Split(string(buf), "\n\n")
	m := make(map[string]string)
	for _, stack := range all[1:] { // the first one is the caller
		if houseKeeping(stack) {
			continue
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
		m[id] = strings.TrimSpace(stack) + "\n"
	}
	return m
}

func houseKeeping(stack string) bool {
	for _, mark := range []string{
		"testing.(*T).Run(", "testing.(*M).", "testing.(*F).", "testing.(*B).run", "testing.runFuzzing(",
		"testing.tRunner.func", "created by testing.", "created by runtime.", "os/signal.loop(", "os/signal.signal_recv(",
		"created by runtime/", "runtime.ensureSigM", "internal/fuzz.",
	} {
		if strings.Contains(stack, mark) {
			return true
		}
	}
	return false
}

// warmUp opens what the runtime opens once and keeps open: the netpoller's descriptors.
func warmUp() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return
	}
	defer l.Close()
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		defer c.Close()
		if a, err := l.Accept(); err == nil {
			a.Close()
			io.Copy(io.Discard, c)
		}
	}
}
