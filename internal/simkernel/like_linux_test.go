package simkernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testwait"
)

// end is one end of a connection on one kernel: its descriptors, of one socket.
type end struct {
	fds          []int
	disconnected bool // the counters of the next connection begin anywhere
}

// kernelRun is a script on one of the kernels.
type kernelRun struct {
	k          sys.Kernel
	family     sys.Family
	ends       []end // 2i and 2i+1 are the ends of connection i
	pipe       [2]int
	epoll      int
	listener   int
	at         sys.Sockaddr
	everything []int // descriptors
}

// must ends the test if a call that prepares a script has failed.
func (r *kernelRun) must(t *testing.T, what string, e error) {
	t.Helper()
	if e != nil && e != sys.Errno(0) {
		t.Fatalf("%T: %s: %v", r.k, what, e)
	}
}

// paths makes the paths of Unix sockets differ.
var paths atomic.Int64

func newRun(t *testing.T, k sys.Kernel, family sys.Family, connections int) *kernelRun {
	r := &kernelRun{k: k, family: family}
	var sa sys.Sockaddr
	err := sa.SetAddrPort(netip.MustParseAddrPort("127.0.0.1:0"))
	if family == sys.Unix {
		err = sa.SetUnix(fmt.Sprintf("@simkernel-%d-%d", os.Getpid(), paths.Add(1)))
	}
	r.must(t, "address", err)
	r.listener, err = sys.Listen(k, &sa, true, false, 0, func(int) error { return nil })
	r.must(t, "listen", err)
	r.must(t, "local address", k.LocalAddr(r.listener, &r.at))
	r.epoll, err = k.EpollCreate()
	r.must(t, "epoll", err)
	var e sys.Errno
	r.pipe[0], r.pipe[1], _, e = k.Pipe(64 << 10)
	r.must(t, "pipe", e)
	r.everything = []int{r.listener, r.epoll, r.pipe[0], r.pipe[1]}
	for range connections {
		r.connect(t)
	}
	return r
}

const watched = sys.In | sys.Out | sys.RdHup | sys.Pri | sys.Edge

// connect makes one more connection, of which both ends are watched.
func (r *kernelRun) connect(t *testing.T) {
	a := r.begin(t)
	testwait.Until(t, "a client waits to be accepted", func() bool { return sys.Readable(r.k, r.listener) })
	var from sys.Sockaddr
	b, e := r.k.Accept(r.listener, &from)
	r.must(t, "accept", e)
	for _, fd := range []int{a, b} {
		r.must(t, "watch", r.k.EpollAdd(r.epoll, fd, watched, uint64(len(r.ends))))
		r.ends = append(r.ends, end{fds: []int{fd}})
	}
}

// begin makes a socket and connects it.
func (r *kernelRun) begin(t *testing.T) int {
	fd, e := r.k.Socket(r.family, false)
	r.must(t, "socket", e)
	want := sys.EINPROGRESS
	if r.family == sys.Unix {
		want = 0
	}
	if e := r.k.Connect(fd, &r.at); e != want {
		t.Fatalf("%T: connect: %v", r.k, e)
	}
	return fd
}

func (r *kernelRun) close() {
	for _, e := range r.ends {
		for _, fd := range e.fds {
			r.k.Close(fd)
		}
	}
	for _, fd := range r.everything {
		r.k.Close(fd)
	}
}

// step is one call of a script, the same on all kernels.
type step struct {
	op   int
	end  int
	n    int
	data []byte
}

const (
	opSend = iota
	opRecv
	opSpliceIn
	opSpliceOut
	opReadPipe
	opShutdownWrite
	opShutdownBoth
	opClose
	opDup
	opDisconnect
	opCloseResets
	opError
	opRewatch
	opWait
	opSendOne
	opRecvOne
	opLowat
	opDiscard
	opUrgent
	ops
)

var opNames = [ops]string{"send", "recv", "splice in", "splice out", "read pipe", "shutdown write", "shutdown both", "close", "dup", "disconnect", "close resets", "error",
	"rewatch", "wait", "send one", "recv one", "lowat", "discard", "urgent"}

