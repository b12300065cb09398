package pump

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
)

func TestPass(t *testing.T) {
	for _, c := range []struct{ n, chunk int }{
		{0, 1}, {1, 1}, {1000, 1}, {100_000, 1447}, {1 << 20, 4096}, {5 << 20, 16 << 10}, {5 << 20, 64 << 10}, {5<<20 + 13, 1 << 20},
	} {
		t.Run(fmt.Sprintf("bytes=%d/chunk=%d", c.n, c.chunk), func(t *testing.T) {
			eachPair(t, func(t *testing.T, w *transfer) { w.pass(c.n, c.chunk) })
		})
	}
}

// Messages never use a pipe, not even those of a TLS record's size (RFC 8446, section 5.2: at most
// 16 KiB, 256 bytes and a header of 5); bulk data does, and Path says so.
func TestPath(t *testing.T) {
	eachPair(t, func(t *testing.T, w *transfer) {
		off := int64(0)
		for i := range 50 {
			n := 1000
			if i >= 25 {
				n = 16<<10 + 256 + 5
			}
			w.write(off, n)
			w.until(WantRead)
			w.read(off, n)
			off += int64(n)
		}
		if n := w.k.Count(testkernel.SpliceIn) + w.k.Count(testkernel.Pipe); n != 0 {
			t.Errorf("small messages were spliced:%s", w.k.Counts())
		}
		if path, why := w.half.Path(); path != datapath.Copy || why != datapath.WhySmall {
			t.Errorf("path %v, %v", path, why)
		}
	})
	eachPair(t, func(t *testing.T, w *transfer) {
		w.pass(8<<20, 1<<20)
		if path, why := w.half.Path(); path != datapath.Splice || why != datapath.WhyNone {
			t.Errorf("path %v, %v", path, why)
		}
		if w.half.Spliced < 4<<20 || w.k.Count(testkernel.SpliceOut) == 0 {
			t.Errorf("only %d bytes of 8 MiB were spliced:%s", w.half.Spliced, w.k.Counts())
		}
		// A collection may have closed the idle pipe meanwhile.
		if n := w.k.Count(testkernel.Pipe); n > 4 {
			t.Errorf("%d pipes were made for one direction", n)
		}
	})
}

// bulk makes the half splice; it returns how many bytes that took.
func (w *transfer) bulk(off int64) int64 {
	w.t.Helper()
	const n = 64 << 10
	for range 300 {
		w.write(off, n)
		// All bytes must have arrived, or the read is not big.
		w.arrived(n)
		w.until(WantRead)
		w.read(off, n)
		off += n
		if w.half.splicing {
			return off
		}
	}
	w.t.Fatalf("big reads do not lead to splicing:%s", w.k.Counts())
	return 0
}

// Both changes of mode, as shown by the system calls.
func TestModes(t *testing.T) {
	eachPair(t, func(t *testing.T, w *transfer) {
		off := w.bulk(0)
		recv, splice := w.k.Count(testkernel.Recv), w.k.Count(testkernel.SpliceIn)
		w.write(off, 100)
		w.until(WantRead)
		w.read(off, 100)
		off += 100
		if w.k.Count(testkernel.Recv) != recv || w.k.Count(testkernel.SpliceIn) == splice {
			t.Errorf("one small read ended the splicing:%s", w.k.Counts())
		}
		for i := 0; w.half.splicing; i++ {
			if i > 20 {
				t.Fatalf("small reads do not lead back to copying:%s", w.k.Counts())
			}
			w.write(off, 100)
			w.until(WantRead)
			w.read(off, 100)
			off += 100
		}
		splice = w.k.Count(testkernel.SpliceIn)
		w.write(off, 100)
		w.until(WantRead)
		w.read(off, 100)
		off += 100
		if w.k.Count(testkernel.SpliceIn) != splice {
			t.Errorf("it still splices:%s", w.k.Counts())
		}
		off = w.bulk(off)
		if w.half.Spliced == 0 || w.half.Spliced == off {
			t.Errorf("%d of %d bytes were spliced", w.half.Spliced, off)
		}
	})
}

// An idle direction has no pipe, whatever it did before.
func TestIdleHasNoPipe(t *testing.T) {
	eachPair(t, func(t *testing.T, w *transfer) {
		w.bulk(0)
		if s := w.env.Pipes.Stats(); s.Leased != 0 || s.Open == 0 {
			t.Errorf("an idle direction that spliced: %+v", s)
		}
	})
}

