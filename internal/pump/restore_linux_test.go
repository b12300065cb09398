package pump

import (
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
)

// A half whose process died while it copied what the pipe held out of it delivers first what was copied,
// then the rest of the pipe, and then what comes. Until then it does not read on into the pipe: the ledger
// could not tell those bytes from the others.
func TestRestoreDraining(t *testing.T) {
	eachPair(t, func(t *testing.T, w *transfer) {
		const base, rest, piped, more = 10_000, 3000, 9000, 20_000
		x := Held{Block: append(w.buffers.Get(5000)[:0], pattern().At(base-(5000-rest), 5000)...), Rest: rest, Pipe: w.env.Pipes.Get(), Piped: piped}
		put(t, x.Pipe, string(pattern().At(base+rest, piped)))
		w.half.Restore(&w.env, base+rest+piped, base, 0, x)
		w.write(base+rest+piped, more)
		w.k.Fail(testkernel.Send, sys.EAGAIN, -1)
		w.k.Fail(testkernel.SpliceOut, sys.EAGAIN, -1)
		for range 3 {
			if st := w.half.Turn(&w.env, w.src, w.dst, 1<<20); st != WantWrite || w.half.In != base+rest+piped {
				t.Fatalf("state %d after %d bytes", st, w.half.In)
			}
		}
		w.k.Heal()
		got := make(chan struct{})
		go func() {
			defer close(got)
			w.read(base, rest+piped+more)
		}()
		w.until(WantRead)
		<-got
	})
}
