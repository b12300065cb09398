package pump

import (
	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/sys"
)

// Env is shared by halves that run one after the other: on one event loop, or in one blocking copy.
type Env struct {
	Kernel  sys.Kernel
	Pipes   *Pipes  // if nil, nothing is spliced
	Buffers Buffers // where bytes are held for a slow reader
	Scratch []byte  // the copy's buffer; it holds nothing between turns
	// Note is that of the half whose turn it is, if its flow outlives the process.
	Note *Note
	// Lowat, when above 1, is the SO_RCVLOWAT of a source that streams, in
	// bytes; the owner must then give lagging halves a turn within a short time.
	Lowat int
	// Shared says that others may make the sockets blocking at any time, as
	// os.File.Fd does: before a half splices it makes them non-blocking again.
	// Recv and Send do not need that.
	Shared bool
	// Hard makes a turn's budget the maximum that it reads, instead of the amount after which it
	// ends. It is set for a source with limited bandwidth.
	Hard bool
	// Less makes halves hold less: a read copies at most LeastRead bytes. HoldMost, if not 0, does so while
	// the buffers of all halves, which are Held bytes, exceed it.
	Less           bool
	HoldMost, Held int64
}

// Buffers is where a half gets its buffers: a *pool.Buffers, or a *ledger.Arena.
type Buffers interface {
	// Get returns a buffer of length n with arbitrary contents.
	Get(n int) []byte
	// Put takes back a buffer that Get has returned.
	Put(b []byte)
}

// LeastRead is how much is read at a time where little is to be held.
const LeastRead = 4 << 10

// ScratchSize is the size of Env.Scratch: four 16 KiB writes at once, and
// still in the second-level cache.
const ScratchSize = 64 << 10

// State is what a half waits for after a turn.
type State uint8

// The states.
const (
	WantRead  State = iota // until the source is readable
	WantWrite              // until the destination is writable
	Again                  // for its next turn: the budget of this one is used up
	End                    // for nothing: the source has ended and its last byte is delivered
	Failed                 // for nothing: see Half.Err
)

// Half is one direction of a stream pair.
//
//	          2 big reads                  source ends
//	copying ───────────────▶ splicing ───────────────────▶ ended
//	   ▲ │                      │ │                          ▲
//	   │ └──────────────────────┼─┼──────────────────────────┘
//	   └────────────────────────┘
//	      4 small reads, no pipe
//
// Invariants: it reads only while it holds nothing, or into a pipe that has room (Ahead), so that
// its memory is bounded by one scratch buffer or one pipe, and a slow reader stops the reading from
// the other side. It leases a pipe only while the pipe holds bytes, or within a turn. In - Out is
// the number of the source's bytes that it holds.
type Half struct {
	In      int64 // bytes taken from the source
	Out     int64 // bytes that the destination's socket accepted
	Spliced int64 // the part of Out that was never in user-space memory
	// Err is the error of a half that has failed. One of the source may be known before: what the source
	// had sent until then is still delivered.
	Err   sys.Errno
	AtSrc bool // whether Err came from the source

	// Exact says that a read shorter than asked for has emptied the source, so that the next read
	// can wait for an edge, and that no urgent data was seen, at which splice(2) would stop. True
	// for TCP until EPOLLPRI or a hang-up is seen; false if nobody watches for EPOLLPRI. A Unix
	// socket stops short at passed descriptors.
	Exact bool
	// Sink says that there is no destination, and that all bytes are dropped.
	Sink bool
	// TCP says that the source is a TCP socket.
	TCP bool
	// Enlarge asks for a larger send buffer of the destination, a Unix socket, once many of the
	// bytes spliced to it have to wait. It is false when that is done.
	Enlarge bool

	splicing     bool
	lowat        bool
	ended        bool
	streak       uint8
	against      uint8 // turns in a row that speak for changing the mark: empty ones with it, small ones without
	why          datapath.Why
	aheadStopped bool  // nothing more came, or fit, when the pipe was last filled further
	own          int32 // bytes of rest that did not come from the source, and do not count as taken or delivered

	idleAt    int32 // In, in MiB rounded up, when the source last proved not to be streaming
	rescuedAt int32 // In, in MiB, when bytes below the mark were last late

	off    int32
	inPipe int32
	rest   []byte // from Env.Buffers; rest[off:] waits to be sent
	pipe   *Pipe
}

