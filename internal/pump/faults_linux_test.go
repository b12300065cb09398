package pump

import (
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
)

// An interrupted call is repeated, wherever it was.
func TestInterrupted(t *testing.T) {
	for _, c := range []testkernel.Call{testkernel.Recv, testkernel.Send, testkernel.SpliceIn, testkernel.SpliceOut} {
		t.Run(c.String(), func(t *testing.T) {
			eachPair(t, func(t *testing.T, w *transfer) {
				w.k.FailAfter(1, c, sys.EINTR, 5)
				w.pass(2<<20, 1<<20)
			})
		})
	}
	t.Run("discard", func(t *testing.T) {
		eachPair(t, func(t *testing.T, w *transfer) {
			w.half.Sink = true
			w.k.Fail(testkernel.Discard, sys.EINTR, 5)
			from := w.feed(1000, 100)
			if st := w.run(); st != End {
				t.Fatalf("state %d", st)
			}
			w.srcConn.Close()
			<-from
		})
	})
}

// Short writes neither lose nor duplicate bytes.
func TestShortWrites(t *testing.T) {
	for _, c := range []testkernel.Call{testkernel.Send, testkernel.SpliceOut} {
		t.Run(c.String(), func(t *testing.T) {
			eachPair(t, func(t *testing.T, w *transfer) {
				w.k.Short(c, 1447, -1)
				if c == testkernel.Send {
					w.half.Refuse(datapath.WhyOff) // or else most of it is spliced, and how much depends on the reads
				}
				w.pass(2<<20, 1<<20)
				if w.k.Count(c) < 50 {
					t.Errorf("too few calls for that:%s", w.k.Counts())
				}
			})
		})
	}
}

// A source that the kernel does not splice from is copied.
func TestSourceRefusesSplice(t *testing.T) {
	eachPair(t, func(t *testing.T, w *transfer) {
		w.k.Fail(testkernel.SpliceIn, sys.EINVAL, -1)
		w.pass(4<<20, 1<<20)
		if path, why := w.half.Path(); path != datapath.Copy || why != datapath.WhyKernel {
			t.Errorf("path %v, %v", path, why)
		}
		if n := w.k.Count(testkernel.SpliceIn); n != 1 {
			t.Errorf("refused once, asked %d times", n)
		}
	})
}

// A destination that the kernel does not splice to gets what the pipe holds by copying, in order,
// and then everything else.
func TestDestinationRefusesSplice(t *testing.T) {
	eachPair(t, func(t *testing.T, w *transfer) {
		w.k.Fail(testkernel.SpliceOut, sys.EINVAL, -1)
		w.pass(4<<20, 1<<20)
		if path, why := w.half.Path(); path != datapath.Copy || why != datapath.WhyKernel {
			t.Errorf("path %v, %v", path, why)
		}
		if n := w.k.Count(testkernel.SpliceOut); n != 1 {
			t.Errorf("refused once, asked %d times", n)
		}
		if w.k.Count(testkernel.ReadPipe) == 0 {
			t.Error("nobody emptied the pipe")
		}
	})
}

// The same with short reads of the pipe and a slow reader behind it.
func TestDestinationRefusesSpliceSlowly(t *testing.T) {
	eachPair(t, func(t *testing.T, w *transfer) {
		w.k.FailAfter(1, testkernel.SpliceOut, sys.EINVAL, 1)
		w.k.Fail(testkernel.ReadPipe, sys.EINTR, 2)
		w.k.Short(testkernel.ReadPipe, 5000, 10)
		w.k.Short(testkernel.Send, 999, 200)
		w.pass(4<<20, 1<<20)
	})
}

// A source with a low-water mark must not keep it when splicing is over.
func TestLowatAfterRefusal(t *testing.T) {
	w := newTransfer(t, "tcp4", "tcp4")
	w.env.Lowat = 100_000
	off := w.stream(0)
	if !w.half.Lagging() || w.k.Lowat(w.src) != 100_000 {
		t.Fatalf("no mark is set: %d", w.k.Lowat(w.src))
	}
	w.k.Fail(testkernel.SpliceOut, sys.EINVAL, -1)
	w.write(off, 200_000)
	w.until(WantRead)
	w.read(off, 200_000)
	if w.half.Lagging() || w.k.Lowat(w.src) != 1 {
		t.Errorf("lagging %v, the mark is %d", w.half.Lagging(), w.k.Lowat(w.src))
	}
}