func (s step) String() string { return fmt.Sprintf("%s(end %d, %d)", opNames[s.op], s.end, s.n) }

// do makes a call and tells what came of it.
func (r *kernelRun) do(s step) string {
	fd := -1
	if e := &r.ends[s.end]; len(e.fds) > 0 {
		fd = e.fds[0]
	} else if s.op != opWait && s.op != opReadPipe {
		return "closed"
	}
	k := r.k
	told := func(n int, e sys.Errno, b []byte) string {
		if e != 0 {
			return e.Error()
		}
		return fmt.Sprintf("%d %x", n, b[:min(n, len(b))])
	}
	b := make([]byte, s.n)
	switch s.op {
	case opSend:
		n, e := k.Send(fd, s.data)
		return told(n, e, nil)
	case opRecv:
		n, e := r.undisturbed(fd, func() (int, sys.Errno) { return k.Recv(fd, b) })
		return told(n, e, b)
	case opSendOne:
		m := new(sys.Message)
		n, e := k.SendOne(fd, m, s.data)
		moved, ok := m.Moved()
		return fmt.Sprint(told(n, e, nil), moved, ok)
	case opRecvOne:
		m := new(sys.Message)
		n, e := r.undisturbed(fd, func() (int, sys.Errno) { return k.RecvOne(fd, m, b) })
		moved, ok := m.Moved()
		return fmt.Sprint(told(n, e, b), moved, ok)
	case opDiscard:
		n, e := r.undisturbed(fd, func() (int, sys.Errno) { return k.Discard(fd, b, r.family != sys.Unix) })
		return told(n, e, nil)
	case opUrgent:
		if r.family == sys.Unix && !unixUrgent() {
			return "not like it here"
		}
		return r.sendUrgent(fd, s.data[0]).Error()
	case opSpliceIn:
		n, e := k.Splice(fd, r.pipe[1], s.n)
		return told(n, e, nil)
	case opSpliceOut:
		n, e := k.Splice(r.pipe[0], fd, s.n)
		return told(n, e, nil)
	case opReadPipe:
		n, e := k.ReadPipe(r.pipe[0], b)
		return told(n, e, b)
	case opShutdownWrite:
		return k.ShutdownWrite(fd).Error()
	case opShutdownBoth:
		return k.ShutdownBoth(fd).Error()
	case opDisconnect:
		r.ends[s.end].disconnected = true
		return k.Disconnect(fd).Error()
	case opCloseResets:
		return k.CloseResets(fd, s.n%2 == 0).Error()
	case opError:
		return sys.SockError(k, fd).Error()
	case opLowat:
		return k.RcvLowat(fd, 1+s.n).Error()
	case opClose:
		e := &r.ends[s.end]
		i := s.n % len(e.fds) // the one that is watched, or a duplicate
		fd = e.fds[i]
		e.fds = slices.Delete(e.fds, i, i+1)
		return k.Close(fd).Error()
	case opDup:
		next, e := k.Dup(fd)
		if e == 0 {
			r.ends[s.end].fds = append(r.ends[s.end].fds, next)
		}
		return e.Error()
	case opRewatch:
		return k.EpollMod(r.epoll, fd, watched, uint64(s.end)).Error()
	case opWait:
		return r.wait()
	}
	return "?"
}

// unixUrgent reports whether the kernel is one whose urgent data of Unix sockets is simulated: it differs from release to release.
func unixUrgent() bool {
	v, err := feature.Kernel()
	return err == nil && !v.Less(feature.Version{6, 18})
}

// undisturbed calls again what receives, as long as it does not pass an urgent byte because a signal is pending, such as those with which the
// runtime preempts goroutines: tcp_recvmsg_locked. The simulated kernel has no signals.
func (r *kernelRun) undisturbed(fd int, receive func() (int, sys.Errno)) (n int, e sys.Errno) {
	for {
		n, e = receive()
		if e != sys.EAGAIN || r.k.Poll(fd, sys.PollPri)&sys.PollPri == 0 || !r.k.AtMark(fd) {
			return n, e
		}
	}
}

