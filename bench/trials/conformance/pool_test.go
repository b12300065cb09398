package conformance

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/pool"
)

// object is the type of the pooled objects.
type object struct {
	used atomic.Bool
	n    int // not atomic, so that the race detector sees whether a Put happens before its Get
}

// bag is the interface that both pools have.
type bag interface {
	Get() *object
	Put(*object)
}

type syncBag struct{ p sync.Pool }

func (b *syncBag) Put(x *object) { b.p.Put(x) }
func (b *syncBag) Get() *object {
	x, _ := b.p.Get().(*object)
	return x
}

// eachBag runs a test on both pools, with and without New.
func eachBag(t *testing.T, news func() *object, test func(t *testing.T, b bag)) {
	t.Run("impl=sync", func(t *testing.T) {
		b := &syncBag{}
		if news != nil {
			b.p.New = func() any { return news() }
		}
		test(t, b)
	})
	t.Run("impl=penstock", func(t *testing.T) { test(t, &pool.Pool[*object]{New: news}) })
}

func TestPoolEmpty(t *testing.T) {
	eachBag(t, nil, func(t *testing.T, b bag) {
		if x := b.Get(); x != nil {
			t.Errorf("an empty pool without New gave %v", x)
		}
	})
	var made atomic.Int64
	eachBag(t, func() *object { made.Add(1); return new(object) }, func(t *testing.T, b bag) {
		made.Store(0)
		for i := range int64(3) {
			if x := b.Get(); x == nil || made.Load() != i+1 {
				t.Errorf("Get of an empty pool: %v, New was called %d times, want %d", x, made.Load(), i+1)
			}
		}
	})
}

// lossless reports whether a pool keeps everything it is given: under the race detector, sync.Pool
// discards a quarter.
func lossless(b bag) bool {
	_, theirs := b.(*syncBag)
	return !theirs || !testnet.RaceEnabled
}

// An object that was put survives one collection, as a victim, and does not survive two.
func TestPoolAge(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // a CPU does not see the objects that another one keeps, and a collection moves goroutines
	const n = 50
	eachBag(t, nil, func(t *testing.T, b bag) {
		fill := func() {
			for range n {
				b.Put(new(object))
			}
		}
		count := func() (found int) {
			for b.Get() != nil {
				found++
			}
			return found
		}
		fill()
		if found := count(); found > n || found < n && lossless(b) {
			t.Errorf("%d of %d objects before a collection", found, n)
		}
		fill()
		runtime.GC()
		if found := count(); found > n || found == 0 || found < n && lossless(b) {
			t.Errorf("%d of %d objects after one collection", found, n)
		}
		fill()
		runtime.GC()
		runtime.GC()
		// Our pool learns of a collection from the runtime's cleanups, a moment later.
		if p, ok := b.(*pool.Pool[*object]); ok {
			testwait.For(func() bool { return p.Stats().Kept == 0 })
		}
		if found := count(); found != 0 {
			t.Errorf("%d of %d objects after two collections", found, n)
		}
	})
}

// Objects that are used between collections stay.
func TestPoolUsed(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // a CPU does not see the objects that another one keeps, and a collection moves goroutines
	eachBag(t, nil, func(t *testing.T, b bag) {
		x := new(object)
		for cycle := range 6 {
			b.Put(x)
			runtime.GC()
			if got := b.Get(); got != x && lossless(b) {
				t.Fatalf("cycle %d: %p, want %p", cycle, got, x)
			}
		}
	})
}

// An object has one user at a time, and its Put happens before its Get, even while collections
// empty the pool.
func TestPoolExclusive(t *testing.T) {
	eachBag(t, func() *object { return new(object) }, func(t *testing.T, b bag) {
		var users sync.WaitGroup
		for range 4 {
			users.Go(func() {
				held := make([]*object, 8)
				for range 500 {
					for i := range held {
						held[i] = b.Get()
						if held[i].used.Swap(true) {
							t.Error("an object has two users")
						}
						held[i].n++
					}
					for _, x := range held {
						x.used.Store(false)
						b.Put(x)
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { users.Wait(); close(done) }()
		for {
			select {
			case <-done:
				return
			default:
				runtime.GC()
			}
		}
	})
}
