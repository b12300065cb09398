package pump

import (
	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/sys"
)

// Note is where the half of a flow that outlives its process notes what it has in its hands. Its
// stores are plain ones, and in such an order that the ledger tells after each of them, and after
// each system call, which bytes were taken from the source and which the destination has accepted.
//
// As long as the phase is PhaseNone, the record is right. Otherwise the turn note has the counts from
// before the system call, and what that has moved follows from the phase:
//
//	reading     from the source to the scratch buffer   source's counter, or message header
//	read        from there to the destination           destination's counter, or message header
//	flushing    from the block to the destination       destination's counter, or message header
//	filling     from the source to the pipe             what the pipe holds
//	emptying    from the pipe to the destination        what the pipe holds
//	draining    from the pipe to the scratch buffer     what the pipe holds
//
// The counters are those of TCP. Where the kernel has none, it writes the length into a message
// header that lies in the ledger, before the system call returns.
type Note struct {
	turn    ledger.Turn
	record  ledger.Half
	arena   *ledger.Arena
	recv    *sys.Message
	send    *sys.Message
	number  uint8
	recvOne bool // the source has no counter
	sendOne bool // the destination has no counter
}

// NewNote returns a note of the loop that l belongs to.
func NewNote(l *ledger.Ledger) *Note {
	t := l.Turn()
	return &Note{turn: t, arena: l.Arena(), recv: t.ReadMessage(), send: t.WriteMessage()}
}

// Of makes the note that of one half, by its number and its record. recvOne and sendOne say that the
// source and the destination have no counter. The turn note names the flow already.
func (nt *Note) Of(number int, record ledger.Half, recvOne, sendOne bool) {
	nt.number, nt.record, nt.recvOne, nt.sendOne = uint8(number), record, recvOne, sendOne
}

// begin notes that a system call follows.
func (nt *Note) begin(h *Half, phase ledger.Phase) {
	nt.turn.SetCounts(h.In, h.Raw())
	nt.turn.Set(nt.number, phase, 0)
}

// Done notes that h has nothing in its hands but what its record says.
func (nt *Note) Done(h *Half) {
	nt.record.SetIn(h.In)
	nt.record.SetOut(h.Raw())
	nt.record.SetSpliced(h.Spliced)
	nt.turn.Set(nt.number, ledger.PhaseNone, 0)
}

// idle notes that the system call has moved nothing.
func (nt *Note) idle() { nt.turn.Set(nt.number, ledger.PhaseNone, 0) }

// receive reads into the scratch buffer. After an error the phase remains, until the caller has noted
// the error.
func (nt *Note) receive(env *Env, h *Half, src int, p []byte) (int, sys.Errno) {
	if !nt.recvOne {
		nt.begin(h, ledger.PhaseReading)
		return env.Kernel.Recv(src, p)
	}
	nt.recv.Clear()
	nt.begin(h, ledger.PhaseReading)
	n, e := env.Kernel.RecvOne(src, nt.recv, p)
	if e == 0 || e == sys.EAGAIN || e == sys.EINTR {
		return n, e
	}
	// recvmmsg(2) takes an error from the socket before the bytes that came in front of it.
	nt.failed(e) // the socket does not tell it again
	h.Err, h.AtSrc = e, true
	return env.Kernel.RecvOne(src, nt.recv, p)
}

// sendRead sends what receive has read.
func (nt *Note) sendRead(env *Env, dst int, p []byte) (int, sys.Errno) {
	if !nt.sendOne {
		nt.turn.Set(nt.number, ledger.PhaseRead, len(p))
		return env.Kernel.Send(dst, p)
	}
	nt.send.Clear()
	nt.turn.Set(nt.number, ledger.PhaseRead, len(p))
	return env.Kernel.SendOne(dst, nt.send, p)
}

