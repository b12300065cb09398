package loop

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// wheelOracle is a wheel without wheels.
type wheelOracle struct {
	at  map[uint32]int64
	now int64
}

func (o *wheelOracle) add(i uint32, at int64) {
	o.at[i] = min(max(at, o.now+1), o.now+wheelSlots-1)
}

func (o *wheelOracle) advance(now int64) (due []uint32) {
	o.now = now
	for i, at := range o.at {
		if at <= now {
			due = append(due, i)
			delete(o.at, i)
		}
	}
	slices.Sort(due)
	return due
}

func (o *wheelOracle) until() int64 {
	first := int64(-1)
	for _, at := range o.at {
		if d := at - o.now; first < 0 || d < first {
			first = d
		}
	}
	return first
}

func TestWheel(t *testing.T) {
	for range 20 {
		seed := rand.Uint64()
		wheelRandomly(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzWheel(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { wheelRandomly(t, seed) })
}

func wheelRandomly(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 3))
	var w wheel
	o := &wheelOracle{at: make(map[uint32]int64)}
	most := 1 + r.IntN(300)
	far := 1 + r.IntN(3*wheelSlots)
	for step := range 3000 {
		i := uint32(r.IntN(most))
		switch r.IntN(4) {
		case 0, 1:
			at := o.now + int64(r.IntN(far)) - 3
			w.add(i, at)
			o.add(i, at)
		case 2:
			w.remove(i)
			delete(o.at, i)
		case 3:
			now := o.now + int64(r.IntN(1+r.IntN(far)))
			var due []uint32
			w.advance(now, math.MaxInt, func(i uint32) { due = append(due, i) })
			slices.Sort(due)
			if want := o.advance(now); !slices.Equal(due, want) {
				t.Fatalf("step %d, Tick %d: %v are due, want %v", step, now, due, want)
			}
		}
		if got, want := w.until(), o.until(); got != want {
			t.Fatalf("step %d: %d ticks until the next, want %d", step, got, want)
		}
	}
	for i := range uint32(most) {
		w.remove(i)
	}
	if w.until() != -1 {
		t.Fatal("an empty wheel has something to do")
	}
}

// What is due may be entered again, and may remove others that are due.
func TestWheelReentrant(t *testing.T) {
	var w wheel
	for i := range uint32(10) {
		w.add(i, 5)
	}
	n := 0
	w.advance(4, math.MaxInt, func(uint32) { t.Error("too early") })
	w.advance(20, math.MaxInt, func(i uint32) {
		n++
		w.remove(i ^ 1)
		if n <= 3 {
			w.add(i, 12)
		}
	})
	// 5 of 10 come up, the first 3 of them once more.
	if n != 8 {
		t.Errorf("%d came up", n)
	}
	// Long after, everything comes up once.
	for i := range uint32(wheelSlots) {
		w.add(i, w.now+1+int64(i))
	}
	n = 0
	w.advance(w.now+100*wheelSlots, math.MaxInt, func(uint32) { n++ })
	if n != wheelSlots || w.until() != -1 {
		t.Errorf("%d came up of %d", n, wheelSlots)
	}
}

func BenchmarkWheel(b *testing.B) {
	var w wheel
	for i := range uint32(10_000) {
		w.add(i, int64(i%500))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.add(uint32(i%10_000), w.now+int64(i%500))
		if i%1000 == 0 {
			w.advance(w.now+1, math.MaxInt, func(i uint32) { w.add(i, w.now+100) })
		}
	}
}