// When to switch between copying and splicing. Splicing costs two system calls and a page reference
// per 4 KiB, and a third call that finds the source empty; copying costs two calls and two copies.
// Splicing is cheaper from about 18 KiB on, which is more than a TLS record.
const (
	bigRead     = 18 << 10
	smallRead   = 8 << 10
	bigStreak   = 2
	smallStreak = 4
	// maxSplice is the length requested in one splice. A pipe counts slots, and a slot can hold a
	// fragment of 32 KiB, so more than its nominal size fits.
	maxSplice = 4 << 20
	// enlargeAt is the number of bytes held for a Unix destination from which its send buffer, 208
	// KiB by default, counts as too small.
	enlargeAt = 128 << 10
)

// Refuse sets the reason why the half must not splice.
func (h *Half) Refuse(w datapath.Why) { h.why = w }

// Held returns the number of bytes taken and not yet delivered.
func (h *Half) Held() int { return len(h.rest) - int(h.off) + int(h.inPipe) }

// Memory returns the memory of what is held: the size of the buffer, and the bytes in the pipe.
func (h *Half) Memory() (buffer, pipe int) { return cap(h.rest), int(h.inPipe) }

// Ended reports whether the source has ended; bytes may still be held.
func (h *Half) Ended() bool { return h.ended }

// Path returns how the bytes have moved so far, and why they were not spliced.
func (h *Half) Path() (datapath.Path, datapath.Why) {
	switch {
	case h.Spliced > 0:
		return datapath.Splice, datapath.WhyNone
	case h.Out == 0:
		return datapath.None, h.why
	}
	return datapath.Copy, h.reason()
}

func (h *Half) reason() datapath.Why {
	if h.why == datapath.WhyNone {
		return datapath.WhySmall
	}
	return h.why
}

// Preload gives the half bytes to deliver before anything it reads; they are copied.
func (h *Half) Preload(env *Env, p []byte) {
	if len(p) > 0 {
		h.In += int64(len(p))
		h.keep(env, p)
	}
}

// Give is like Preload, but passes a buffer from env.Buffers, which belongs to the half from then
// on. Its first own bytes did not come from the source: they are delivered, but do not count as
// taken or delivered.
func (h *Half) Give(env *Env, buf []byte, own int) {
	if len(buf) == 0 {
		env.Buffers.Put(buf)
		return
	}
	h.In += int64(len(buf) - own)
	h.rest, h.off, h.own = buf, 0, int32(own)
	env.Held += int64(cap(buf))
}

// Turn moves bytes from src to dst until it must wait, or has moved about
// budget bytes. It never blocks.
func (h *Half) Turn(env *Env, src, dst, budget int) State {
	moved := 0
	for {
		if h.rest != nil || h.inPipe > 0 {
			if st := h.Flush(env, dst); st != Again {
				if st == WantWrite {
					if moved >= env.Lowat {
						h.against = 0 // a big turn, though the source was not seen to be empty
					}
					h.Ahead(env, src)
				}
				return st
			}
		}
		if h.lowat && !h.splicing { // the destination refused a splice
			h.mark(env, src, 1)
		}
		if h.ended {
			return End
		}
		if moved >= budget {
			h.against = 0
			h.release(env)
			return Again
		}
		var n int
		var st State
		switch {
		case h.Sink:
			n, st = h.drop(env, src, budget-moved)
		case h.splicing:
			n, st = h.fill(env, src, dst, moved, budget-moved)
		default:
			n, st = h.copy(env, src, dst, budget-moved)
		}
		if st != Again {
			return st
		}
		moved += n
	}
}

// Flush delivers what is held; it returns Again when nothing is held any more.
func (h *Half) Flush(env *Env, dst int) State {
	for {
		var st State
		switch {
		case h.rest != nil:
			st = h.flushRest(env, dst)
		case h.inPipe == 0:
			return Again
		case h.why == datapath.WhyKernel: // the destination refused a splice; a source does so with an empty pipe
			st = h.copyOut(env)
		default:
			st = h.flushPipe(env, dst)
		}
		if st != Again {
			return st
		}
	}
}

