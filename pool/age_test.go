package pool

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/penstock/penstock/internal/testwait"
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
			testwait.Until(t, "the drops", func() bool { return drops.Load() == 100 })
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

// The same without Drop, seen from Get.
func TestAgeInARowShared(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		manualGC(t)
		for range 20 {
			var p Pool[int]
			for range 100 {
				p.Put(1)
			}
			runtime.GC()
			runtime.GC()
			testwait.Until(t, "the objects to leave", func() bool { return p.Stats().Drops == 100 })
			if x := p.Get(); x != 0 {
				t.Fatal("an object is there after two collections")
			}
		}
	})
}

// A collection moves goroutines from CPU to CPU, and the pool hears of it late.
// Objects that are used between collections are found all the same, each time.
func TestNoneMadeAnew(t *testing.T) {
	for name, drop := range map[string]func(*int){"shared": nil, "locked": func(*int) {}} {
		t.Run(name, func(t *testing.T) {
			eachProcs(t, func(t *testing.T) {
				manualGC(t)
				const n = 64
				made := 0
				p := Pool[*int]{New: func() *int { made++; return new(int) }, Drop: drop}
				var held [n]*int
				for range 40 {
					for i := range held {
						held[i] = p.Get()
					}
					for _, x := range held {
						p.Put(x)
					}
					runtime.GC()
				}
				if made != n {
					t.Errorf("made %d objects, and %d were in use", made, n)
				}
			})
		})
	}
}

// The same where objects are held over a collection, and put back before the pool
// has heard of it: they are there after the next one.
func TestNoneMadeAnewHeld(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		manualGC(t)
		const n = 64
		made := 0
		p := Pool[*int]{New: func() *int { made++; return new(int) }}
		var held [n]*int
		for range 40 {
			for i := range held {
				held[i] = p.Get()
			}
			p.Put(new(int)) // so that there is a generation to move on
			runtime.GC()
			for _, x := range held {
				p.Put(x)
			}
			runtime.GC()
		}
		if made != n && !debugging {
			t.Errorf("made %d objects, and %d were in use", made, n)
		}
	})
}

// A busy CPU finds in the victim all that it put, its magazine included.
func TestVictimMagazine(t *testing.T) {
	manualGC(t)
	withProcs(t, 1)
	made := 0
	p := Pool[*int]{New: func() *int { made++; return new(int) }}
	for range 2 * coldCalls {
		p.Put(new(int))
	}
	cycle(t, &p)
	for range 2 * coldCalls {
		p.Get()
	}
	if s := p.Stats(); made > 0 || s.Kept != 0 || s.VictimHits != 2*coldCalls {
		t.Fatalf("made %d; %+v", made, s)
	}
}

// stops returns how often the world was stopped so far, by the collector and by
// others.
func stops() (gc, other uint64) {
	s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}, {Name: "/sched/pauses/total/other:seconds"}}
	metrics.Read(s)
	for _, n := range s[0].Value.Float64Histogram().Counts {
		gc += n
	}
	for _, n := range s[1].Value.Float64Histogram().Counts {
		other += n
	}
	return gc, other
}

// Neither Drain nor ageing stops the world, nor does either start a collection.
func TestNoStop(t *testing.T) {
	manualGC(t)
	for _, drop := range []func(int){nil, func(int) {}} {
		p := Pool[int]{Drop: drop}
		gc, other := stops()
		const rounds = 10
		for range rounds {
			p.Put(1)
			p.Drain()
			p.Put(1)
			cycle(t, &p)
			p.Stats()
		}
		gc2, other2 := stops()
		// A collection stops the world twice.
		if gc2-gc != 2*rounds || other2 != other {
			t.Errorf("with Drop %v: %d collections, and the world was stopped %d times by them and %d times else", drop != nil, rounds, gc2-gc, other2-other)
		}
	}
}

// Without Drop nothing is done for an object that leaves: the second collection
// frees it by itself, and what kept it.
func TestAgeFreesByItself(t *testing.T) {
	if debugging {
		t.Skip("a debug build looks at each object that leaves")
	}
	manualGC(t)
	var p Pool[*[64]int]
	for range 3 {
		var seen []weak.Pointer[[64]int]
		for range 1000 {
			x := new([64]int)
			seen = append(seen, weak.Make(x))
			p.Put(x)
		}
		cycle(t, &p)
		if s := p.Stats(); s.Kept != 1000 {
			t.Fatalf("after one collection: %+v", s)
		}
		first := weak.Make(p.victim.Load().first())
		runtime.GC() // without a call of the pool
		for i, w := range seen {
			if w.Value() != nil {
				t.Fatalf("object %d is still held", i)
			}
		}
		if first.Value() != nil {
			t.Fatal("its shard is still held")
		}
		if s := p.Stats(); s.Kept != 0 || s.Drops != s.Puts {
			t.Fatalf("after two collections: %+v", s)
		}
	}
}

