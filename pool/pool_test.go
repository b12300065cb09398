package pool

import (
	"runtime"
	"slices"
	"testing"
	"unsafe"
	"weak"
)

func TestOrder(t *testing.T) {
	manualGC(t)
	withProcs(t, 1)
	var p Pool[string]
	if x := p.Get(); x != "" {
		t.Fatalf("empty pool gave %q", x)
	}
	p.Put("a")
	p.Put("b")
	for _, want := range []string{"b", "a", ""} {
		if x := p.Get(); x != want {
			t.Fatalf("got %q, want %q", x, want)
		}
	}
}

func TestNew(t *testing.T) {
	manualGC(t)
	withProcs(t, 1)
	made := 0
	p := Pool[int]{New: func() int { made++; return made }}
	for want := 1; want <= 2; want++ {
		if x := p.Get(); x != want {
			t.Fatalf("got %d, want %d", x, want)
		}
	}
	p.Put(42)
	if x := p.Get(); x != 42 {
		t.Fatalf("got %d, want 42", x)
	}
	if x := p.Get(); x != 3 {
		t.Fatalf("got %d, want 3", x)
	}
	if s := p.Stats(); s.Gets != 4 || s.Hits != 1 || s.News != 3 || s.Puts != 1 || s.Kept != 0 || s.Live != 3 {
		t.Fatalf("%+v", s)
	}
}

// New that panics, or that uses the pool itself, leaves the pool in order.
func TestNewReenters(t *testing.T) {
	withProcs(t, 1)
	var p Pool[int]
	depth := 0
	p.New = func() int {
		if depth++; depth == 3 {
			panic("no more")
		}
		p.Put(depth)
		x := p.Get()
		p.Get() // empty: New again
		return x
	}
	func() {
		defer func() {
			if recover() != "no more" {
				t.Error("New did not panic")
			}
		}()
		p.Get()
	}()
	p.Put(7)
	if x := p.Get(); x != 7 {
		t.Fatalf("got %d, want 7", x)
	}
}

func TestReset(t *testing.T) {
	var dropped []int
	p := Pool[*int]{
		Reset: func(x *int) bool { *x++; return *x%2 == 0 },
		Drop:  func(x *int) { dropped = append(dropped, *x) },
	}
	for i := range 10 {
		p.Put(&i)
	}
	if want := []int{1, 3, 5, 7, 9}; !slices.Equal(dropped, want) {
		t.Fatalf("dropped %v, want %v", dropped, want)
	}
	if n := p.Drain(); n != 5 || len(dropped) != 10 {
		t.Fatalf("drained %d, dropped %v", n, dropped)
	}
	if s := p.Stats(); s.Puts != 10 || s.Drops != 10 || s.Kept != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestMax(t *testing.T) {
	for _, most := range []int{1, 3, 4, 17, 100, 1000} {
		eachProcs(t, func(t *testing.T) {
			manualGC(t)
			drops := 0
			p := Pool[int]{Max: most, Drop: func(int) { drops++ }}
			for range 3 {
				drops = 0
				for i := range 2 * most {
					p.Put(i)
				}
				kept := p.Stats().Kept
				// The goroutine may have moved, and left room with its old CPU.
				if kept > most || kept < most-most/4 || (runtime.GOMAXPROCS(0) == 1 && kept != most) {
					t.Fatalf("kept %d of at most %d", kept, most)
				}
				if drops != 2*most-kept {
					t.Fatalf("dropped %d, kept %d of %d", drops, kept, 2*most)
				}
				for range kept / 2 {
					p.Get()
				}
				cycle(t, &p)
				p.Drain()
			}
			if n := p.state().locked.size.Load(); n != 0 {
				t.Fatalf("an empty pool of at most %d counts %d objects", most, n)
			}
		})
	}
}

func TestDrain(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		manualGC(t)
		drops := 0
		p := Pool[int]{Drop: func(int) { drops++ }}
		if n := p.Drain(); n != 0 {
			t.Fatalf("drained %d from the zero pool", n)
		}
		for round := range 3 {
			for i := range 1000 {
				p.Put(i)
			}
			if round == 1 {
				cycle(t, &p)
			}
			drops = 0
			if n := p.Drain(); n != 1000 || drops != 1000 {
				t.Fatalf("drained %d, dropped %d, of 1000", n, drops)
			}
			if n := p.Drain(); n != 0 {
				t.Fatalf("drained %d from an empty pool", n)
			}
			if x := p.Get(); x != 0 {
				t.Fatalf("got %d from an empty pool", x)
			}
		}
	})
}

func TestNil(t *testing.T) {
	for name, f := range map[string]func(*Pool[int]){
		"Get": func(p *Pool[int]) { p.Get() },
		"Put": func(p *Pool[int]) { p.Put(1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s on a nil pool did not panic", name)
				}
			}()
			f(nil)
		}()
	}
}