// A slow reader: the bytes held are bounded, nothing is read meanwhile, the lease lasts as long as
// the pipe holds bytes, and everything arrives once the reader wakes.
func TestSlowReader(t *testing.T) {
	for _, mode := range []string{"copy", "splice"} {
		t.Run("mode="+mode, func(t *testing.T) {
			eachPair(t, func(t *testing.T, w *transfer) {
				const n = 32 << 20
				if mode == "copy" {
					w.half.Refuse(datapath.WhyOff)
				}
				from := w.feed(n, 1<<20)
				w.until(WantWrite)
				// TCP's buffers grow for a while.
				for still, out := 0, int64(-1); still < 50; still++ {
					if w.turn(1<<20) != WantWrite || w.half.Out != out {
						still, out = 0, w.half.Out
					}
					time.Sleep(time.Millisecond)
				}
				in, held := w.half.In, w.half.Held()
				if mode == "copy" && held > ScratchSize {
					t.Errorf("%d bytes held in memory", held)
				}
				if s := w.env.Pipes.Stats(); mode == "splice" && s.Leased != 1 {
					t.Errorf("bytes wait in the pipe: %+v", s)
				}
				recv, splice := w.k.Count(testkernel.Recv), w.k.Count(testkernel.SpliceIn)
				for range 10 {
					if st := w.turn(1 << 20); st != WantWrite {
						t.Fatalf("state %d while nobody reads", st)
					}
				}
				if w.half.In != in || w.k.Count(testkernel.Recv) != recv || w.k.Count(testkernel.SpliceIn) != splice {
					t.Errorf("it reads on while it holds %d bytes", held)
				}
				to := w.drain(n)
				if st := w.run(); st != End {
					t.Fatalf("state %d, %v", st, w.half.Err)
				}
				w.finish(n, from, to)
			})
		})
	}
}

// The source has ended, but the pipe holds bytes: the end must wait for the last of them.
func TestEndWithBytesInThePipe(t *testing.T) {
	eachPair(t, func(t *testing.T, w *transfer) {
		off := w.bulk(0)
		w.k.Fail(testkernel.SpliceOut, sys.EAGAIN, 3)
		w.write(off, 50_000)
		w.near.(interface{ CloseWrite() error }).CloseWrite()
		ready(t, w.src, sys.RdHup, time.Second)
		for range 3 {
			if st := w.turn(1 << 20); st != WantWrite {
				t.Fatalf("state %d with %d bytes in the pipe", st, w.half.Held())
			}
			if s := w.env.Pipes.Stats(); s.Leased != 1 {
				t.Fatalf("%+v", s)
			}
		}
		if st := w.run(); st != End || !w.half.Ended() {
			t.Fatalf("state %d", st)
		}
		w.read(off, 50_000)
	})
}

// What is in the pipe or in memory when a direction is closed is counted, and the pipe is not used
// again.
func TestCloseWithBytesHeld(t *testing.T) {
	for _, c := range []testkernel.Call{testkernel.SpliceOut, testkernel.Send} {
		t.Run(c.String(), func(t *testing.T) {
			eachPair(t, func(t *testing.T, w *transfer) {
				var off int64
				if c == testkernel.SpliceOut {
					off = w.bulk(0)
				}
				w.k.Fail(c, sys.EAGAIN, -1)
				w.write(off, 3000)
				w.until(WantWrite)
				if dropped := w.half.Close(&w.env); dropped != 3000 {
					t.Errorf("%d bytes dropped", dropped)
				}
				if s := w.env.Pipes.Stats(); s.Open != 0 {
					t.Errorf("the pipe was kept: %+v", s)
				}
				if again := w.half.Close(&w.env); again != 3000 {
					t.Errorf("a second Close says %d", again)
				}
				w.closed = true
			})
		})
	}
}