// Without pipes everything is copied; the refusals are counted, and leases are tried again later.
func TestNoPipe(t *testing.T) {
	for name, fault := range map[string]func(*transfer){
		"emfile":  func(w *transfer) { w.k.Fail(testkernel.Pipe, sys.EMFILE, -1) },
		"enfile":  func(w *transfer) { w.k.Fail(testkernel.Pipe, sys.ENFILE, -1) },
		"shrunk":  func(w *transfer) { w.k.Short(testkernel.Pipe, 4096, -1) },
		"taken":   func(w *transfer) { w.takePipes() },
		"nowhere": func(w *transfer) { w.env.Pipes = nil },
	} {
		t.Run(name, func(t *testing.T) {
			eachPair(t, func(t *testing.T, w *transfer) {
				pipes := w.env.Pipes
				defer func() { w.env.Pipes = pipes }()
				fault(w)
				w.pass(4<<20, 1<<20)
				if w.half.Spliced != 0 {
					t.Errorf("%d bytes spliced", w.half.Spliced)
				}
				path, why := w.half.Path()
				if w.env.Pipes == nil {
					return // without a budget, the caller sets the reason with Refuse
				}
				if path != datapath.Copy || why != datapath.WhyPipes {
					t.Errorf("path %v, %v", path, why)
				}
				if w.env.Pipes.Stats().Refused == 0 {
					t.Error("no refusal is counted")
				}
			})
		})
	}
}

// takePipes uses up the budget.
func (w *transfer) takePipes() {
	for p := w.env.Pipes.Get(); p != nil; p = w.env.Pipes.Get() {
		w.taken = append(w.taken, p)
	}
}

// A budget that recovers is used again.
func TestPipesComeBack(t *testing.T) {
	eachPair(t, func(t *testing.T, w *transfer) {
		w.k.Fail(testkernel.Pipe, sys.EMFILE, 1)
		off := w.bulk(0)
		if w.k.Count(testkernel.Pipe) == 0 || w.env.Pipes.Stats().Refused != 1 {
			t.Fatalf("no pipe was refused:%s", w.k.Counts())
		}
		w.write(off, 10_000)
		w.until(WantRead)
		w.read(off, 10_000)
		if w.half.Spliced == 0 {
			t.Errorf("one refusal, and all %d bytes were copied", w.half.In)
		}
	})
}

// Once a pipe was leased, an earlier refusal has no effect: after small reads, big ones start
// splicing as quickly as at first.
func TestRefusalIsForgotten(t *testing.T) {
	w := newTransfer(t, "tcp4", "tcp4")
	w.k.Fail(testkernel.Pipe, sys.EMFILE, 1)
	off := w.bulk(0)
	send := func(n int) {
		w.write(off, n)
		w.arrived(n) // or else the read might be a smaller one
		w.until(WantRead)
		w.read(off, n)
		off += int64(n)
	}
	for w.half.splicing || w.half.Spliced == 0 {
		send(100)
		if off > 16<<20 {
			t.Fatalf("small reads do not lead back to copying:%s", w.k.Counts())
		}
		if !w.half.splicing && w.half.Spliced == 0 {
			off = w.bulk(off) // the first lease was refused
		}
	}
	for range 10 {
		if send(32 << 10); w.half.splicing {
			return
		}
	}
	t.Errorf("after ten big reads it does not splice;%s", w.k.Counts())
}

// stream sends chunks below the mark until the source has one.
func (w *transfer) stream(off int64) int64 {
	w.t.Helper()
	for end := off + 2*earned; off < end && !w.half.Lagging(); {
		off = w.chunks(off, 1, 50_000)
	}
	return off
}

// chunks sends n chunks, each of which has a turn of its own, and is below the mark if size is.
func (w *transfer) chunks(off int64, n, size int) int64 {
	w.t.Helper()
	for range n {
		w.write(off, size)
		w.until(WantRead)
		w.read(off, size)
		off += int64(size)
	}
	return off
}

// tail sends less than the mark, which only a turn without an event finds.
func (w *transfer) tail(off int64) int64 {
	w.t.Helper()
	if _, err := w.near.Write(pattern().At(off, 100)); err != nil {
		w.t.Fatal(err)
	}
	if ready(w.t, w.src, sys.In, 20*time.Millisecond) {
		w.t.Log("this kernel wakes below the mark")
	}
	w.turn(1 << 20)
	w.read(off, 100)
	return off + 100
}

func (w *transfer) marked(want int) {
	w.t.Helper()
	if got, e := sys.ReceiveLowat.Get(sys.Linux{}, w.src); e != 0 || max(got, 1) != want || w.half.Lagging() != (want > 1) {
		w.t.Fatalf("the socket's mark is %d, %v; lagging %v; want %d", got, e, w.half.Lagging(), want)
	}
}

