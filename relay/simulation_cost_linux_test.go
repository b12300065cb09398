package relay

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
)

// costKernel is the kernel of a process that relays streams. It looks at what bytes cost: that a source that streams is spliced and
// another one copied, that nobody asks again in one turn what was answered, and that no call changes nothing.
type costKernel struct {
	*simkernel.Process
	s       *simulation
	sources map[int]*costSource // by descriptor
	pipes   map[int]*costSource // who has filled a pipe, by the descriptor that it is read with
	ends    map[int]int         // that descriptor, by the one that the pipe is written with
	lowat   map[int]int         // by descriptor; 0: 1
	watched map[costWatch]uint32
	epolls  map[int]int          // who has begun to watch a descriptor first: that which wakes a loop is watched by the loop alone
	asked   map[costQuestion]int // in this turn
	opened  map[int]bool         // sockets that it has made
	silent  map[uint64]int       // those of them that no event has told to have something to read, by what their events say
	refused int64                // how often a pipe was
	refuses bool                 // a socket was not spliced to, from a pipe that the process before had filled from one of its sources
}

// costSource is what was read from a socket, as far as it decides how it is read next: see the picture at pump.Half.
type costSource struct {
	splicing bool
	streak   int  // of big reads while it is copied, of small ones while it is spliced
	never    bool // a splice was refused
	few      bool // there was no pipe
	copies   bool // a splice has found nothing, and a copy may find out why
	known    bool // this process has opened it, or has seen how it goes on
	earlier  bool // it is of the process before
	doubt    bool // and was copied then, perhaps because a splice was refused
	secure   bool // it has TLS
}

// costWatch is an epoll instance, and what it watches.
type costWatch struct{ ep, fd int }

// costQuestion is a question that was answered with EAGAIN.
type costQuestion struct {
	fd     int
	writes bool
}

const (
	costAhead   = "bytes read into a pipe that held some"
	costLarger  = "a larger send buffer"
	costBuiltin = "built in: "
	// costKernelTLS is TLS that the kernel has got.
	costKernelTLS = "TLS of the kernel"
	costCopied    = "bytes copied out of a pipe"

	costBig, costSmall = 18 << 10, 8 << 10
	// costAsks is how often a socket may be asked in one turn in vain: for an event of its own, and for one of the other side.
	costAsks = 4
)

func newCostKernel(s *simulation, p *simkernel.Process, held []hold.Held) *costKernel {
	k := &costKernel{Process: p, s: s, sources: make(map[int]*costSource), pipes: make(map[int]*costSource), ends: make(map[int]int), lowat: make(map[int]int), watched: make(map[costWatch]uint32), epolls: make(map[int]int),
		asked: make(map[costQuestion]int), opened: make(map[int]bool), silent: make(map[uint64]int)}
	for _, x := range held {
		if kindOf(x.Key) == holdPipe {
			k.ends[x.FDs[1]] = x.FDs[0]
		}
	}
	return k
}

func (k *costKernel) source(fd int) *costSource {
	x := k.sources[fd]
	if x == nil {
		x = new(costSource)
		k.sources[fd] = x
	}
	return x
}

// past reports whether the process has handed over and lingers: that is not looked at.
func (k *costKernel) past() bool {
	return slices.ContainsFunc(k.s.lingerers, func(l *simLingerer) bool { return l.process == k.Process })
}

// answered counts answers without anything.
func (k *costKernel) answered(fd int, writes bool, e sys.Errno) {
	if e != sys.EAGAIN || k.Process.Fault != nil || k.s.busy > 0 || k.past() {
		return
	}
	q := costQuestion{fd, writes}
	if k.asked[q]++; k.asked[q] > costAsks {
		k.s.fail("descriptor %d was asked %d times in one turn, in vain, for writing: %v", fd, k.asked[q], writes)
	}
}

// unsure reports whether nobody knows if a source may be spliced: TLS may have become the kernel's.
func (k *costKernel) unsure(x *costSource) bool {
	return x.doubt || k.refuses && x.earlier || k.s.kernelTLS
}

