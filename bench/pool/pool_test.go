//lint:file-ignore SA6002 sync.Pool gets the same objects as in its own benchmarks.

package pool

import (
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/pool"
)

// The bodies are repeated for each implementation: a shared one would call Get and Put through an
// interface, which costs as much as a Get.

func BenchmarkPool(b *testing.B) {
	b.Run("impl=sync", func(b *testing.B) {
		var p sync.Pool
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				p.Put(1)
				p.Get()
			}
		})
	})
	b.Run("impl=penstock", func(b *testing.B) {
		var p pool.Pool[any]
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				p.Put(1)
				p.Get()
			}
		})
	})
	for name, p := range map[string]*pool.Pool[any]{
		"penstock-drop": {Drop: func(any) {}},
		"penstock-max":  {Max: 1000},
	} {
		b.Run("impl="+name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					p.Put(1)
					p.Get()
				}
			})
		})
	}
}

func BenchmarkPoolOverflow(b *testing.B) {
	const count = 100
	b.Run("impl=sync", func(b *testing.B) {
		var p sync.Pool
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				for range count {
					p.Put(1)
				}
				for range count {
					p.Get()
				}
			}
		})
	})
	b.Run("impl=penstock", func(b *testing.B) {
		var p pool.Pool[any]
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				for range count {
					p.Put(1)
				}
				for range count {
					p.Get()
				}
			}
		})
	})
}

// A third of the Gets find nothing, so CPUs steal from each other.
func BenchmarkPoolStarvation(b *testing.B) {
	const count, starved = 100, 67
	b.Run("impl=sync", func(b *testing.B) {
		var p sync.Pool
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				for range starved {
					p.Put(1)
				}
				for range count {
					p.Get()
				}
			}
		})
	})
	b.Run("impl=penstock", func(b *testing.B) {
		var p pool.Pool[any]
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				for range starved {
					p.Put(1)
				}
				for range count {
					p.Get()
				}
			}
		})
	})
}

// The pause of a collection with 100,000 pooled objects.
func BenchmarkPoolSTW(b *testing.B) {
	b.Run("impl=sync", func(b *testing.B) {
		var p sync.Pool
		benchSTW(b, p.Put)
	})
	b.Run("impl=penstock", func(b *testing.B) {
		var p pool.Pool[any]
		benchSTW(b, p.Put)
	})
}

func benchSTW(b *testing.B, put func(any)) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	b.ReportAllocs()
	var stats runtime.MemStats
	var pauses []uint64
	for b.Loop() {
		const n = 100_000
		var item any = 42
		for range n {
			put(item)
		}
		runtime.GC()
		runtime.ReadMemStats(&stats)
		pauses = append(pauses, stats.PauseNs[(stats.NumGC+255)%256])
	}
	slices.Sort(pauses)
	b.ReportMetric(float64(pauses[len(pauses)*95/100]), "p95-ns/STW")
	b.ReportMetric(float64(pauses[len(pauses)*50/100]), "p50-ns/STW")
	b.ReportMetric(float64(stats.HeapAlloc), "heap-B")
}

// Objects that take a millisecond to make, 100 of them in use at a time on each CPU, during
// collections. Besides the calls of New, the benchmark reports how many objects exist at the end,
// and how many still exist after the pool was idle for two collections.
func BenchmarkPoolExpensiveNew(b *testing.B) {
	b.Run("impl=sync", func(b *testing.B) {
		var p sync.Pool
		made := new(census)
		p.New = func() any { return made.new() }
		benchExpensiveNew(b, made, func() *object { return p.Get().(*object) }, func(x *object) { p.Put(x) })
	})
	b.Run("impl=penstock", func(b *testing.B) {
		made := new(census)
		p := pool.Pool[*object]{New: made.new}
		benchExpensiveNew(b, made, p.Get, p.Put)
	})
}

type object struct{ _ [64]byte }

// A census counts the objects that were made, and those that still exist.
type census struct{ made, gone atomic.Int64 }

func (c *census) new() *object {
	c.made.Add(1)
	time.Sleep(time.Millisecond)
	x := new(object)
	runtime.AddCleanup(x, func(c *census) { c.gone.Add(1) }, c)
	return x
}

func (c *census) alive() float64 { return float64(c.made.Load() - c.gone.Load()) }

var ballast, sink []byte

func benchExpensiveNew(b *testing.B, made *census, get func() *object, put func(*object)) {
	ballast = make([]byte, 8<<20)
	defer func() { ballast = nil }()
	b.ReportAllocs()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.RunParallel(func(pb *testing.PB) {
		items := make([]*object, 100)
		var work []byte
		for pb.Next() {
			for i := range items {
				items[i] = get()
				work = make([]byte, 32<<10)
			}
			for i, x := range items {
				put(x)
				items[i] = nil
			}
		}
		sink = work
	})
	b.StopTimer()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.NumGC-before.NumGC)/float64(b.N), "GCs/op")
	b.ReportMetric(float64(made.made.Load())/float64(b.N), "New/op")
	b.ReportMetric(made.alive(), "alive")
	for range 3 { // the third finds what cleanups of the second have let go
		collected := make(chan bool)
		runtime.AddCleanup(new(object), func(c chan bool) { close(c) }, collected)
		runtime.GC()
		<-collected
	}
	b.ReportMetric(made.alive(), "alive-idle")
}