// A TCP source earns its low-water mark by streaming, and keeps it over a late
// tail, but not over two.
func TestLowat(t *testing.T) {
	w := newTransfer(t, "tcp4", "unix")
	w.env.Lowat = 100_000
	off := w.bulk(0)
	w.marked(1)
	off = w.stream(off)
	if off < earned {
		t.Fatalf("marked after %d bytes", off)
	}
	w.marked(100_000)
	off = w.tail(off)
	w.marked(100_000)
	off = w.tail(off)
	w.marked(1)
	// It must be earned again, so that late tails stay rare.
	before := off
	off = w.stream(off)
	w.marked(100_000)
	if off-before < earned {
		t.Errorf("marked again after %d bytes", off-before)
	}
	if n := w.k.Count(testkernel.RcvLowat); n != 3 {
		t.Errorf("%d marks set, want 3", n)
	}
}

// An idle source loses its mark after several empty turns, and gets it back when it streams again.
func TestLowatRests(t *testing.T) {
	w := newTransfer(t, "tcp4", "tcp4")
	w.env.Lowat = 100_000
	off := w.stream(0)
	for range maxEmptyTurns - 1 {
		w.turn(1 << 20)
	}
	off = w.chunks(off, 1, 120_000) // begins the count anew
	for i := range maxEmptyTurns {
		if !w.half.Lagging() {
			t.Fatalf("no mark after %d looks", i)
		}
		w.turn(1 << 20)
	}
	w.marked(1)
	off = w.chunks(off, maxSmallTurns-1, 50_000)
	w.marked(1)
	w.chunks(off, 1, 50_000)
	w.marked(100_000)
}

// A source of which only some turns are small, as the ends of big writes are, gets no mark: it would wait for nothing. Turns
// that found nothing say neither.
func TestLowatForSmallTurnsInARow(t *testing.T) {
	for what, between := range map[string]func(w *transfer, off int64) int64{
		"a big turn": func(w *transfer, off int64) int64 { return w.chunks(off, 1, 120_000) },
		"a turn that used up its budget": func(w *transfer, off int64) int64 {
			w.write(off, 50_000)
			if st := w.turn(50_000); st != Again {
				w.t.Fatalf("after its budget: %v", st)
			}
			w.read(off, 50_000)
			return off + 50_000
		},
		"a big turn that filled the destination": func(w *transfer, off int64) int64 {
			w.k.Short(testkernel.SpliceIn, 30_000, 4)
			w.k.FailAfter(3, testkernel.SpliceOut, sys.EAGAIN, 1)
			w.write(off, 120_000)
			if st := w.turn(1 << 20); st != WantWrite || w.half.In < off+100_000 {
				w.t.Fatalf("with a full destination: %v after %d bytes", st, w.half.In-off)
			}
			w.k.Heal()
			w.until(WantRead)
			w.read(off, 120_000)
			return off + 120_000
		},
		"": func(w *transfer, off int64) int64 {
			w.turn(1 << 20)
			return off
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newTransfer(t, "tcp4", "tcp4")
			w.env.Lowat = 100_000
			off := w.chunks(0, earned/120_000+2, 120_000)
			for range 3 {
				w.marked(1)
				off = between(w, w.chunks(off, maxSmallTurns-1, 50_000))
				if what == "" {
					break
				}
			}
			w.marked(1)
			if what != "" {
				off = w.chunks(off, maxSmallTurns-1, 50_000)
				w.marked(1)
			}
			w.chunks(off, 1, 50_000)
			w.marked(100_000)
		})
	}
}

// A source whose turns are big anyway needs no mark.
func TestLowatNotNeeded(t *testing.T) {
	w := newTransfer(t, "tcp4", "tcp4")
	w.env.Lowat = 20_000
	for off := int64(0); off < 2*earned; off += 50_000 {
		w.write(off, 50_000)
		w.until(WantRead)
		w.read(off, 50_000)
	}
	if n := w.k.Count(testkernel.RcvLowat); n != 0 {
		t.Errorf("%d marks set", n)
	}
}

func TestNoLowatOnUnix(t *testing.T) {
	w := newTransfer(t, "unix", "tcp4")
	w.env.Lowat = 100_000
	w.stream(0)
	if n := w.k.Count(testkernel.RcvLowat); n != 0 || w.half.Lagging() {
		t.Errorf("%d marks on a Unix socket", n)
	}
}

