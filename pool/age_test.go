package pool

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"weak"
)

// An object survives one collection as a victim, and not two.
func TestAge(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		manualGC(t)
		var drops atomic.Int64
		p := Pool[string]{Drop: func(string) { drops.Add(1) }}
		for round := range 3 {
			drops.Store(0)
			for range 100 {
				p.Put("c")
			}
			cycle(t, &p)
			before := p.Stats()
			if x := p.Get(); x != "c" {
				t.Fatalf("round %d: got %q after one collection", round, x)
			}
			if s := p.Stats(); s.VictimHits != before.VictimHits+1 || s.Hits != before.Hits+1 || s.Kept != 99 {
				t.Fatalf("round %d: %+v", round, s)
			}
			cycle(t, &p)
			if x := p.Get(); x != "" {
				t.Fatalf("round %d: got %q after two collections", round, x)
			}
			if n := drops.Load(); n != 99 {
				t.Fatalf("round %d: dropped %d of 99", round, n)
			}
		}
	})
}

// Two collections in a row are two, even if the first is noticed late.
func TestAgeInARow(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		manualGC(t)
		for range 20 {
			var drops atomic.Int64
			p := Pool[int]{Drop: func(int) { drops.Add(1) }}
			for i := range 100 {
				p.Put(i)
			}
			runtime.GC()
			runtime.GC()
			eventually(t, "the drops", func() bool { return drops.Load() == 100 })
		}
	})
}

// What is used in every cycle stays, and only that.
func TestAgeKeepsUsed(t *testing.T) {
	manualGC(t)
	withProcs(t, 1)
	p := Pool[int]{New: func() int { return 1 }}
	held := make([]int, 0, 100)
	use := func(n int) {
		for range n {
			held = append(held, p.Get())
		}
		for _, x := range held {
			p.Put(x)
		}
		held = held[:0]
	}
	use(100)
	for range 20 {
		use(10)
		cycle(t, &p)
	}
	if s := p.Stats(); s.News != 100 || s.Kept != 10 {
		t.Fatalf("%+v", s)
	}
}

// A pool that nobody touches ages too, on every CPU, and then costs nothing.
func TestAgeIdle(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		manualGC(t)
		var drops atomic.Int64
		p := Pool[int]{Drop: func(int) { drops.Add(1) }}
		const each = 100
		procs := runtime.GOMAXPROCS(0)
		var wg sync.WaitGroup
		for range procs {
			wg.Go(func() {
				for i := range each {
					p.Put(i)
					if i%10 == 0 {
						runtime.Gosched()
					}
				}
			})
		}
		wg.Wait()
		cycle(t, &p)
		if n := drops.Load(); n != 0 {
			t.Fatalf("%d objects left after one collection", n)
		}
		cycle(t, &p)
		if n := drops.Load(); n != int64(procs*each) {
			t.Fatalf("%d of %d objects left after two collections", n, procs*each)
		}
		eventually(t, "the pool to rest", func() bool {
			runtime.GC()
			b := p.ledger()
			b.mu.Lock()
			defer b.mu.Unlock()
			return !b.armed && b.primary == nil && b.victim == nil && len(b.retired) == 0 && p.local.Load() == nil
		})
		if s := p.Stats(); s.Puts != uint64(procs*each) || s.Drops != s.Puts || s.Kept != 0 {
			t.Fatalf("%+v", s)
		}
		p.Put(1)
		if x := p.Get(); x != 1 {
			t.Fatalf("got %d from a pool woken up", x)
		}
	})
}

// A pool that nobody refers to is dropped, and all that it held.
func TestPoolDroppedWhileFull(t *testing.T) {
	var drops atomic.Int64
	const n = 1000
	type server struct {
		name string
		pool Pool[*int]
	}
	w := func() weak.Pointer[server] {
		s := &server{name: "x"}
		s.pool.Drop = func(*int) { drops.Add(1) }
		for i := range n {
			s.pool.Put(&i)
		}
		return weak.Make(s)
	}()
	eventually(t, "the drops", func() bool { runtime.GC(); return drops.Load() == n })
	eventually(t, "the pool's end", func() bool { runtime.GC(); return w.Value() == nil })
	if d := drops.Load(); d != n {
		t.Fatalf("dropped %d of %d", d, n)
	}
}

// Objects that aged out are free for the collector.
func TestRelease(t *testing.T) {
	manualGC(t)
	var p Pool[*[64]int]
	for range 3 {
		var seen []weak.Pointer[[64]int]
		for range 100 {
			x := new([64]int)
			seen = append(seen, weak.Make(x))
			p.Put(x)
		}
		cycle(t, &p)
		cycle(t, &p)
		runtime.GC()
		for i, w := range seen {
			if w.Value() != nil {
				t.Fatalf("object %d is still held", i)
			}
		}
	}
}

// GOMAXPROCS may grow and shrink while objects are pooled; none is lost.
func TestProcsChange(t *testing.T) {
	manualGC(t)
	var drops atomic.Int64
	p := Pool[int]{Drop: func(int) { drops.Add(1) }}
	puts := int64(0)
	for _, procs := range []int{1, 4, 2, 8, 1, 16, 3} {
		withProcs(t, procs)
		for round := range 3 {
			var wg sync.WaitGroup
			for range procs {
				wg.Go(func() {
					for range 200 {
						p.Put(1)
						runtime.Gosched()
					}
				})
			}
			wg.Wait()
			puts += 200 * int64(procs)
			if round == 1 {
				cycle(t, &p)
			}
		}
	}
	for range 5 {
		cycle(t, &p)
	}
	if n := drops.Load(); n != puts {
		t.Fatalf("dropped %d of %d", n, puts)
	}
}

// Drop may use the pool, short of Drain.
func TestDropReenters(t *testing.T) {
	manualGC(t)
	var p Pool[int]
	var again atomic.Int64
	p.Drop = func(x int) {
		if x < 10 {
			p.Put(x + 1)
		}
		p.Stats()
		p.Get()
		again.Add(1)
	}
	for range 100 {
		p.Put(0)
	}
	for range 6 {
		cycle(t, &p)
	}
	p.Drain()
	if again.Load() < 100 {
		t.Fatalf("dropped %d", again.Load())
	}
}
