package pump

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
)

// noted is a transfer whose half notes in a ledger what it has in its hands.
type noted struct {
	*transfer
	ledger *ledger.Ledger
	record ledger.Half
	one    bool // by message headers
}

func (w *noted) recv() testkernel.Call {
	return map[bool]testkernel.Call{false: testkernel.Recv, true: testkernel.RecvOne}[w.one]
}
func (w *noted) send() testkernel.Call {
	return map[bool]testkernel.Call{false: testkernel.Send, true: testkernel.SendOne}[w.one]
}

// eachNoted runs a behaviour over every pair of sockets, with the kernel's counters and with message headers.
func eachNoted(t *testing.T, behaviour func(t *testing.T, w *noted)) {
	for _, one := range []bool{false, true} {
		t.Run(fmt.Sprintf("one=%v", one), func(t *testing.T) {
			eachPair(t, func(t *testing.T, w *transfer) {
				l, err := ledger.Create(ledger.Config{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					w.close()
					if n := l.Arena().Used(); n != 0 {
						t.Errorf("%d bytes of the arena are lent", n)
					}
					l.Close()
				})
				r := l.Begin(0)
				r.SetKind(ledger.KindStream)
				l.Publish(0, 1)
				l.Turn().Begin(0, 1)
				w.env.Note = NewNote(l)
				w.env.Note.Of(0, r.Half(0), one, one)
				w.env.Buffers, w.env.Scratch = l.Arena(), l.Scratch()
				behaviour(t, &noted{w, l, r.Half(0), one})
			})
		})
	}
}

// watchedBuffers calls put before a buffer is given back.
type watchedBuffers struct {
	Buffers
	put func()
}

func (b watchedBuffers) Put(p []byte) {
	b.put()
	b.Buffers.Put(p)
}

// A record names its block as long as the half has it: somebody else's block is nobody's for the next process.
func TestNoteOfBlock(t *testing.T) {
	eachNoted(t, func(t *testing.T, w *noted) {
		puts := 0
		w.env.Buffers = watchedBuffers{w.env.Buffers, func() {
			puts++
			if ref, n := w.record.Block(); ref != 0 {
				t.Errorf("the record still names %x, %d bytes", ref, n)
			}
		}}
		w.k.Fail(w.send(), sys.EAGAIN, 2)
		w.write(0, 1000)
		w.until(WantWrite)
		ref, n := w.record.Block()
		if b, ok := w.ledger.Arena().Bytes(ref, n); !ok || pattern().Check(0, b) != nil || n != 1000 {
			t.Fatalf("block %x of %d bytes, %v", ref, n, ok)
		}
		w.k.Short(w.send(), 300, 1)
		w.until(WantRead)
		w.read(0, 1000)
		if in, out := w.record.In(), w.record.Out(); puts != 1 || in != 1000 || out != 1000 {
			t.Errorf("%d buffers given back, %d bytes taken, %d delivered", puts, in, out)
		}
	})
}

// errorKernel looks at the ledger at each read behind the first, as the next process might find it.
type errorKernel struct {
	*testkernel.Kernel
	look func()
}

func (k errorKernel) RecvOne(fd int, m *sys.Message, p []byte) (int, sys.Errno) {
	if k.Count(testkernel.RecvOne) > 0 {
		k.look()
	}
	return k.Kernel.RecvOne(fd, m, p)
}

// An error that the source tells only once is in the ledger before the bytes in front of it are read.
func TestNoteOfError(t *testing.T) {
	eachNoted(t, func(t *testing.T, w *noted) {
		if !w.one {
			t.Skip("recv(2) tells an error behind the bytes")
		}
		looks := 0
		w.env.Kernel = errorKernel{w.k, func() {
			looks++
			if e := sys.Errno(w.record.Errno()); e != sys.ECONNRESET {
				t.Errorf("the record has error %d", e)
			}
		}}
		w.k.Fail(testkernel.RecvOne, sys.ECONNRESET, 1)
		w.write(0, 1000)
		if st := w.run(); st != Failed || w.half.Err != sys.ECONNRESET || !w.half.AtSrc || looks == 0 {
			t.Errorf("state %d, error %v, %d reads", st, w.half.Err, looks)
		}
		w.read(0, 1000)
	})
}

// Whatever a half that notes is told, the error is the half's, and the ledger has what was moved.
func TestFailuresWithNote(t *testing.T) {
	eachNoted(t, func(t *testing.T, w *noted) {
		w.write(0, 1000)
		w.until(WantRead)
		w.k.Fail(w.send(), syscall.ETIMEDOUT, 1)
		w.write(1000, 500)
		if st := w.run(); st != Failed || w.half.Err != syscall.ETIMEDOUT || w.half.AtSrc {
			t.Errorf("state %d, error %v", st, w.half.Err)
		}
		if w.half.In != 1500 || w.half.Out != 1000 {
			t.Errorf("%d taken, %d delivered", w.half.In, w.half.Out)
		}
		w.read(0, 1000)
	})
	eachNoted(t, func(t *testing.T, w *noted) {
		w.write(0, 1000)
		w.until(WantRead)
		w.k.Fail(w.recv(), syscall.ETIMEDOUT, 2)
		w.write(1000, 500)
		if st := w.run(); st != Failed || w.half.Err != syscall.ETIMEDOUT || !w.half.AtSrc || w.half.In != 1000 || w.half.Out != 1000 {
			t.Errorf("state %d, error %v, %d taken, %d delivered", st, w.half.Err, w.half.In, w.half.Out)
		}
		w.read(0, 1000)
	})
}

// Calls that are interrupted or cut short lose nothing and deliver nothing twice, with a note, too.
func TestFaultsWithNote(t *testing.T) {
	for _, spliced := range []bool{false, true} {
		t.Run(fmt.Sprintf("spliced=%v", spliced), func(t *testing.T) {
			eachNoted(t, func(t *testing.T, w *noted) {
				if !spliced {
					w.half.Refuse(datapath.WhyOff)
				}
				w.k.Random(1, 4, map[testkernel.Call][]sys.Errno{w.recv(): {sys.EINTR}, w.send(): {sys.EINTR, sys.EAGAIN}, testkernel.SpliceIn: {sys.EINTR}, testkernel.SpliceOut: {sys.EINTR, sys.EAGAIN}}, w.recv(), w.send(), testkernel.SpliceOut)
				w.pass(1<<20, 1<<18)
				if in, out := w.record.In(), w.record.Out(); in != 1<<20 || out != 1<<20 {
					t.Errorf("the record has %d bytes taken, %d delivered", in, out)
				}
				if ref, _ := w.record.Block(); ref != 0 || w.record.Pipe() != 0 {
					t.Errorf("the record names block %x and pipe %d", ref, w.record.Pipe())
				}
			})
		})
	}
}