// sendRest sends what the record's block has.
func (nt *Note) sendRest(env *Env, h *Half, dst int, p []byte) (int, sys.Errno) {
	if !nt.sendOne {
		nt.begin(h, ledger.PhaseFlushing)
		return env.Kernel.Send(dst, p)
	}
	nt.send.Clear()
	nt.begin(h, ledger.PhaseFlushing)
	return env.Kernel.SendOne(dst, nt.send, p)
}

// failed notes that the source has failed, while bytes are still to be delivered.
func (nt *Note) failed(e sys.Errno) { nt.record.SetErrno(uint32(e)) }

// block notes the block that the half has; nil: none.
func (nt *Note) block(b []byte) {
	ref, _ := nt.arena.Ref(b) // memory that the arena did not have is not found again
	nt.record.SetBlock(ref, len(b))
}

// pipe notes the pipe that the half has leased; nil: none.
func (nt *Note) pipe(p *Pipe) {
	if p == nil {
		nt.record.SetPipe(0)
		return
	}
	nt.record.SetPipe(p.at)
}

// Store stores all that h holds in its record, from where [Half.Restore] gets it. It reports false if
// a buffer of h is not in the arena.
func (h *Half) Store(record ledger.Half, arena *ledger.Arena) bool {
	record.SetIn(h.In)
	record.SetOut(h.Raw())
	record.SetSpliced(h.Spliced)
	record.SetPipe(0)
	if h.pipe != nil {
		record.SetPipe(h.pipe.at)
	}
	record.SetErrno(uint32(h.Err))
	record.SetBlock(0, 0)
	if h.rest == nil {
		return true
	}
	ref, ok := arena.Ref(h.rest)
	record.SetBlock(ref, len(h.rest))
	return ok
}

// Held is what a half held when its process ended.
type Held struct {
	Block []byte // of the arena; nil: none
	Rest  int    // the number of bytes at the block's end that wait to be sent
	Pipe  *Pipe  // leased; nil: none
	Piped int    // the number of bytes in the pipe
	// Err is the error that the source has failed with; what it still has is delivered first.
	Err sys.Errno
}

// Restore makes h a half that has moved in and out bytes and holds what an earlier process held. out
// is what [Half.Store] and [Note] have stored, and negative if own bytes are still to be delivered.
// The block and the pipe belong to h from then on.
func (h *Half) Restore(env *Env, in, out, spliced int64, x Held) {
	h.In, h.Out, h.Spliced = in, max(out, 0), spliced
	h.own = int32(max(-out, 0))
	h.Err, h.AtSrc = x.Err, x.Err != 0
	if x.Rest > 0 {
		h.rest, h.off = x.Block, int32(len(x.Block)-x.Rest)
		env.Held += int64(cap(x.Block))
	}
	if x.Piped > 0 {
		h.pipe, h.inPipe, h.splicing = x.Pipe, int32(x.Piped), true
	}
	if x.Rest > 0 && x.Piped > 0 { // copyOut was at work: the destination refuses a splice
		h.splicing, h.why = false, datapath.WhyKernel
	}
}

// Raw returns the number of bytes that the destination has accepted, own bytes included, less the number of
// all own bytes: while these are not delivered it is negative.
func (h *Half) Raw() int64 { return h.Out - int64(h.own) }

// Take returns a copy of what h holds, which counts as delivered: somebody else delivers it.
func (h *Half) Take(env *Env) []byte {
	var p []byte
	if h.rest != nil {
		p = append(p, h.rest[h.off:]...)
	}
	h.Close(env)
	h.Out = h.In
	return p
}

// Leave closes this process's descriptors of the pipe that h has leased, which is the next process's from now on.
func (h *Half) Leave(k sys.Kernel) {
	if p := h.pipe; p != nil {
		k.Close(p.r)
		k.Close(p.w)
	}
}

// Move moves what h holds from a buffer of one environment into one of another.
func (h *Half) Move(from, to *Env) {
	if rest := h.rest; rest != nil {
		h.keep(to, rest[h.off:])
		from.put(rest)
	}
}
