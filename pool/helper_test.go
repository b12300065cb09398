package pool

import (
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

// manualGC leaves the collector to the test until its end.
func manualGC(t *testing.T) {
	percent := debug.SetGCPercent(-1)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
}

// withProcs sets GOMAXPROCS until the end of the test.
func withProcs(t *testing.T, n int) {
	procs := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(procs) })
}

// eachProcs runs test at GOMAXPROCS 1, 2 and 8.
func eachProcs(t *testing.T, test func(t *testing.T)) {
	for _, n := range []int{1, 2, 8} {
		t.Run("procs="+strconv.Itoa(n), func(t *testing.T) {
			withProcs(t, n)
			test(t)
		})
	}
}

// cycle runs one collection and returns when p has aged by it, or is at rest.
func cycle[T any](t *testing.T, p *Pool[T]) {
	t.Helper()
	cold := p.state()
	before, armed := cold.steps.Load(), cold.notifier.Load() != nil
	cold.newTime.Store(0) // as if New had taken none: on a busy machine it may seem costly, and steps take more cycles
	runtime.GC()
	if !armed {
		return
	}
	testwait.Until(t, "the pool to age", func() bool { return cold.steps.Load() > before })
	p.dropLeaving(cold) // or waits until it is done
}