// copied looks at a read that copies.
func (k *costKernel) copied(fd, n int, e sys.Errno) {
	k.answered(fd, false, e)
	k.readsEarly(fd, e)
	if k.past() {
		return
	}
	x := k.source(fd)
	if refused := pipeStats(k.s.core).Refused; x.splicing && refused > k.refused {
		k.refused, x.splicing, x.few, x.streak = refused, false, true, 0
	}
	if !x.known {
		x.earlier, x.doubt = true, true
	}
	if x.splicing && !x.copies && !k.unsure(x) && k.s.pipes != simNoPipes {
		k.s.fail("descriptor %d streams, and is copied\n%s", fd, k.s.describe())
	}
	x.copies, x.known = x.copies && e != 0 && e != sys.EAGAIN && e != sys.EINTR, true // an error comes in front of bytes: pump.Note
	if e != 0 || n == 0 {
		return
	}
	if n < costBig {
		x.streak = 0
	} else if x.streak++; !x.never && (x.streak >= 2 && !x.few || x.streak >= 64) {
		x.splicing, x.streak = true, 0
	}
}

// Accept implements [sys.Kernel].
func (k *costKernel) Accept(fd int, sa *sys.Sockaddr) (int, sys.Errno) {
	n, e := k.Process.Accept(fd, sa)
	k.s.failedAccepts(e)
	if e == 0 {
		k.source(n).known = true
	}
	return n, e
}

// Socket implements [sys.Kernel].
func (k *costKernel) Socket(family sys.Family, mptcp bool) (int, sys.Errno) {
	n, e := k.Process.Socket(family, mptcp)
	if e == 0 {
		k.opened[n] = true
		k.source(n).known = true
	}
	return n, e
}

// Recv implements [sys.Kernel].
func (k *costKernel) Recv(fd int, b []byte) (int, sys.Errno) {
	if x := k.source(fd); !k.past() && !x.secure && (!x.never || k.s.over.HoldMost == 0) { // what is held in front of this read, only its turn knows
		k.s.lookAtRead(fd, len(b))
	}
	n, e := k.Process.Recv(fd, b)
	k.copied(fd, n, e)
	return n, e
}

// RecvOne implements [sys.Kernel].
func (k *costKernel) RecvOne(fd int, m *sys.Message, b []byte) (int, sys.Errno) {
	if !k.past() {
		k.s.lookAtRead(fd, len(b))
	}
	n, e := k.Process.RecvOne(fd, m, b)
	k.copied(fd, n, e)
	return n, e
}

// Send implements [sys.Kernel].
func (k *costKernel) Send(fd int, b []byte) (int, sys.Errno) {
	n, e := k.Process.Send(fd, b)
	k.answered(fd, true, e)
	return n, e
}

// SendOne implements [sys.Kernel].
func (k *costKernel) SendOne(fd int, m *sys.Message, b []byte) (int, sys.Errno) {
	n, e := k.Process.SendOne(fd, m, b)
	k.answered(fd, true, e)
	return n, e
}

// GiveTLS implements [sys.Kernel].
func (k *costKernel) GiveTLS(fd int, out, in *sys.TLSKeys) (bool, sys.Errno) {
	sends, e := k.Process.GiveTLS(fd, out, in)
	if e == 0 {
		k.s.seen.costs[costKernelTLS]++
	}
	return sends, e
}

// Pipe implements [sys.Kernel].
func (k *costKernel) Pipe(size int) (r, w, got int, e sys.Errno) {
	if r, w, got, e = k.Process.Pipe(size); e == 0 {
		k.ends[w] = r
	}
	return r, w, got, e
}