// Zero values are objects like any other.
func TestZeroValues(t *testing.T) {
	testZero[*int](t)
	testZero[any](t)
	testZero[[]byte](t)
	testZero[struct{}](t)
	testZero[[3]string](t)
	testZero[[4096]byte](t)
	testZero[func()](t)
}

func testZero[T any](t *testing.T) {
	t.Helper()
	var zero T
	made, dropped := 0, 0
	p := Pool[T]{
		New:  func() T { made++; return zero },
		Drop: func(T) { dropped++ },
	}
	for range 100 {
		p.Put(zero)
	}
	for range 50 {
		p.Get()
	}
	if n := p.Drain(); n+made != 50+made || dropped != n || made != 0 {
		t.Errorf("%T: drained %d, dropped %d, made %d", &p, n, dropped, made)
	}
}

// What is taken out is not held by the pool any more.
func TestNoHoldOfTaken(t *testing.T) {
	withProcs(t, 1)
	manualGC(t)
	var p Pool[*[64]int]
	const n = 2 * coldCalls // through a magazine too
	var seen []weak.Pointer[[64]int]
	for range n {
		x := new([64]int)
		seen = append(seen, weak.Make(x))
		p.Put(x)
	}
	for range n {
		p.Get()
	}
	runtime.GC()
	alive := 0
	for _, w := range seen {
		if w.Value() != nil {
			alive++
		}
	}
	if alive > 1 { // one may still be in a register or on the stack
		t.Fatalf("%d of %d taken objects are still held", alive, n)
	}
}

// A CPU that calls often has a magazine, whichever it calls, and one that does not
// has none.
func TestMagazine(t *testing.T) {
	if debugging {
		t.Skip("a debug build has the other kind of pool")
	}
	withProcs(t, 1)
	manualGC(t)
	for _, call := range []func(*Pool[int]){func(p *Pool[int]) { p.Put(1) }, func(p *Pool[int]) { p.Get() }} {
		var p Pool[int]
		for n := 1; n <= coldCalls+1; n++ {
			call(&p)
			if n == coldCalls && !p.local.Load().cold() || n > coldCalls && p.local.Load().cold() {
				t.Fatalf("after %d calls: %d objects fit in the magazine", n, len(p.local.Load().items))
			}
		}
	}
}

func TestAllocs(t *testing.T) {
	if debugging {
		t.Skip("a debug build allocates, and objects to what this test does")
	}
	manualGC(t)
	testAllocs(t, new(int))
	testAllocs(t, make([]byte, 100))
	testAllocs(t, struct{ a, b, c int }{1, 2, 3})
	testAllocs[any](t, "x")
}

func testAllocs[T any](t *testing.T, x T) {
	t.Helper()
	for _, most := range []int{0, 2, 1000} {
		p := Pool[T]{Max: most, Reset: func(T) bool { return true }, Drop: func(T) {}}
		n := testing.AllocsPerRun(100, func() {
			for range 100 {
				p.Put(x)
			}
			for range 110 {
				p.Get()
			}
		})
		if n != 0 {
			t.Errorf("%T, Max %d: %v allocations", x, most, n)
		}
	}
}

func TestShardSize(t *testing.T) {
	for _, size := range []uintptr{unsafe.Sizeof(shard[int]{}), unsafe.Sizeof(shard[[]byte]{}), unsafe.Sizeof(shard[struct{}]{})} {
		if !raceEnabled && size != shardSize {
			t.Errorf("a shard is %d bytes, not %d", size, shardSize)
		}
	}
	if a, b := unsafe.Sizeof(lockedShard[int]{}), unsafe.Sizeof(counts{}); a != 2*cacheLine || b != 2*cacheLine {
		t.Errorf("a locked shard is %d bytes, the counts are %d; want two cache lines each", a, b)
	}
}

// What New did not make, because it has panicked or ended its goroutine, is not alive.
func TestNewFails(t *testing.T) {
	for _, max := range []int{0, 4} { // both kinds of shards
		calls := 0
		p := Pool[*int]{Max: max, New: func() *int {
			switch calls++; calls % 3 {
			case 1:
				panic("no object")
			case 2:
				runtime.Goexit()
			}
			return new(int)
		}}
		var got []*int
		for range 9 {
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { recover() }()
				got = append(got, p.Get())
			}()
			<-done
		}
		if s := p.Stats(); len(got) != 3 || s.News != 9 || s.Live != 3 {
			t.Errorf("max=%d: %d objects, %+v", max, len(got), s)
		}
		for _, x := range got {
			p.Put(x)
		}
		p.Drain()
		if s := p.Stats(); s.Live != 0 || s.Kept != 0 {
			t.Errorf("max=%d: %+v after Drain", max, s)
		}
	}
}