// sendUrgent sends a byte out of band.
func (r *kernelRun) sendUrgent(fd int, b byte) sys.Errno {
	if p, ok := r.k.(*Process); ok {
		return p.SendUrgent(fd, b)
	}
	return sys.SendUrgent(fd, b)
}

// wait returns the events that there are, in the order in which the kernel tells them.
func (r *kernelRun) wait() string {
	evs := make([]sys.Event, 64)
	n, e := r.k.EpollWait(r.epoll, evs, 0)
	text := e.Error()
	for i := range n {
		text += fmt.Sprintf(" %d:%#x", sys.EventData(&evs[i]), evs[i].Events)
	}
	return text
}

// state returns what the kernel says of all ends and of the pipe when it is asked. Nothing changes by that.
func (r *kernelRun) state() string {
	var b strings.Builder
	for i, e := range r.ends {
		if len(e.fds) == 0 {
			continue
		}
		fd := e.fds[0]
		c, errno := r.k.TCPCounts(fd)
		if e.disconnected {
			c.Consumed, c.Written = 0, 0
		}
		in, _ := r.k.ReadQueued(fd)
		fmt.Fprintf(&b, "end %d: poll %#x, counts %+v %v, %d to read, at mark %v; ", i, r.k.Poll(fd, sys.PollIn|sys.PollOut|sys.PollRdHup|sys.PollPri), c, errno, in, r.k.AtMark(fd))
		if r.k.AtMark(fd) && !sys.HasError(r.k, fd) { // which would be taken
			unread, e := r.k.HasUnread(fd)
			fmt.Fprintf(&b, "unread %v %v; ", unread, e)
		}
	}
	n, e := r.k.ReadQueued(r.pipe[0])
	fmt.Fprintf(&b, "pipe %d %v", n, e)
	return b.String()
}

// runBoth runs a script on Linux and on a simulated kernel.
func runBoth(t *testing.T, family sys.Family, seed uint64) {
	const connections = 2
	rnd := rand.New(rand.NewPCG(seed, 0))
	real, simulated := newRun(t, sys.Linux{}, family, connections), newRun(t, New().NewProcess(), family, connections)
	defer real.close()
	defer simulated.close()
	most := 3000
	if family == sys.Unix {
		most = 1000 // what a socket buffer costs beside its bytes is not the same
	}
	var script []string
	agree := func(what func(r *kernelRun) string) {
		t.Helper()
		var a, b string
		if !testwait.For(func() bool { a, b = what(real), what(simulated); return a == b }) {
			t.Fatalf("seed %d, after %s:\nLinux     %s\nsimulated %s", seed, strings.Join(script, ", "), a, b)
		}
	}
	agree((*kernelRun).state)
	for range 60 {
		s := step{op: rnd.IntN(ops), end: rnd.IntN(2 * connections), n: 1 + rnd.IntN(most)}
		if s.op > opReadPipe && s.op < opError && rnd.IntN(3) > 0 {
			s.op = rnd.IntN(opReadPipe) // so that connections live for a while
		}
		s.data = bytes.Repeat([]byte{byte(rnd.Uint32())}, s.n)
		script = append(script, s.String())
		a, b := real.do(s), simulated.do(s)
		if a != b {
			t.Fatalf("seed %d, %s:\nLinux     %s\nsimulated %s", seed, strings.Join(script, ", "), a, b)
		}
		agree((*kernelRun).state)
	}
}

// TestLikeLinux runs random scripts of calls on both kernels, which must agree about the result of each, and about all that can be
// asked in between.
func TestLikeLinux(t *testing.T) {
	for seed := range uint64(300) {
		runBoth(t, sys.IPv4, seed)
	}
}

// TestUnixLikeLinux does so with Unix sockets.
func TestUnixLikeLinux(t *testing.T) {
	for seed := range uint64(300) {
		runBoth(t, sys.Unix, seed)
	}
}