// Splice implements [sys.Kernel].
func (k *costKernel) Splice(rfd, wfd, n int) (int, sys.Errno) {
	before, e := k.Process.ReadQueued(wfd)
	fills := e == 0 && k.isPipe(wfd)
	moved, e := k.Process.Splice(rfd, wfd, n)
	if !fills {
		k.answered(wfd, true, e)
		if x := k.pipes[rfd]; e == sys.EINVAL && x != nil {
			x.splicing, x.never = false, true
		} else if e == sys.EINVAL {
			k.refuses = true
		}
		return moved, e
	}
	k.answered(rfd, false, e)
	x := k.source(rfd)
	if r, ok := k.ends[wfd]; ok {
		k.pipes[r] = x
	}
	if !x.known {
		x.splicing, x.known, x.earlier = true, true, true // it was when the process before had it
	}
	x.copies = false
	switch {
	case !x.splicing && !k.unsure(x):
		k.s.fail("descriptor %d does not stream, and is spliced", rfd)
	case before > 0: // on behalf of a destination that takes nothing
		if moved > 0 {
			k.s.seen.costs[costAhead]++
		}
	case e == sys.EINVAL:
		x.splicing, x.never = false, true
	case e == sys.EAGAIN || e == 0 && moved == 0:
		x.copies = true
	case e != 0:
	case moved >= costSmall:
		x.streak = 0
	default:
		if x.streak++; x.streak >= 4 {
			x.splicing, x.streak, x.few = false, 0, false
		}
	}
	return moved, e
}

// isPipe reports whether a descriptor is that of a pipe, rather than of a socket.
func (k *costKernel) isPipe(fd int) bool {
	number, _ := k.Process.Number(fd)
	return number == 0
}

// ReadPipe implements [sys.Kernel].
func (k *costKernel) ReadPipe(fd int, b []byte) (int, sys.Errno) {
	n, e := k.Process.ReadPipe(fd, b)
	if e == 0 {
		k.s.seen.costs[costCopied]++
	}
	return n, e
}

// RcvLowat implements [sys.Kernel].
func (k *costKernel) RcvLowat(fd, n int) sys.Errno {
	if n == max(1, k.lowat[fd]) && !k.s.restoring && !k.past() {
		k.s.fail("the low-water mark of descriptor %d is set to %d, which it was", fd, n)
	}
	k.lowat[fd] = n
	return k.Process.RcvLowat(fd, n)
}

// EpollAdd implements [sys.Kernel].
func (k *costKernel) EpollAdd(ep, fd int, events uint32, data uint64) sys.Errno {
	e := k.Process.EpollAdd(ep, fd, events, data)
	if e == 0 {
		k.watched[costWatch{ep, fd}] = events
		if k.opened[fd] {
			k.silent[data] = fd
		}
		if _, ok := k.epolls[fd]; !ok {
			k.epolls[fd] = ep
		}
	}
	return e
}

// EpollMod implements [sys.Kernel].
func (k *costKernel) EpollMod(ep, fd int, events uint32, data uint64) sys.Errno {
	if k.watched[costWatch{ep, fd}] == events && !k.past() {
		k.s.fail("descriptor %d is watched for %#x, as it was", fd, events)
	}
	k.watched[costWatch{ep, fd}] = events
	k.s.seen.costs[fmt.Sprintf("watched for %#x", events)]++
	return k.Process.EpollMod(ep, fd, events, data)
}

// EpollDel implements [sys.Kernel].
func (k *costKernel) EpollDel(ep, fd int) sys.Errno {
	delete(k.watched, costWatch{ep, fd})
	return k.Process.EpollDel(ep, fd)
}

// SetOption implements [sys.Kernel].
func (k *costKernel) SetOption(fd, level, name, value int) sys.Errno {
	if sys.SendBuffer.Is(level, name) {
		k.s.seen.costs[costLarger]++
	}
	return k.Process.SetOption(fd, level, name, value)
}

