package pump

import (
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/pool"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// pairs are the socket pairs of a direction: its source, its destination.
var pairs = []struct{ src, dst string }{{"tcp4", "tcp4"}, {"tcp4", "unix"}, {"unix", "tcp4"}, {"unix", "unix"}}

// pattern is what near ends write.
var pattern = sync.OnceValue(func() *testnet.Pattern { return testnet.NewPattern(1) })

// eachPair runs a behaviour over every pair of sockets.
func eachPair(t *testing.T, behaviour func(t *testing.T, w *transfer)) {
	testnet.Need(t, feature.Splice)
	for _, p := range pairs {
		t.Run("src="+p.src+"/dst="+p.dst, func(t *testing.T) { behaviour(t, newTransfer(t, p.src, p.dst)) })
	}
}

// transfer is one direction: a writer to near, the half under test, and a reader from far. After
// the test, nothing may still be leased.
type transfer struct {
	t         *testing.T
	k         *testkernel.Kernel
	env       Env
	buffers   pool.Buffers
	half      Half
	near, far net.Conn // the test's ends
	src, dst  int      // the half's
	srcConn   net.Conn
	dstConn   net.Conn
	taken     []*Pipe // of the budget, by the test
	closed    bool
	wrote     int64 // where the last write ended
}

func newTransfer(t *testing.T, src, dst string) *transfer {
	t.Helper()
	testnet.CheckLeaks(t)
	w := &transfer{t: t, k: testkernel.New()}
	w.near, w.srcConn = testnet.Pair(t, src)
	w.dstConn, w.far = testnet.Pair(t, dst)
	w.src, w.dst = fdOf(t, w.srcConn), fdOf(t, w.dstConn)
	w.env = Env{Kernel: w.k, Pipes: NewPipes(w.k, 0, 4), Buffers: &w.buffers, Scratch: make([]byte, ScratchSize)}
	w.half = Half{TCP: src == "tcp4", Exact: src == "tcp4", Enlarge: dst == "unix"}
	t.Cleanup(w.close)
	return w
}

// close closes the half and checks that everything was returned.
func (w *transfer) close() {
	if w.closed {
		return
	}
	w.closed = true
	lost := w.half.In - w.half.Out
	if dropped := w.half.Close(&w.env); dropped != lost {
		w.t.Errorf("Close says %d bytes dropped, %d were lost", dropped, lost)
	}
	for _, p := range w.taken {
		w.env.Pipes.Put(p)
	}
	s := w.env.Pipes.Stats()
	if s.Leased != 0 {
		w.t.Errorf("%d pipes are still on lease", s.Leased)
	}
	w.env.Pipes.Drain()
	if s := w.env.Pipes.Stats(); s.Open != 0 || w.k.OpenPipes() != 0 {
		w.t.Errorf("%d pipes are open by the budget, %d by the kernel", s.Open, w.k.OpenPipes())
	}
	for _, c := range w.buffers.Stats().Classes {
		if c.Gets != c.Puts {
			w.t.Errorf("buffers of %d bytes: %d taken, %d given back", c.Size, c.Gets, c.Puts)
		}
	}
	for _, wrong := range w.k.Wrong() {
		w.t.Error(wrong)
	}
}

// turn runs one turn of the half and checks the invariants.
func (w *transfer) turn(budget int) State {
	w.t.Helper()
	in, out := w.half.In, w.half.Out
	st := w.half.Turn(&w.env, w.src, w.dst, budget)
	h := &w.half
	leased := 0
	if w.env.Pipes != nil {
		leased = int(w.env.Pipes.Stats().Leased) - len(w.taken)
	}
	switch {
	case st == Failed && h.Err == 0:
		w.t.Fatal("failed without an error")
	case st == Failed:
		// The bytes of the failed write are lost.
		if h.In-h.Out < int64(h.Held()) {
			w.t.Fatalf("took %d, delivered %d, holds %d", h.In, h.Out, h.Held())
		}
	case h.In-h.Out != int64(h.Held())-int64(h.own):
		w.t.Fatalf("took %d, delivered %d, holds %d", h.In, h.Out, h.Held())
	case h.In < in || h.Out < out || h.Spliced > h.Out:
		w.t.Fatalf("counts run backwards: %d %d -> %d %d, %d spliced", in, out, h.In, h.Out, h.Spliced)
	case leased != 0 && h.inPipe == 0:
		w.t.Fatalf("state %d: a pipe is on lease that holds nothing", st)
	case (st == WantRead || st == End) && h.Held() != 0:
		w.t.Fatalf("state %d with %d bytes held", st, h.Held())
	case st == WantWrite && h.Held() == 0:
		w.t.Fatal("waits for the destination with nothing to deliver")
	case h.Held() > PipeSize:
		w.t.Fatalf("holds %d bytes", h.Held())
	}
	return st
}

// run runs turns until the half ends or fails, and waits between them as an event loop does.
func (w *transfer) run() State {
	w.t.Helper()
	for deadline := time.Now().Add(testwait.Patience); ; {
		st := w.turn(1 << 20)
		if time.Now().After(deadline) {
			w.t.Fatalf("state %d: nothing moves; in %d, out %d;%s", st, w.half.In, w.half.Out, w.k.Counts())
		}
		switch st {
		case WantRead:
			limit := time.Second
			if w.half.Lagging() {
				limit = time.Millisecond
			}
			ready(w.t, w.src, sys.In, limit)
		case WantWrite:
			ready(w.t, w.dst, sys.Out, time.Second)
		case End, Failed:
			return st
		}
	}
}

// until runs turns until the half is in the state. WantRead only counts once everything that was
// written has been taken, which the kernel may take a while to deliver.
func (w *transfer) until(want State) {
	w.t.Helper()
	if testwait.For(func() bool {
		st := w.turn(1 << 20)
		return st == want && (st != WantRead || w.half.In >= w.wrote)
	}) {
		return
	}
	w.t.Fatalf("state %d never came; in %d, out %d;%s", want, w.half.In, w.half.Out, w.k.Counts())
}

// feed writes n bytes of the pattern in chunks and ends the stream.
func (w *transfer) feed(n, chunk int) chan testnet.Report {
	done := make(chan testnet.Report, 1)
	go func() { done <- testnet.Play(w.near, testnet.Script{Send: int64(n), SendSeed: 1, SendChunk: chunk}) }()
	return done
}

// drain reads n bytes of the pattern and the end of the stream.
func (w *transfer) drain(n int) chan testnet.Report {
	done := make(chan testnet.Report, 1)
	go func() { done <- testnet.Play(w.far, testnet.Script{Recv: int64(n), RecvSeed: 1}) }()
	return done
}

// pass carries n bytes from end to end and passes on the end of the stream.
func (w *transfer) pass(n, chunk int) {
	w.t.Helper()
	from, to := w.feed(n, chunk), w.drain(n)
	if st := w.run(); st != End {
		w.t.Fatalf("state %d, error %v", st, w.half.Err)
	}
	w.finish(n, from, to)
}

// finish passes on the end of the stream after n bytes and collects both reports.
func (w *transfer) finish(n int, from, to chan testnet.Report) {
	w.t.Helper()
	w.k.ShutdownWrite(w.dst)
	w.dstConn.Close()
	w.srcConn.Close()
	if r := <-from; r.Err != "" || int(r.Sent) != n {
		w.t.Errorf("source: %+v", r)
	}
	if r := <-to; r.Err != "" || int(r.Received) != n {
		w.t.Errorf("destination: %+v;%s", r, w.k.Counts())
	}
	if h := &w.half; h.In != int64(n) || h.Out != int64(n) {
		w.t.Errorf("%d taken and %d delivered of %d", h.In, h.Out, n)
	}
}

// write puts n bytes of the pattern, from offset off, into the source, and waits until all of them
// can be read.
func (w *transfer) write(off int64, n int) {
	w.t.Helper()
	if _, err := w.near.Write(pattern().At(off, n)); err != nil {
		w.t.Fatal(err)
	}
	w.wrote = off + int64(n)
	ready(w.t, w.src, sys.In, time.Second)
}

// arrived waits until n bytes are in the socket of the source, so that one read has all of it.
func (w *transfer) arrived(n int) {
	w.t.Helper()
	testwait.Until(w.t, "all has arrived", func() bool { got, _ := sys.Linux{}.ReadQueued(w.src); return got >= n })
}

// read takes n bytes of the pattern, from offset off, out of the destination.
func (w *transfer) read(off int64, n int) {
	w.t.Helper()
	buf := make([]byte, n)
	w.far.SetReadDeadline(time.Now().Add(testwait.Patience))
	if _, err := io.ReadFull(w.far, buf); err != nil {
		w.t.Fatal(err)
	}
	if err := pattern().Check(off, buf); err != nil {
		w.t.Fatal(err)
	}
}

// ready waits until fd has one of the events.
func ready(t *testing.T, fd int, events uint32, limit time.Duration) bool {
	t.Helper()
	ep, err := sys.Linux{}.EpollCreate()
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Linux{}.Close(ep)
	if e := (sys.Linux{}).EpollAdd(ep, fd, events, 0); e != 0 {
		t.Fatal(e)
	}
	var evs [1]sys.Event
	n, _ := sys.Linux{}.EpollWait(ep, evs[:], limit)
	return n > 0
}

// fdOf returns a connection's descriptor, which still belongs to the connection.
func fdOf(t *testing.T, c net.Conn) (fd int) {
	t.Helper()
	rc, err := c.(syscall.Conn).SyscallConn()
	if err == nil {
		err = rc.Control(func(x uintptr) { fd = int(x) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}
