package pump

import (
	"io"
	"testing"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/testkernel"
)

// An urgent byte stops splice(2) with EAGAIN, and with 0 once the end of the stream is queued
// behind it. What follows it still arrives, and the byte itself is left out, as read(2) leaves it
// out.
func TestUrgent(t *testing.T) {
	for _, c := range []struct {
		name     string
		splicing bool
		ends     bool // the end is queued before the half's first turn
		exact    bool // the owner has not seen the urgent byte when the turn begins
	}{
		{"copying/open", false, false, false},
		{"copying/ended", false, true, false},
		{"splicing/open", true, false, false},
		{"splicing/ended", true, true, false},
		{"splicing/ended/unseen", true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachPair(t, func(t *testing.T, w *transfer) {
				const before, after = 100_000, 30_000
				w.half.splicing = c.splicing
				w.half.Exact = c.exact && w.half.TCP
				if !c.splicing {
					w.half.Refuse(datapath.WhyOff)
				}
				end := func() { w.near.(interface{ CloseWrite() error }).CloseWrite() }
				w.write(0, before)
				if err := testkernel.Urgent(w.near, '!'); err != nil {
					t.Fatal(err)
				}
				w.write(before, after)
				if c.ends {
					end()
				}
				time.Sleep(5 * time.Millisecond) // all of it is queued
				st := w.turn(1 << 20)
				for tries := 0; st == Again || st == WantWrite; st = w.turn(1 << 20) {
					if tries++; tries > 1000 {
						t.Fatalf("state %d;%s", st, w.k.Counts())
					}
				}
				want := WantRead
				if c.ends {
					want = End
				}
				if st != want || w.half.In != before+after || w.half.Out != before+after {
					t.Fatalf("state %d, want %d; %d taken, %d delivered of %d;%s", st, want, w.half.In, w.half.Out, before+after, w.k.Counts())
				}
				w.read(0, before+after)
				if c.ends {
					return
				}
				w.write(before+after, 10)
				w.until(WantRead)
				w.read(before+after, 10)
				end()
				if st := w.run(); st != End {
					t.Errorf("state %d", st)
				}
			})
		})
	}
}

// One urgent byte in a long stream: 4 MiB before it, 300 KiB and the end behind it.
func TestUrgentInBulk(t *testing.T) {
	eachPair(t, func(t *testing.T, w *transfer) {
		const before, after = 4 << 20, 300 << 10
		w.half.Exact = false
		go func() {
			send := func(off, n int) {
				if _, err := w.near.Write(pattern().At(int64(off), n)); err != nil {
					t.Error(err)
				}
			}
			for off := 0; off < before; off += 256 << 10 {
				send(off, 256<<10)
			}
			if err := testkernel.Urgent(w.near, '!'); err != nil {
				t.Error(err)
			}
			send(before, after)
			w.near.(interface{ CloseWrite() error }).CloseWrite()
		}()
		got := make(chan error, 1)
		go func() {
			buf := make([]byte, before+after)
			_, err := io.ReadFull(w.far, buf)
			if err == nil {
				err = pattern().Check(0, buf)
			}
			got <- err
		}()
		if st := w.run(); st != End || w.half.In != before+after {
			t.Errorf("state %d, %v, %d bytes", st, w.half.Err, w.half.In)
		}
		w.dstConn.Close()
		if err := <-got; err != nil {
			t.Error(err)
		}
		if w.half.Spliced == 0 {
			t.Errorf("nothing was spliced;%s", w.k.Counts())
		}
	})
}

// A source without urgent data costs no additional call.
func TestUrgentCostsNothing(t *testing.T) {
	w := newTransfer(t, "tcp4", "tcp4")
	off := w.bulk(0)
	recv, in := w.k.Count(testkernel.Recv), w.k.Count(testkernel.SpliceIn)
	w.write(off, 50_000)
	w.arrived(50_000)
	w.until(WantRead)
	w.read(off, 50_000)
	if n := w.k.Count(testkernel.Recv) - recv; n != 0 {
		t.Errorf("%d calls of recv", n)
	}
	if n := w.k.Count(testkernel.AtMark); n != 0 {
		t.Errorf("the mark was asked for %d times", n)
	}
	if w.k.Count(testkernel.SpliceIn) == in {
		t.Error("nothing was spliced")
	}
}