// Drain of a pool without Drop, and ageing, do not touch the objects.
func TestUnlink(t *testing.T) {
	if debugging {
		t.Skip("a debug build looks at each object that leaves")
	}
	manualGC(t)
	withProcs(t, 1)
	for _, leave := range []func(p *Pool[int]){
		func(p *Pool[int]) { p.Drain() },
		func(p *Pool[int]) { cycle(t, p) },
		func(p *Pool[int]) { cycle(t, p); cycle(t, p) },
		func(p *Pool[int]) { cycle(t, p); p.Drain() },
	} {
		var p Pool[int]
		const n = 1000
		for range n {
			p.Put(1)
		}
		s := p.local.Load()
		leave(&p)
		left := int(s.n)
		for r := s.chain.tail.Load(); r != nil; r = r.next.Load() {
			left += r.len()
		}
		if left != n || p.local.Load() != nil {
			t.Errorf("%d of %d objects are where they were", left, n)
		}
	}
}

// Objects are dropped in slices: a goroutine that waits for the CPU gets it in
// between.
func TestDropYields(t *testing.T) {
	withProcs(t, 1)
	manualGC(t)
	const n = 40
	var turns, early atomic.Int64
	var stop atomic.Bool
	p := Pool[int]{Drop: func(int) {
		for start := time.Now(); time.Since(start) < dropSlice+time.Microsecond; {
		}
	}}
	for range n {
		p.Put(1)
	}
	done := make(chan bool)
	go func() {
		for !stop.Load() {
			turns.Add(1)
			runtime.Gosched()
		}
		close(done)
	}()
	testwait.Until(t, "the other goroutine", func() bool { return turns.Load() > 0 })
	early.Store(turns.Load())
	p.Drain()
	if d := turns.Load() - early.Load(); d < n/2 {
		t.Errorf("%d slices, and the other goroutine had %d turns", n, d)
	}
	stop.Store(true)
	<-done
}

// A pool that New is too dear for keeps its objects for longer, also without
// Drop, and not while it is unused.
func TestPatienceShared(t *testing.T) {
	if debugging {
		t.Skip("a debug build has the other kind of pool")
	}
	manualGC(t)
	withProcs(t, 1)
	made := 0
	p := Pool[int]{New: func() int { made++; return 1 }}
	cold := p.state()
	for range 100 {
		p.Put(1)
	}
	cold.mu.Lock()
	cold.retention.moreCycles = maxCycles - 1
	cold.mu.Unlock()
	for range maxCycles + 2 { // a little use in each cycle
		p.Put(p.Get())
		cycle(t, &p)
	}
	if s := p.Stats(); s.Kept < 99 || made > 0 {
		t.Fatalf("made %d; %+v", made, s)
	}
	// The last use: a generation is retained, and there is no other.
	p.Put(p.Get())
	cold.mu.Lock()
	cold.retention.moreCycles, cold.skipped = maxCycles-1, maxCycles
	cold.mu.Unlock()
	cycle(t, &p)
	cold.mu.Lock()
	if cold.retained == nil || cold.primary != nil {
		t.Error("a pool whose steps take several collections does not retain its victim")
	}
	cold.mu.Unlock()
	for range 3 {
		cycle(t, &p)
	}
	if s := p.Stats(); s.Kept != 0 {
		t.Fatalf("not used, and %+v", s)
	}
	cold.mu.Lock()
	defer cold.mu.Unlock()
	if cold.retained != nil || cold.notifier.Load() != nil {
		t.Fatal("an idle pool holds a generation, or waits for a collection")
	}
	cold.retained = &generation[int]{}
	cold.mu.Unlock()
	p.Drain()
	cold.mu.Lock()
	if cold.retained != nil {
		t.Fatal("a drained pool holds a generation")
	}
}