// If the kernel refuses a mark, there is none.
func TestLowatRefused(t *testing.T) {
	w := newTransfer(t, "tcp4", "tcp4")
	w.env.Lowat = 100_000
	w.k.Fail(testkernel.RcvLowat, sys.EINVAL, -1)
	w.stream(0)
	if w.half.Lagging() {
		t.Error("it waits for a mark that is not there")
	}
	if n := w.k.Count(testkernel.RcvLowat); n == 0 || n > 2 {
		t.Errorf("a socket that refuses was asked %d times", n)
	}
}

// The oracle is a plain list of bytes: whatever the chunks, the faults and the
// order of turns, writes and reads, the far end must see a prefix of what the
// near end wrote, and all of it in the end.
func TestModel(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		eachPair(t, func(t *testing.T, w *transfer) {
			seed := rand.Uint64()
			t.Logf("round %d, seed %d", round, seed)
			w.model(seed)
		})
	}
}

func FuzzModel(f *testing.F) {
	f.Add(uint64(1), byte(0))
	f.Add(uint64(2), byte(1))
	f.Add(uint64(3), byte(2))
	f.Add(uint64(4), byte(3))
	f.Fuzz(func(t *testing.T, seed uint64, pair byte) {
		p := pairs[pair%4]
		newTransfer(t, p.src, p.dst).model(seed)
	})
}

func (w *transfer) model(seed uint64) {
	t, r := w.t, rand.New(rand.NewPCG(seed, 1))
	interrupted := []sys.Errno{sys.EINTR}
	later := []sys.Errno{sys.EINTR, sys.EAGAIN}
	w.k.Random(seed, 2+r.IntN(20), map[testkernel.Call][]sys.Errno{
		testkernel.Recv: later, testkernel.Send: later, testkernel.SpliceIn: later, testkernel.SpliceOut: later,
		testkernel.ReadPipe: interrupted, testkernel.Pipe: {sys.EMFILE, sys.ENFILE}, testkernel.RcvLowat: {sys.EINVAL},
	}, testkernel.Recv, testkernel.Send, testkernel.SpliceIn, testkernel.SpliceOut, testkernel.ReadPipe, testkernel.Pipe)
	w.half.Exact = false // faults cut reads short, which the kernel does not
	if r.IntN(2) == 0 {
		w.env.Lowat = 1 << r.IntN(18)
	}
	switch r.IntN(6) {
	case 0:
		w.k.FailAfter(r.IntN(10), testkernel.SpliceOut, sys.EINVAL, -1)
	case 1:
		w.k.FailAfter(r.IntN(10), testkernel.SpliceIn, sys.EINVAL, -1)
	}
	total := int64(r.IntN(1 << (10 + r.IntN(13))))
	stream := testnet.NewPattern(seed)
	var wrote, seen int64
	preload := min(total, int64(r.IntN(3))*700)
	w.half.Preload(&w.env, stream.At(0, int(preload)))
	wrote = preload
	st := WantRead
	buf := make([]byte, 256<<10)
	eof := false
	for steps := 0; st != End || seen < total; steps++ {
		if steps > 200_000 {
			t.Fatalf("no end: wrote %d, seen %d of %d, state %d;%s", wrote, seen, total, st, w.k.Counts())
		}
		switch r.IntN(3) {
		case 0:
			n := min(total-wrote, 1+int64(r.IntN(1<<r.IntN(18))))
			if n > 0 {
				w.near.SetWriteDeadline(time.Now().Add(50 * time.Microsecond))
				m, _ := w.near.Write(stream.At(wrote, int(n)))
				wrote += int64(m)
			}
			if wrote == total && !eof {
				eof = true
				w.near.(interface{ CloseWrite() error }).CloseWrite()
			}
		case 1:
			if st != End {
				st = w.turn(1 + r.IntN(1<<20))
				if st == Failed {
					t.Fatalf("failed: %v", w.half.Err)
				}
			}
		case 2:
			w.far.SetReadDeadline(time.Now().Add(50 * time.Microsecond))
			n, err := w.far.Read(buf[:1+r.IntN(len(buf))])
			if err == io.EOF {
				t.Fatal("an end that nobody passed on")
			}
			if err := stream.Check(seen, buf[:n]); err != nil {
				t.Fatal(err)
			}
			seen += int64(n)
			if seen > w.half.Out {
				t.Fatalf("the far end has %d, the half delivered %d", seen, w.half.Out)
			}
		}
	}
	if w.half.In != total || w.half.Out != total {
		t.Errorf("in %d, out %d of %d", w.half.In, w.half.Out, total)
	}
	if w.k.Count(testkernel.Recv)+w.k.Count(testkernel.SpliceIn) == 0 {
		t.Error("nothing ran")
	}
}
