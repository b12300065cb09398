package pool

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

// Every size gets the smallest class that holds it, and wastes less than a
// quarter.
func TestClasses(t *testing.T) {
	for n := range MaxBuffer + 1 {
		c := classOf(n)
		size := classSize(c)
		if size < n || (c > 0 && classSize(c-1) >= n) || (size > 64 && 4*size >= 5*n) {
			t.Fatalf("%d bytes get class %d, of %d", n, c, size)
		}
	}
	if size := classSize(classes - 1); size != MaxBuffer {
		t.Fatalf("the last class is of %d bytes", size)
	}
}

// Whatever was put, Get returns a buffer of the length requested, and of memory that is
// not in use.
func TestBuffersLength(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		var b Buffers
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 0))
				mark := byte(i + 1)
				for range 300 {
					var held [][]byte
					for range rnd.IntN(8) {
						n := rnd.IntN(1 << rnd.IntN(18))
						buf := b.Get(n)
						if len(buf) != n || (cap(buf) > 64 && 4*cap(buf) >= 5*n) {
							t.Errorf("Get(%d): length %d, capacity %d", n, len(buf), cap(buf))
						}
						for j := range buf {
							buf[j] = mark
						}
						held = append(held, buf)
					}
					for _, buf := range held {
						for _, x := range buf {
							if x != mark {
								t.Errorf("a buffer has two owners")
								return
							}
						}
						// As it came, cut, or one that is not of a class.
						switch rnd.IntN(3) {
						case 0:
							b.Put(buf)
						case 1:
							b.Put(buf[:len(buf)/2])
						case 2:
							b.Put(make([]byte, rnd.IntN(5000)))
						}
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestBuffersEdges(t *testing.T) {
	withProcs(t, 1)
	manualGC(t)
	var b Buffers
	for _, n := range []int{0, 1, 63, 64, 65, MaxBuffer, MaxBuffer + 1, 3 * MaxBuffer} {
		buf := b.Get(n)
		if len(buf) != n {
			t.Fatalf("Get(%d) has length %d", n, len(buf))
		}
		b.Put(buf)
	}
	b.Put(nil)
	b.Put(make([]byte, 63))
	s := b.Stats()
	if s.Oversize != 2 || s.Bytes != 64+80+MaxBuffer || len(s.Classes) != 3 {
		t.Fatalf("%+v", s)
	}
	// 100 bytes of capacity serve 96.
	b.Put(make([]byte, 100)[:0:100])
	if buf := b.Get(90); len(buf) != 90 || cap(buf) != 96 {
		t.Fatalf("length %d, capacity %d", len(buf), cap(buf))
	}
	if n := b.Drain(); n != 64+80+MaxBuffer {
		t.Fatalf("drained %d bytes", n)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Get(-1) did not panic")
			}
		}()
		b.Get(-1)
	}()
}

func TestBuffersMax(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		manualGC(t)
		const most = 100_000
		b := Buffers{Max: most}
		fill := func() {
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(i), 0))
					var held [][]byte
					for range 100 {
						held = append(held, b.Get(rnd.IntN(5000)))
					}
					for _, buf := range held {
						b.Put(buf)
					}
				})
			}
			wg.Wait()
			if n := b.Stats().Bytes; n > most || n < most*9/10 {
				t.Fatalf("%d bytes are kept of at most %d", n, most)
			}
		}
		fill()
		testwait.Until(t, "the buffers to age", func() bool { runtime.GC(); return b.kept.Load() == 0 })
		fill()
		if n := b.Drain(); n > most || b.kept.Load() != 0 {
			t.Fatalf("drained %d bytes of at most %d, and %d are left", n, most, b.kept.Load())
		}
	})
}

func TestBuffersAllocs(t *testing.T) {
	manualGC(t)
	for _, most := range []int{0, 1 << 20} {
		b := Buffers{Max: most}
		n := testing.AllocsPerRun(100, func() {
			x, y := b.Get(100), b.Get(5000)
			b.Put(x)
			b.Put(y)
		})
		if n != 0 && !debugging {
			t.Errorf("Max %d: %v allocations", most, n)
		}
	}
}
