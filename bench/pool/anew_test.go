package pool

import (
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/penstock/penstock/pool"
)

// One goroutine takes 64 objects and puts them back between collections, which move it from CPU to
// CPU. New/20GC is the number of objects made beyond the first 64, over 20 collections: those that
// the pool held but did not find.
func BenchmarkPoolAnew(b *testing.B) {
	b.Run("impl=sync", func(b *testing.B) {
		benchAnew(b, func(made *int) (func() *object, func(*object)) {
			p := sync.Pool{New: func() any { *made++; return new(object) }}
			return func() *object { return p.Get().(*object) }, func(x *object) { p.Put(x) }
		})
	})
	b.Run("impl=penstock", func(b *testing.B) {
		benchAnew(b, func(made *int) (func() *object, func(*object)) {
			p := &pool.Pool[*object]{New: func() *object { *made++; return new(object) }}
			return p.Get, p.Put
		})
	})
	b.Run("impl=penstock-drop", func(b *testing.B) {
		benchAnew(b, func(made *int) (func() *object, func(*object)) {
			p := &pool.Pool[*object]{New: func() *object { *made++; return new(object) }, Drop: func(*object) {}}
			return p.Get, p.Put
		})
	})
}

func benchAnew(b *testing.B, open func(made *int) (func() *object, func(*object))) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const n, rounds = 64, 20
	anew := 0
	held := make([]*object, n)
	for b.Loop() {
		made := 0
		get, put := open(&made)
		for range rounds {
			for i := range held {
				held[i] = get()
			}
			for i, x := range held {
				put(x)
				held[i] = nil
			}
			runtime.GC()
		}
		anew += made - n
	}
	b.ReportMetric(float64(anew)/float64(b.N), "New/20GC")
}
