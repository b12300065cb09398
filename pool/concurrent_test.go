package pool

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A thing must be dropped once, and not while anybody has it.
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
			testExactlyOnce(t, most)
		}
	})
}

func testExactlyOnce(t *testing.T, most int) {
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
	others.Go(func() {
		for !stop.Load() {
			runtime.GC()
		}
	})
	others.Go(func() {
		for !stop.Load() {
			time.Sleep(2 * time.Millisecond)
			p.Drain()
			if s := p.Stats(); most > 0 && s.Kept > most+8 {
				t.Errorf("at most %d, and %+v", most, s)
			}
		}
	})
	users.Wait()
	stop.Store(true)
	others.Wait()

	p.Drain()
	if made.Load() != drops.Load() {
		t.Errorf("made %d, dropped %d", made.Load(), drops.Load())
	}
	s := p.Stats()
	if s.Live != 0 || s.Kept != 0 || s.News != uint64(made.Load()) || s.Drops != s.News || s.Puts != s.Gets || s.Gets != s.Hits+s.News {
		t.Errorf("made %d, dropped %d, but %+v", made.Load(), drops.Load(), s)
	}
	if most > 0 {
		if room := p.ledger().room.Load(); room != int64(most) {
			t.Errorf("room for %d of %d is left in an empty pool", room, most)
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
		eventually(t, "all drops", func() bool { runtime.GC(); return drops.Load() == made.Load() })
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
			if room := p.ledger().room.Load(); room != int64(most) {
				t.Fatalf("room for %d of %d is left in an empty pool", room, most)
			}
		}
	})
}

// What one CPU put, another gets.
func TestSteal(t *testing.T) {
	withProcs(t, 2)
	manualGC(t)
	for _, aged := range []bool{false, true} {
		// The second goroutine need not start on the other CPU; it does soon.
		eventually(t, "a steal", func() bool {
			var p Pool[*thing]
			const n = 1000
			for range n {
				p.Put(new(thing))
			}
			if aged {
				cycle(t, &p)
			}
			var done atomic.Bool
			got := 0
			go func() {
				for range n {
					if p.Get() != nil {
						got++
					}
				}
				done.Store(true)
			}()
			for !done.Load() { // keeps this CPU busy
			}
			// The other CPU cannot reach into the magazine.
			if got < n-depth {
				t.Fatalf("aged %v: the other CPU got %d of %d", aged, got, n)
			}
			return p.Stats().Steals > 0
		})
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