// A reset of either end is an error that names its side.
func TestReset(t *testing.T) {
	reset := func(c net.Conn) {
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		c.Close()
	}
	t.Run("source", func(t *testing.T) {
		eachPair(t, func(t *testing.T, w *transfer) {
			w.srcConn.Write([]byte("never read")) // a Unix socket closed with this in its queue resets
			w.write(0, 1000)
			w.until(WantRead)
			reset(w.near)
			if st := w.run(); st != Failed || w.half.Err != sys.ECONNRESET || !w.half.AtSrc {
				t.Errorf("state %d, %v, at source %v", st, w.half.Err, w.half.AtSrc)
			}
		})
	})
	t.Run("source, splicing", func(t *testing.T) {
		eachPair(t, func(t *testing.T, w *transfer) {
			w.srcConn.Write([]byte("never read"))
			w.bulk(0)
			reset(w.near)
			if st := w.run(); st != Failed || w.half.Err != sys.ECONNRESET || !w.half.AtSrc {
				t.Errorf("state %d, %v, at source %v", st, w.half.Err, w.half.AtSrc)
			}
		})
	})
	resetFar := func(t *testing.T, w *transfer) {
		reset(w.far)
		ready(t, w.dst, sys.Hup, 10*time.Second) // over loopback, too, it may arrive later
	}
	gone := func(t *testing.T, w *transfer, st State) {
		t.Helper()
		if st != Failed || w.half.AtSrc || w.half.Err != sys.ECONNRESET && w.half.Err != sys.EPIPE {
			t.Errorf("state %d, %v, at source %v", st, w.half.Err, w.half.AtSrc)
		}
	}
	t.Run("destination", func(t *testing.T) {
		eachPair(t, func(t *testing.T, w *transfer) {
			resetFar(t, w)
			w.write(0, 1000)
			gone(t, w, w.run())
		})
	})
	t.Run("destination, splicing", func(t *testing.T) {
		eachPair(t, func(t *testing.T, w *transfer) {
			off := w.bulk(0)
			resetFar(t, w)
			w.write(off, 30_000)
			gone(t, w, w.run())
			if w.half.In == w.half.Out {
				t.Error("what was lost is not counted")
			}
		})
	})
	t.Run("destination, bytes held", func(t *testing.T) {
		eachPair(t, func(t *testing.T, w *transfer) {
			w.k.Fail(testkernel.Send, sys.EAGAIN, 2)
			w.write(0, 1000)
			w.until(WantWrite)
			resetFar(t, w)
			gone(t, w, w.run())
			if w.half.Held() != 1000 {
				t.Errorf("%d bytes held of 1000", w.half.Held())
			}
		})
	})
}

func TestSink(t *testing.T) {
	eachPair(t, func(t *testing.T, w *transfer) {
		w.half.Sink = true
		from := w.feed(5<<20, 100_000)
		if st := w.run(); st != End {
			t.Fatalf("state %d, %v", st, w.half.Err)
		}
		w.srcConn.Close()
		if r := <-from; r.Err != "" {
			t.Error(r.Err)
		}
		if w.half.In != 5<<20 || w.half.Out != w.half.In {
			t.Errorf("%d in, %d out", w.half.In, w.half.Out)
		}
		if n := w.k.Count(testkernel.Send) + w.k.Count(testkernel.SpliceIn); n != 0 {
			t.Errorf("a sink writes:%s", w.k.Counts())
		}
	})
}

func TestPreload(t *testing.T) {
	eachPair(t, func(t *testing.T, w *transfer) {
		w.half.Preload(&w.env, nil)
		if w.half.Held() != 0 {
			t.Fatal("nothing is something")
		}
		text := []byte("already read, ")
		w.half.Preload(&w.env, text)
		copy(text, "!!!!!!!!!!!!!!") // the half has its own copy
		if w.half.In != 14 || w.half.Held() != 14 {
			t.Fatalf("in %d, held %d", w.half.In, w.half.Held())
		}
		w.near.Write([]byte("and the rest"))
		w.near.(interface{ CloseWrite() error }).CloseWrite()
		if st := w.run(); st != End {
			t.Fatalf("state %d", st)
		}
		got := make([]byte, 100)
		n, _ := w.far.Read(got)
		for n < 26 {
			m, err := w.far.Read(got[n:])
			if err != nil {
				break
			}
			n += m
		}
		if string(got[:n]) != "already read, and the rest" {
			t.Errorf("got %q", got[:n])
		}
	})
}

// A turn moves about its budget and no more than one read or splice above it.
func TestBudget(t *testing.T) {
	eachPair(t, func(t *testing.T, w *transfer) {
		w.half.Refuse(datapath.WhyOff)
		from, to := w.feed(2<<20, 1<<20), w.drain(2<<20)
		again := 0
		for {
			before := w.half.In
			st := w.turn(10_000)
			if moved := w.half.In - before; moved > 10_000+ScratchSize {
				t.Errorf("a turn of 10,000 bytes took %d", moved)
			}
			if st == End {
				break
			}
			switch st {
			case Again:
				again++
			case WantRead:
				ready(t, w.src, sys.In, time.Second)
			case WantWrite:
				ready(t, w.dst, sys.Out, time.Second)
			default:
				t.Fatalf("state %d, %v", st, w.half.Err)
			}
		}
		if again == 0 {
			t.Error("no turn spent its budget")
		}
		w.finish(2<<20, from, to)
	})
}
