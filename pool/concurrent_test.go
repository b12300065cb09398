package pool

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

// A thing must be dropped once, and not while it is in use.
type thing struct {
	state atomic.Int32 // who has it
	data  int          // plain on purpose: the race detector watches the hand-over
}

const (
	withUser = iota
	inPool
	dropped
)

// Exactly-once: with users, collections, drains and stats at work at the same
// time, each thing is with one owner at a time, and in the end as many were
// dropped as were made.
func TestExactlyOnce(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		for _, most := range []int{0, 5, 100} {
			testExactlyOnce(t, most, true)
		}
		testExactlyOnce(t, 0, false)
	})
}

func testExactlyOnce(t *testing.T, most int, drop bool) {
	var made, drops atomic.Int64
	p := Pool[*thing]{
		New: func() *thing { made.Add(1); return new(thing) },
		Reset: func(x *thing) bool {
			x.data++
			x.state.Store(inPool)
			return x.data%97 != 0
		},
		Drop: func(x *thing) {
			x.data++
			if old := x.state.Swap(dropped); old != inPool {
				t.Errorf("dropped in state %d", old)
			}
			drops.Add(1)
		},
		Max: most,
	}
	if !drop {
		p.Drop = nil
	}
	var stop atomic.Bool
	var users, others sync.WaitGroup
	rounds := 300
	if raceEnabled || testing.Short() {
		rounds /= 5
	}
	for i := range 8 {
		users.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 0))
			var held []*thing
			for range rounds {
				for range rnd.IntN(60) {
					x := p.Get()
					if old := x.state.Swap(withUser); old == dropped || (old == withUser && x.data > 0) {
						t.Errorf("got a thing in state %d", old)
					}
					x.data++
					held = append(held, x)
				}
				if rnd.IntN(4) == 0 {
					runtime.Gosched()
				}
				for n := rnd.IntN(len(held) + 1); n > 0; n-- {
					p.Put(held[len(held)-1])
					held = held[:len(held)-1]
				}
			}
			for _, x := range held {
				p.Put(x)
			}
		})
	}
	collected := make(chan struct{})
	others.Go(func() {
		defer close(collected)
		for !stop.Load() {
			runtime.GC()
			select {
			case collected <- struct{}{}:
			default:
			}
		}
	})
	others.Go(func() {
		for range collected { // which is often enough: what is drained is not found by users
			p.Drain()
			if s := p.Stats(); most > 0 && s.Kept > most {
				t.Errorf("at most %d, and %+v", most, s)
			}
		}
	})
	users.Wait()
	stop.Store(true)
	others.Wait()

	p.Drain()
	if drop && made.Load() != drops.Load() {
		t.Errorf("made %d, dropped %d", made.Load(), drops.Load())
	}
	s := p.Stats()
	if s.Live != 0 || s.Kept != 0 || s.News != uint64(made.Load()) || s.Drops != s.News || s.Puts != s.Gets || s.Gets != s.Hits+s.News {
		t.Errorf("made %d, dropped %d, but %+v", made.Load(), drops.Load(), s)
	}
	if most > 0 {
		if n := p.state().locked.size.Load(); n != 0 {
			t.Errorf("an empty pool of at most %d counts %d objects", most, n)
		}
	}
}

// With no explicit Drain, ageing alone brings every object to Drop.
func TestExactlyOnceByAge(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		var made, drops atomic.Int64
		p := Pool[*thing]{
			New:  func() *thing { made.Add(1); return new(thing) },
			Drop: func(*thing) { drops.Add(1) },
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 2000 {
					a, b := p.Get(), p.Get()
					p.Put(a)
					p.Put(b)
				}
			})
		}
		wg.Wait()
		testwait.Until(t, "all drops", func() bool { runtime.GC(); return drops.Load() == made.Load() })
	})
}

// Max holds while many put at once, and everything beyond it is dropped.
func TestMaxConcurrent(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		for _, most := range []int{1, 7, 64, 1000} {
			var made, drops atomic.Int64
			p := Pool[*thing]{
				New:  func() *thing { made.Add(1); return new(thing) },
				Drop: func(*thing) { drops.Add(1) },
				Max:  most,
			}
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(i), 1))
					for range 20 {
						held := make([]*thing, rnd.IntN(2*most+2))
						for j := range held {
							held[j] = p.Get()
						}
						for _, x := range held {
							p.Put(x)
						}
					}
				})
			}
			wg.Wait()
			before := drops.Load()
			kept := p.Drain()
			if kept > most || int64(kept) != drops.Load()-before || made.Load() != drops.Load() {
				t.Fatalf("kept %d of at most %d; made %d, dropped %d", kept, most, made.Load(), drops.Load())
			}
			if n := p.state().locked.size.Load(); n != 0 {
				t.Fatalf("an empty pool of at most %d counts %d objects", most, n)
			}
		}
	})
}

// otherCPU runs f on another CPU than the caller's, and keeps the caller's busy
// meanwhile.
func otherCPU[T any](p *Pool[T], f func()) {
	for other := false; !other; {
		mine := p.gate.enter()
		p.gate.leave(mine)
		var done atomic.Bool
		go func() {
			id := p.gate.enter()
			p.gate.leave(id)
			if other = id != mine; other {
				f()
			}
			done.Store(true)
		}()
		for !done.Load() { // keeps this CPU busy
		}
	}
}

// What one CPU put, another gets: all of it, but for the magazine of a busy CPU in
// a pool without Drop and Max.
func TestSteal(t *testing.T) {
	withProcs(t, 2)
	manualGC(t)
	for _, test := range []struct {
		n, hidden int
		drop      func(*thing)
		most      int
	}{
		{n: coldCalls / 4},
		{n: 1000, hidden: depth},
		{n: 1000, drop: func(*thing) {}},
		{n: 1000, most: 1000},
		{n: 1, most: 1},
	} {
		for _, aged := range []bool{false, true} {
			p := Pool[*thing]{Drop: test.drop, Max: test.most}
			if p.exact() {
				test.hidden = 0
			}
			for range test.n {
				p.Put(new(thing))
			}
			if aged {
				cycle(t, &p)
			}
			got := 0
			otherCPU(&p, func() {
				for p.Get() != nil {
					got++
				}
			})
			// The goroutine of Put may have moved in between.
			if got < test.n-2*test.hidden || got > test.n {
				t.Errorf("%+v, aged %v: the other CPU got %d", test, aged, got)
			}
			if s := p.Stats(); s.Kept != test.n-got || s.Hits != uint64(got) {
				t.Errorf("%+v, aged %v: %+v", test, aged, s)
			}
		}
	}
}

func TestStress(t *testing.T) {
	n := 200_000
	if raceEnabled || testing.Short() {
		n /= 50
	}
	eachProcs(t, func(t *testing.T) {
		var p Pool[any]
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				var v any = 0
				for range n {
					if v == nil {
						v = 0
					}
					p.Put(v)
					v = p.Get()
					if v != nil && v.(int) != 0 {
						t.Errorf("got %v, want 0", v)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}