func (h *Half) flushRest(env *Env, dst int) State {
	n, e, nt := len(h.rest)-int(h.off), sys.Errno(0), env.Note
	switch {
	case h.Sink:
	case nt != nil:
		n, e = nt.sendRest(env, h, dst, h.rest[h.off:])
	default:
		n, e = env.Kernel.Send(dst, h.rest[h.off:])
	}
	switch {
	case e == sys.EINTR:
		return Again
	case e == sys.EAGAIN:
		if nt != nil {
			nt.idle()
		}
		return WantWrite
	case e != 0:
		return h.fail(e, false)
	}
	h.off += int32(n)
	if h.own > 0 {
		own := min(n, int(h.own))
		h.own -= int32(own)
		n -= own
	}
	h.Out += int64(n)
	rest := h.rest
	if int(h.off) == len(rest) {
		h.rest, h.off = nil, 0
	}
	if nt != nil {
		if h.rest == nil {
			nt.block(nil)
		}
		nt.Done(h)
	}
	if h.rest == nil {
		env.put(rest)
	}
	return Again
}

func (h *Half) flushPipe(env *Env, dst int) State {
	nt := env.Note
	if nt != nil {
		nt.turn.SetSpliced(h.Spliced)
		nt.begin(h, ledger.PhaseEmptying)
	}
	n, e := env.Kernel.Splice(h.pipe.r, dst, int(h.inPipe))
	switch {
	case e == sys.EINTR:
		return Again
	case e == sys.EAGAIN:
		if nt != nil {
			nt.idle()
		}
		if h.Enlarge && h.inPipe >= enlargeAt {
			h.Enlarge = false
			sys.EnlargeSendBuffer(env.Kernel, dst)
		}
		return WantWrite
	case e == sys.EINVAL:
		h.splicing, h.why = false, datapath.WhyKernel
		return Again
	case e != 0:
		return h.fail(e, false)
	}
	h.Out += int64(n)
	h.Spliced += int64(n)
	h.aheadStopped = false
	if nt != nil {
		nt.Done(h)
	}
	h.drained(env, n)
	return Again
}

// copyOut serves a destination that the kernel does not splice to, by copying what the pipe holds.
func (h *Half) copyOut(env *Env) State {
	nt := env.Note
	if nt != nil {
		nt.begin(h, ledger.PhaseDraining)
	}
	n, e := env.Kernel.ReadPipe(h.pipe.r, env.Scratch)
	switch {
	case e == sys.EINTR:
		return Again
	case e != 0:
		return h.fail(e, false)
	}
	h.keep(env, env.Scratch[:n])
	if nt != nil {
		nt.Done(h)
	}
	h.drained(env, n) // which may give the pipe to others: nothing refers to it any more
	return Again
}

// drained records that n bytes have left the pipe, which is returned once it is empty if splicing
// is over.
func (h *Half) drained(env *Env, n int) {
	if h.inPipe -= int32(n); h.inPipe == 0 && !h.splicing {
		h.release(env)
	}
}

// readLimit returns the maximum length of a read within what is left of the turn's budget.
func (env *Env) readLimit(n, left int) int {
	if env.Hard {
		return min(n, left)
	}
	return n
}

