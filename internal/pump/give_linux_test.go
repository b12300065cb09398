package pump

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testwait"
)

// What is given to the half goes out before anything it reads, however the destination takes it.
// Its own bytes do not count as taken or delivered.
func TestGive(t *testing.T) {
	for _, own := range []int{0, 1, 50, 100} {
		for _, short := range []int{0, 1, 49, 50, 51} {
			t.Run(fmt.Sprintf("own=%d/short=%d", own, short), func(t *testing.T) {
				eachPair(t, func(t *testing.T, w *transfer) {
					if short > 0 {
						w.k.Short(testkernel.Send, short, 5)
					}
					given := w.buffers.Get(100)
					for i := range given {
						given[i] = byte(i)
					}
					want := append(bytes.Clone(given), pattern().At(0, 1000)...)
					w.half.Give(&w.env, given, own)
					if w.half.Held() != 100 || w.half.In != int64(100-own) {
						t.Fatalf("holds %d, has taken %d", w.half.Held(), w.half.In)
					}
					w.write(0, 1000)
					w.until(WantRead)
					got := make([]byte, len(want))
					w.far.SetReadDeadline(time.Now().Add(testwait.Patience))
					if n, err := io.ReadFull(w.far, got); err != nil || !bytes.Equal(got, want) {
						t.Fatalf("%d bytes, %v", n, err)
					}
					if n := int64(len(want) - own); w.half.In != n || w.half.Out != n {
						t.Errorf("taken %d, delivered %d, want %d", w.half.In, w.half.Out, n)
					}
				})
			})
		}
	}
}

// If the half is closed first, it has dropped the bytes that came from the source.
func TestGiveAndClose(t *testing.T) {
	w := newTransfer(t, "tcp4", "tcp4")
	w.half.Give(&w.env, w.buffers.Get(100), 30)
	if n := w.half.Close(&w.env); n != 70 {
		t.Errorf("%d bytes dropped", n)
	}
	w.half = Half{}
	w.half.Give(&w.env, w.buffers.Get(100)[:0], 0)
	if w.half.Held() != 0 {
		t.Error("an empty buffer is held")
	}
}

// A sink also takes what is given to it.
func TestGiveToSink(t *testing.T) {
	w := newTransfer(t, "tcp4", "tcp4")
	w.half.Sink = true
	w.half.Give(&w.env, w.buffers.Get(100), 0)
	if st := w.turn(1000); st != WantRead || w.half.Out != 100 {
		t.Errorf("state %d, %d delivered", st, w.half.Out)
	}
}

// A hard budget is the maximum that a turn reads, whether it copies or splices.
func TestHardBudget(t *testing.T) {
	for mode, budgets := range map[string][]int{
		"copy":   {0, 1, 100, 10_000, 200_000, 64 << 10},
		"splice": {0, 10_000, 200_000, 64 << 10},
		"sink":   {0, 1, 100, 10_000, 200_000, 64 << 10},
	} {
		t.Run("mode="+mode, func(t *testing.T) {
			eachPair(t, func(t *testing.T, w *transfer) {
				const n = 1 << 20
				w.env.Hard = true
				w.half.Sink = mode == "sink"
				w.half.splicing = mode == "splice"
				from := w.feed(n, 64<<10)
				to := w.drain(n)
				for i, st := 0, Again; st != End; i++ {
					budget, in := budgets[i%len(budgets)], w.half.In
					st = w.turn(budget)
					if moved := w.half.In - in; moved > int64(budget) {
						t.Fatalf("%d bytes with a budget of %d", moved, budget)
					}
					switch st {
					case WantRead:
						ready(t, w.src, sys.In, time.Second)
					case WantWrite:
						ready(t, w.dst, sys.Out, time.Second)
					case Failed:
						t.Fatal(w.half.Err)
					}
				}
				if mode != "sink" {
					w.finish(n, from, to)
					return
				}
				w.srcConn.Close()
				w.dstConn.Close()
				if r := <-from; r.Err != "" || w.half.Out != n {
					t.Errorf("%+v, %d delivered", r, w.half.Out)
				}
				<-to
			})
		})
	}
}