// TCPCounts implements [sys.Kernel]. Of a client that this process has accepted, and whose bytes no hook has seen or slowed down, it knows the answer, unless something odd has come.
func (k *costKernel) TCPCounts(fd int) (sys.TCPCounts, sys.Errno) {
	_, number := k.Process.Number(fd)
	f, x := k.s.flowNumber(number), k.sources[fd]
	if f != nil && x != nil && !k.past() && !x.earlier && !k.s.restoring && f.plan.sniff == 0 && !f.secure.has() && !f.said() && k.s.rates == 0 && !k.s.scarce && !f.mayReset() && !f.half[up].ended && !f.half[down].ended && len(f.half[up].urgent) == 0 {
		k.s.fail("the kernel is asked how much flow %d has moved, which is known", f.id)
	}
	return k.Process.TCPCounts(fd)
}

// lookAtWatches checks that epoll tells a loop what it waits for, and nothing else.
func (s *simulation) lookAtWatches(st *streams) {
	ep := s.kernel.epolls[st.loop.Descriptor()]
	st.slab.Each(func(f *streamFlow) {
		for side, fd := range f.fd {
			want := uint32(flowEvents)
			if f.muted[side] {
				want &^= sys.In | sys.Pri
			}
			if got := s.kernel.watched[costWatch{ep, int(fd)}]; f.state == streamRelaying && fd >= 0 && got != want {
				s.fail("side %d of the flow in slot %d is watched for %#x rather than %#x", side, f.slot, got, want)
			}
		}
	})
	for _, p := range st.ports {
		if _, watched := s.kernel.watched[costWatch{ep, p.fd}]; watched != (st.pause.until == 0 && !st.handing) {
			s.fail("a port of loop %d is watched: %v; it pauses until %v", st.loop.Index, watched, st.pause.until)
		}
	}
}

// Sleep implements [sys.Kernel]. What waits in a hand-over are handshakes, or a holder.
func (k *costKernel) Sleep(d time.Duration) {
	if k.Process.Sleep(d); k.s.linger && k.s.core != nil && k.s.core.handing && !k.s.core.loops[0].Closing { // or the loops end
		k.s.goesOn()
	}
}

// Close implements [sys.Kernel].
func (k *costKernel) Close(fd int) sys.Errno {
	delete(k.sources, fd)
	delete(k.pipes, fd)
	delete(k.ends, fd)
	delete(k.lowat, fd)
	delete(k.epolls, fd)
	delete(k.opened, fd)
	maps.DeleteFunc(k.silent, func(_ uint64, x int) bool { return x == fd })
	maps.DeleteFunc(k.watched, func(x costWatch, _ uint32) bool { return x.fd == fd })
	return k.Process.Close(fd)
}

// EpollWait implements [sys.Kernel].
func (k *costKernel) EpollWait(ep int, evs []sys.Event, timeout time.Duration) (int, sys.Errno) {
	clear(k.asked)
	n, e := k.Process.EpollWait(ep, evs, timeout)
	k.tells(evs[:max(n, 0)])
	return n, e
}

// EpollWaitRaw implements [sys.Kernel].
func (k *costKernel) EpollWaitRaw(ep int, evs []sys.Event, timeout time.Duration) (int, sys.Errno) {
	clear(k.asked)
	n, e := k.Process.EpollWaitRaw(ep, evs, timeout)
	k.tells(evs[:max(n, 0)])
	return n, e
}

// lookAtReads checks that each read of a side is not noted on its own where the next process could ask the kernel for its count: where the flow has neither
// failed nor passed on an end to that side, and no process has died, which may have had reasons.
func (s *simulation) lookAtReads(f *streamFlow, side int, flags uint32) {
	switch {
	case !f.recvOne(side), flags&(recordNoBase<<side) != 0, s.deaths > 0, s.upgrades > 0:
	case f.tls != nil, f.cause != CauseNone, f.odd[side], f.finSent(side), f.half[side].Ended(), f.wait[side] == pump.Failed, f.wait[1-side] == pump.Failed:
	default:
		s.fail("the kernel counts what side %d of the flow in slot %d sends, and each read of it is noted on its own", side, f.slot)
	}
}