// copy moves the bytes of one read through the scratch buffer.
func (h *Half) copy(env *Env, src, dst, left int) (int, State) {
	size := len(env.Scratch)
	if env.Less || env.HoldMost > 0 && env.Held > env.HoldMost {
		size = LeastRead
	}
	buf := env.Scratch[:env.readLimit(size, left)]
	var n, m int
	var e sys.Errno
	nt := env.Note
	if nt == nil {
		n, e = env.Kernel.Recv(src, buf)
	} else if n, e = nt.receive(env, h, src, buf); e == sys.EAGAIN || e == 0 && n == 0 {
		nt.idle()
	}
	switch {
	case e == sys.EINTR:
		return 0, Again
	case n == 0 && h.Err != 0:
		return 0, h.fail(h.Err, true)
	case e == sys.EAGAIN && h.disturbed(env, src):
		return 0, Again
	case e == sys.EAGAIN:
		return 0, WantRead
	case e != 0:
		return 0, h.fail(e, true)
	case n == 0:
		h.ended = true
		return 0, Again
	}
	h.In += int64(n)
	h.streaked(env, n)
	if nt == nil {
		m, e = env.Kernel.Send(dst, buf[:n])
	} else {
		m, e = nt.sendRead(env, dst, buf[:n])
	}
	if e != 0 && e != sys.EAGAIN && e != sys.EINTR {
		return n, h.fail(e, false)
	}
	h.Out += int64(m)
	if m < n {
		h.keep(env, buf[m:n])
	}
	if nt != nil {
		nt.Done(h)
	}
	if m < n {
		return n, Again
	}
	if h.Exact && n < len(buf) && !h.splicing {
		return n, WantRead
	}
	return n, Again
}

// disturbed reports whether a read has stopped at an urgent byte though there is more behind it. It does so
// if a signal is pending (tcp_recvmsg_locked), such as those that the runtime preempts goroutines with. No
// event would follow. Once the signal was handled, a read gets past it.
func (h *Half) disturbed(env *Env, src int) bool {
	return h.TCP && !h.Exact && env.Kernel.AtMark(src) && sys.Readable(env.Kernel, src)
}

// streaked counts consecutive big reads; enough of them start splicing.
func (h *Half) streaked(env *Env, n int) {
	if n < bigRead {
		h.streak = 0
		return
	}
	if h.streak++; h.streak >= bigStreak && h.why <= datapath.WhySmall || h.streak >= 64 && h.why == datapath.WhyPipes {
		h.streak = 0
		h.splicing = env.Pipes != nil
	}
}

// fill moves what the source has into the pipe, which is empty on entry. So EAGAIN can only mean
// that the source is empty, or that its next byte is urgent data, which splice(2) does not pass. If
// the end of the stream is queued behind the urgent byte, splice(2) returns 0 instead. In both
// cases a copy finds out, and skips the byte. moved is what this turn has moved before.
func (h *Half) fill(env *Env, src, dst, moved, left int) (int, State) {
	nt := env.Note
	if h.pipe == nil {
		if h.pipe = env.Pipes.Get(); h.pipe == nil {
			h.stopSplicing(env, src, datapath.WhyPipes)
			return 0, Again
		}
		if env.Shared {
			env.Kernel.SetNonblock(src)
			env.Kernel.SetNonblock(dst)
		}
		if nt != nil {
			nt.pipe(h.pipe)
		}
	}
	if nt != nil {
		nt.begin(h, ledger.PhaseFilling)
	}
	n, e := env.Kernel.Splice(src, h.pipe.w, env.readLimit(maxSplice, left))
	if nt != nil && (e == sys.EAGAIN || e == sys.EINVAL || e == 0 && n == 0) {
		nt.idle()
	}
	switch {
	case e == sys.EINTR:
		return 0, Again
	case e == sys.EAGAIN && h.Err == 0 && !(h.TCP && !h.Exact && env.Kernel.AtMark(src)):
		h.release(env)
		h.wait(env, src, moved)
		return 0, WantRead
	case e == sys.EAGAIN, e == 0 && n == 0:
		h.release(env)
		return h.copy(env, src, dst, left)
	case e == sys.EINVAL:
		h.stopSplicing(env, src, datapath.WhyKernel)
		return 0, Again
	case e != 0:
		h.release(env) // the flow may wait for what was delivered before
		return 0, h.fail(e, true)
	}
	h.In += int64(n)
	h.inPipe = int32(n)
	if nt != nil {
		nt.Done(h)
	}
	if h.lowat {
		h.against = 0
		if moved == 0 && n < env.Lowat {
			h.rescue(env, src)
		}
	}
	if n >= smallRead {
		h.streak = 0
	} else if h.streak++; h.streak >= smallStreak {
		h.stopSplicing(env, src, datapath.WhyNone)
	}
	return n, Again
}