// What idle does when nothing else happens: a collection that may have been missed
// counts only if the pool is unused; until one is missed, onIdle is called again later.
func TestIdle(t *testing.T) {
	manualGC(t)
	withProcs(t, 1)
	set := func(cold *coldState[int], missed bool) {
		cold.mu.Lock()
		defer cold.mu.Unlock()
		cold.idleTimer.Stop()
		cold.missedCycle = missed
		cold.idleDelay = time.Hour
	}
	pending := func(cold *coldState[int]) bool {
		cold.mu.Lock()
		defer cold.mu.Unlock()
		return cold.idleDelay == 2*time.Hour && cold.idleTimer.Stop()
	}
	t.Run("locked", func(t *testing.T) {
		drops := 0
		p := Pool[int]{Drop: func(int) { drops++ }}
		p.Put(1)
		cycle(t, &p)
		cold := p.state()
		set(cold, true)
		p.Put(2)
		if p.onIdle(); drops != 0 || !pending(cold) {
			t.Fatalf("a pool in use dropped %d objects, or is not looked at again", drops)
		}
		set(cold, false)
		if p.onIdle(); drops != 0 || !pending(cold) {
			t.Fatalf("a pool that missed no collection dropped %d objects, or is not looked at again", drops)
		}
		set(cold, true)
		if p.onIdle(); drops != 1 {
			t.Fatalf("an idle pool that missed a collection dropped %d objects", drops)
		}
	})
	t.Run("shared", func(t *testing.T) {
		if debugging {
			t.Skip("a debug build has the other kind of pool")
		}
		var p Pool[int]
		p.Put(1)
		cycle(t, &p)
		cold := p.state()
		set(cold, true)
		p.Put(2)
		if p.onIdle(); p.victim.Load() == nil || !pending(cold) {
			t.Fatal("a pool in use lost its victim, or is not looked at again")
		}
		set(cold, false)
		if p.onIdle(); p.victim.Load() == nil || !pending(cold) {
			t.Fatal("a pool that missed no collection lost its victim, or is not looked at again")
		}
		set(cold, true)
		cold.retained = &generation[int]{}
		if p.onIdle(); p.victim.Load() == nil {
			t.Fatal("a pool whose steps take several collections lost its victim")
		}
		cold.retained = nil
		if p.onIdle(); p.victim.Load() != nil {
			t.Fatal("an idle pool that missed a collection has a victim")
		}
	})
}

// An unused pool ages too, on every CPU, and then costs nothing.
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
		testwait.Until(t, "the pool to rest", func() bool {
			runtime.GC()
			cold := p.state()
			return cold.notifier.Load() == nil && cold.locked.kept() == 0
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

// A pool that is no longer referenced is freed, and its objects are dropped.
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
	testwait.Until(t, "the drops", func() bool { runtime.GC(); return drops.Load() == n })
	testwait.Until(t, "the pool's end", func() bool { runtime.GC(); return w.Value() == nil })
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

// The same without Drop: what the fewer CPUs put is found by the more, and no
// generation is ever smaller than one before.
func TestProcsChangeShared(t *testing.T) {
	if debugging || portable {
		t.Skip("another kind of pool, or shards that are not those of CPUs")
	}
	manualGC(t)
	withProcs(t, 1)
	var p Pool[int]
	puts := 10
	for range puts {
		p.Put(1)
	}
	runtime.GOMAXPROCS(2)
	for p.size.Load() < 2 {
		otherCPU(&p, func() { p.Put(1) })
		puts++
	}
	if s := p.Stats(); s.Kept != puts {
		t.Fatalf("put %d; %+v", puts, s)
	}
	for range puts {
		if p.Get() == 0 {
			t.Fatalf("put %d; %+v", puts, p.Stats())
		}
	}
	runtime.GOMAXPROCS(1)
	cycle(t, &p)
	p.Put(1)
	if size, n := p.size.Load(), len(p.state().primary.shards); size != 2 || n != 2 {
		t.Fatalf("%d shards, and the size is %d; there were 2", n, size)
	}
}

// Drain waits for what was ageing out when it began.
func TestDrainWaits(t *testing.T) {
	entered, release, drained := make(chan bool), make(chan bool), make(chan bool)
	p := Pool[int]{Drop: func(int) { entered <- true; <-release }}
	p.Put(1)
	cold := p.state()
	cold.mu.Lock()
	cold.locked.age()
	cold.locked.age()
	cold.mu.Unlock()
	go p.dropLeaving(cold)
	<-entered
	go func() { p.Drain(); close(drained) }()
	select {
	case <-drained:
		t.Error("Drain returned before Drop did")
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	<-drained
}

// A pool with locks looks for the end of a collection at Put and at Get, within
// noticeEvery calls.
func TestNoticeLocked(t *testing.T) {
	manualGC(t)
	withProcs(t, 1)
	for _, call := range []func(*Pool[int]){func(p *Pool[int]) { p.Put(1) }, func(p *Pool[int]) { p.Get() }} {
		p := Pool[int]{Drop: func(int) {}}
		p.Put(1)
		cold := p.state()
		cold.notifier.Store(&notifier{}) // its sentinel is gone, and no cleanup tells
		for range noticeEvery {
			call(&p)
		}
		if n := cold.steps.Load(); n != 1 {
			t.Errorf("aged %d times after one collection", n)
		}
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
