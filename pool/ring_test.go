package pool

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A chain does what a slice does.
func TestChainModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var c chain[int]
		var model []int // oldest first
		next := 1
		for range 300 {
			to := make([]int, 1+rnd.IntN(20))
			switch rnd.IntN(5) {
			case 0, 1:
				for i := range to {
					to[i] = next
					next++
				}
				c.push(to)
				model = append(model, to...)
			case 2, 3:
				n := c.popHead(to)
				if n == 0 && len(model) > 0 {
					t.Fatalf("popHead found nothing of %d", len(model))
				}
				if rest := len(model) - n; !slices.Equal(model[rest:], to[:n]) {
					t.Fatalf("popHead gave %v of %v", to[:n], model)
				}
				model = model[:len(model)-n]
			case 4:
				n := c.popTail(to)
				if n == 0 && len(model) > 0 {
					t.Fatalf("popTail found nothing of %d", len(model))
				}
				if !slices.Equal(model[:n], to[:n]) {
					t.Fatalf("popTail gave %v of %v", to[:n], model)
				}
				model = model[n:]
			}
		}
		for r := c.tail.Load(); r != nil; r = r.next.Load() {
			head, tail := unpack(r.headTail.Load())
			for i, x := range r.slots {
				in := uint32(i)-tail&uint32(len(r.slots)-1)&uint32(len(r.slots)-1) < head-tail
				if x != 0 && !in && !slices.Contains(model, x) {
					t.Fatalf("slot %d still holds %d", i, x)
				}
			}
		}
	}
}

// Each object that was pushed is popped once, by any goroutine.
func TestChainConcurrent(t *testing.T) {
	total := 300_000
	if raceEnabled || testing.Short() {
		total /= 10
	}
	eachProcs(t, func(t *testing.T) {
		var c chain[int]
		seen := make([]atomic.Int32, total)
		var left atomic.Int64
		left.Store(int64(total))
		record := func(xs []int) {
			for _, x := range xs {
				seen[x].Add(1)
			}
			left.Add(-int64(len(xs)))
		}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				to := make([]int, 1+3*i)
				for left.Load() > 0 {
					if n := c.popTail(to); n > 0 {
						record(to[:n])
					} else {
						runtime.Gosched()
					}
				}
			})
		}
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, 2))
			for next := 0; next < total; {
				xs := make([]int, min(1+rnd.IntN(10), total-next))
				for i := range xs {
					xs[i] = next
					next++
				}
				c.push(xs)
				if rnd.IntN(3) == 0 {
					record(xs[:c.popHead(xs)])
				}
				if rnd.IntN(50) == 0 {
					runtime.Gosched()
				}
			}
		})
		wg.Wait()
		for x := range seen {
			if n := seen[x].Load(); n != 1 {
				t.Fatalf("object %d came out %d times", x, n)
			}
		}
	})
}

// Indices wrap around 32 bits.
func TestRingWraps(t *testing.T) {
	r := newRing[int](8)
	const start = 1<<32 - 5
	r.headTail.Store(start<<32 | start)
	r.done.Store(start)
	r.freeBefore = start
	to := make([]int, 8)
	for i := range 10 {
		if n := r.push([]int{1, 2, 3, 4, 5, 6, 7, 8, 9}); n != 8 {
			t.Fatalf("round %d: pushed %d", i, n)
		}
		if n := r.popTail(to[:3]); n != 3 || to[0] != 1 {
			t.Fatalf("round %d: popped %v", i, to[:n])
		}
		if n := r.popHead(to); n != 5 || to[4] != 8 {
			t.Fatalf("round %d: popped %v", i, to[:n])
		}
	}
}