// Ahead reads on into the pipe while the destination takes nothing. What a Unix socket has sent
// counts against its own buffer until the other end reads it. With Ahead, the source's peer can
// write while the destination's peer reads, and neither waits for the other. The pipe is filled at
// most to its size. TCP does not need this, because the source has its own receive buffer.
func (h *Half) Ahead(env *Env, src int) {
	if h.TCP || h.aheadStopped || h.inPipe == 0 || !h.splicing || h.Err != 0 || env.Hard {
		return
	}
	room := env.Pipes.size - int(h.inPipe) // a slot can hold more than a page
	if room <= 0 {
		return
	}
	nt := env.Note
	if nt != nil {
		nt.begin(h, ledger.PhaseFilling)
	}
	n, e := env.Kernel.Splice(src, h.pipe.w, room)
	if nt != nil && (e == 0 && n == 0 || e == sys.EAGAIN || e == sys.EINTR || e == sys.EINVAL) {
		nt.idle()
	}
	switch {
	case e == sys.EINTR:
	case e == sys.EAGAIN, e == sys.EINVAL, e == 0 && n == 0:
		h.aheadStopped = true // or the source has ended or cannot be spliced: fill finds out when the pipe is empty
	case e != 0:
		h.fail(e, true) // what the pipe holds is delivered first
		if nt != nil {
			nt.failed(e) // the socket does not tell it again
			nt.idle()
		}
	default:
		h.In += int64(n)
		h.inPipe += int32(n)
		if nt != nil {
			nt.Done(h)
		}
	}
}

// stopSplicing goes back to copying, for the reason why: datapath.WhyNone for small reads, after which an
// earlier refusal of a pipe no longer counts. The pipe is returned once it is empty.
func (h *Half) stopSplicing(env *Env, src int, why datapath.Why) {
	h.splicing = false
	h.streak = 0
	h.why = why
	if h.lowat {
		h.mark(env, src, 1)
	}
	if h.inPipe == 0 {
		h.release(env)
	}
}

// drop discards the source's bytes.
func (h *Half) drop(env *Env, src, left int) (int, State) {
	n, e := env.Kernel.Discard(src, env.Scratch[:env.readLimit(len(env.Scratch), left)], h.TCP && !env.Hard)
	switch {
	case e == sys.EINTR:
		return 0, Again
	case n == 0 && h.Err != 0:
		return 0, h.fail(h.Err, true)
	case e == sys.EAGAIN && h.disturbed(env, src):
		return 0, Again
	case e == sys.EAGAIN:
		return 0, WantRead
	case e != 0:
		return 0, h.fail(e, true)
	case n == 0:
		h.ended = true
	}
	h.In += int64(n)
	h.Out += int64(n)
	return n, Again
}

// keep holds what a short write did not take, in a buffer of a fitting size.
func (h *Half) keep(env *Env, p []byte) {
	h.rest = env.Buffers.Get(len(p))
	env.Held += int64(cap(h.rest))
	h.off = 0
	copy(h.rest, p)
	if env.Note != nil {
		env.Note.block(h.rest)
	}
}

// put takes back the buffer of a half.
func (env *Env) put(b []byte) {
	env.Held -= int64(cap(b))
	env.Buffers.Put(b)
}

func (h *Half) fail(e sys.Errno, atSrc bool) State {
	h.Err, h.AtSrc = e, atSrc
	return Failed
}

// release returns an empty pipe to the budget.
func (h *Half) release(env *Env) {
	if h.pipe != nil && h.inPipe == 0 {
		p := h.pipe
		h.pipe = nil
		if env.Note != nil {
			env.Note.pipe(nil) // before another half can get it
		}
		env.Pipes.Put(p)
	}
}

// Close returns everything that the half has leased. It returns the number of bytes that were taken
// and never delivered.
func (h *Half) Close(env *Env) (dropped int64) {
	if h.pipe != nil {
		if h.inPipe == 0 {
			env.Pipes.Put(h.pipe)
		} else {
			env.Pipes.Destroy(h.pipe)
		}
		h.pipe, h.inPipe = nil, 0
	}
	if h.rest != nil {
		env.put(h.rest)
		h.rest, h.off, h.own = nil, 0, 0
	}
	return h.In - h.Out
}
