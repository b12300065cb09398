package pump

import (
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testwait"
)

// stalled returns a half from a Unix socket whose pipe holds bytes that the
// destination does not take, and how many bytes were written and read.
func stalled(t *testing.T, dst string) (w *transfer, off int64) {
	w = newTransfer(t, "unix", dst)
	off = w.bulk(0)
	w.k.Fail(testkernel.SpliceOut, sys.EAGAIN, -1)
	w.write(off, 50_000)
	if st := w.turn(1 << 20); st != WantWrite {
		t.Fatalf("state %d", st)
	}
	return w, off
}

// While the destination takes nothing, a Unix source's peer can continue to write, up to the pipe's
// size. Nothing is lost, and the end comes last.
func TestAhead(t *testing.T) {
	for _, dst := range []string{"unix", "tcp4"} {
		t.Run("dst="+dst, func(t *testing.T) {
			w, off := stalled(t, dst)
			sent := int64(50_000)
			w.near.SetWriteDeadline(time.Now().Add(testwait.Patience))
			for w.half.Held() < PipeSize { // more than fits into the source's buffer
				n, err := w.near.Write(pattern().At(off+sent, 20_000))
				if sent += int64(n); err != nil {
					t.Fatalf("%v with %d bytes held", err, w.half.Held())
				}
				w.half.aheadStopped = false // as after some progress
				if st := w.turn(1 << 20); st != WantWrite {
					t.Fatalf("state %d", st)
				}
			}
			calls := w.k.Count(testkernel.SpliceIn)
			w.near.Write(pattern().At(off+sent, 20_000))
			sent += 20_000
			w.turn(1 << 20)
			if w.half.Held() > PipeSize || w.k.Count(testkernel.SpliceIn) != calls {
				t.Errorf("a full pipe is filled further, to %d;%s", w.half.Held(), w.k.Counts())
			}
			w.near.(interface{ CloseWrite() error }).CloseWrite()
			w.k.Heal()
			got := make(chan struct{})
			go func() {
				defer close(got)
				w.read(off, int(sent))
			}()
			if st := w.run(); st != End || w.half.In != off+sent {
				t.Errorf("state %d, %d bytes of %d", st, w.half.In, off+sent)
			}
			<-got
		})
	}
}

// Nothing more is read while there is no progress at either side.
func TestAheadSated(t *testing.T) {
	w, _ := stalled(t, "unix")
	calls := w.k.Count(testkernel.SpliceIn)
	for range 10 {
		w.turn(1 << 20)
	}
	if n := w.k.Count(testkernel.SpliceIn) - calls; n > 1 {
		t.Errorf("asked %d times for what is not there", n)
	}
}

// Once the destination has taken something, the source is looked at again.
func TestAheadAgain(t *testing.T) {
	w, off := stalled(t, "unix")
	w.turn(1 << 20)
	if !w.half.aheadStopped {
		t.Fatal("there was nothing more to read, and it does not know")
	}
	w.write(off+50_000, 50_000)
	held := w.half.Held()
	w.k.Heal()
	w.k.Short(testkernel.SpliceOut, 1000, 1)
	w.k.Fail(testkernel.SpliceOut, sys.EAGAIN, -1)
	if st := w.turn(1 << 20); st != WantWrite || w.half.Held() != held-1000+50_000 {
		t.Errorf("state %d, %d bytes held, %d before", st, w.half.Held(), held)
	}
}

// A source that is reset meanwhile fails, once what was read before is delivered.
func TestAheadReset(t *testing.T) {
	w := newTransfer(t, "unix", "unix")
	w.srcConn.Write([]byte("never read")) // closed with this in its queue, the peer resets
	off := w.bulk(0)
	w.k.FailAfter(0, testkernel.SpliceOut, sys.EAGAIN, 3)
	w.write(off, 50_000)
	if st := w.turn(1 << 20); st != WantWrite {
		t.Fatalf("state %d", st)
	}
	w.near.Close()
	w.half.aheadStopped = false
	if st := w.turn(1 << 20); st != WantWrite || w.half.Err != sys.ECONNRESET {
		t.Fatalf("state %d, %v seen", st, w.half.Err)
	}
	if st := w.run(); st != Failed || w.half.Err != sys.ECONNRESET || !w.half.AtSrc || w.half.Out != w.half.In {
		t.Errorf("state %d, %v, at source %v; %d of %d delivered", st, w.half.Err, w.half.AtSrc, w.half.Out, w.half.In)
	}
	w.read(off, 50_000)
}

// The send buffer of a Unix destination grows once many of the bytes spliced to it have to wait,
// unless it was set before; that of a TCP destination is left to the kernel.
func TestSendBuffer(t *testing.T) {
	size := func(fd int) int {
		n, e := sys.SendBuffer.Get(sys.Linux{}, fd)
		if e != 0 {
			t.Fatal(e)
		}
		return n
	}
	for _, c := range []struct {
		dst   string
		own   int // 0: the kernel's
		grows bool
	}{
		{"unix", 0, true}, {"unix", 100_000, false}, {"tcp4", 0, false},
	} {
		w := newTransfer(t, "unix", c.dst)
		sys.SetBuffers(sys.Linux{}, w.dst, 0, c.own)
		before := size(w.dst)
		if c.own == 0 && before != 212992 {
			c.grows = false // this machine's default is different
		}
		off := w.bulk(0)
		w.k.Fail(testkernel.SpliceOut, sys.EAGAIN, 1)
		w.write(off, 1000)
		w.until(WantRead)
		w.read(off, 1000)
		if n := size(w.dst); c.dst == "unix" && n != before {
			t.Errorf("%+v: a small message that waits changes it from %d to %d", c, before, n)
		}
		w.k.Fail(testkernel.SpliceOut, sys.EAGAIN, 1)
		w.write(off+1000, enlargeAt+10_000)
		w.until(WantRead)
		w.read(off+1000, enlargeAt+10_000)
		if c.dst == "unix" && (size(w.dst) >= 2*before) != c.grows {
			t.Errorf("%+v: from %d to %d", c, before, size(w.dst))
		}
	}
}
