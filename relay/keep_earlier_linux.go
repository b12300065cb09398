package relay

import (
	"maps"
	"slices"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
)

// earlierFlow is a flow of an earlier process.
type earlierFlow struct {
	ref
	record ledger.Record
	fds    []int // nil: they were not held
}

// restoreBurst is how many flows a loop restores before others have their turn.
const restoreBurst = 64

// crashesMost is how often the process may die in the turn of a flow, without one good turn in between.
const crashesMost = 2

// deadly reports whether the process has died once more when the flow was to be ended for that reason, and
// its hooks were told. Now they are not.
func deadly(r ledger.Record) bool { return r.Crashes() > crashesMost }

// pipeTeller tells how many bytes a pipe of the earlier process holds, by its number.
type pipeTeller interface {
	Queued(number uint32) (n int, ok bool)
}

// reserve marks the slots and blocks that records of an earlier process use, so that no new flow gets them.
func (k *keeping) reserve() {
	for _, r := range k.ledger.All() {
		if r.Kind() != ledger.KindStream && r.Kind() != ledger.KindDatagram || !k.ledger.Reserve(r) {
			r.SetFlags(r.Flags() | recordDamaged)
		}
	}
	k.ledger.Arena().Sweep()
	k.lastActive = lastActive(k.ledger)
}

// lastActive returns when one of the flows of an earlier process carried something last.
func lastActive(l *ledger.Ledger) (last uint32) {
	for _, r := range l.All() {
		if r.Kind() != ledger.KindDatagram {
			continue
		}
		if at := r.Gram().Active(); last == 0 || at != 0 && int32(at-last) > 0 {
			last = at
		}
	}
	return last
}

// resolve finds out what the process had in its hands when it died: the flow that the turn note names
// gets a record as if the process had died between two turns. What was in the scratch buffer goes to a
// block. It must be called before the scratch buffer is used.
func (k *keeping) resolve(pipes pipeTeller) {
	note := k.turn.Note()
	if note.Generation == 0 {
		return
	}
	if int(note.Slot) < k.ledger.Slots() {
		r := k.ledger.Record(note.Slot)
		if r.Generation() == note.Generation && note.Generation&1 == 1 && r.Flags()&recordDamaged == 0 {
			if r.Kind() == ledger.KindStream && r.State() == recordRelaying {
				k.resolveHalf(r, note, pipes)
			}
			r.SetCrashes(r.Crashes() + 1)
		}
	}
	k.turn.End()
}

// resolveHalf resolves the half that the turn note names.
func (k *keeping) resolveHalf(r ledger.Record, note ledger.Note, pipes pipeTeller) {
	h := int(note.Half)
	half, src, dst := r.Half(h), h, 1-h
	if r.Flags()&recordEcho != 0 {
		dst = h
	}
	fds := k.earlier[k.flowKey(ref{Slot: note.Slot, Gen: note.Generation})]
	odd := func() {
		r.SetFlags(r.Flags() | recordOdd)
		k.countEarlier(note.Half, half, r.Flags()) // what the turn had moved before
	}
	hands := hands{Note: note, scratch: ledger.ScratchSize}
	hands.in, hands.out = k.turn.Counts()
	if note.Phase == ledger.PhaseNone {
		hands.in, hands.out = half.In(), half.Out()
	}
	if p := half.Pipe(); p > 0 {
		n, ok := pipes.Queued(p - 1)
		if !ok {
			odd()
			return
		}
		hands.piped = n
	}
	switch note.Phase {
	case ledger.PhaseReading:
		n, ok := k.read(r, half, fds, src, hands.in)
		if !ok {
			odd()
			return
		}
		hands.moved = n
	case ledger.PhaseRead, ledger.PhaseFlushing:
		n, ok := k.wrote(r, half, fds, dst, hands.out)
		if !ok {
			odd()
			return
		}
		hands.moved = n
	}
	reads := note.Phase == ledger.PhaseReading || note.Phase == ledger.PhaseFilling
	if reads && hands.moved == 0 && r.Flags()&(recordTCP<<src) == 0 {
		r.SetFlags(r.Flags() | recordDoubt<<src)
	}
	in, out, from, to, ok := hands.resolve()
	if !ok {
		odd()
		return
	}
	if to > from {
		arena := k.ledger.Arena()
		b := arena.Get(to - from)
		copy(b, k.ledger.Scratch()[from:to])
		ref, _ := arena.Ref(b)
		before, n := half.Block()
		half.SetBlock(ref, len(b))
		if before != 0 { // it has the same bytes
			if b, ok := arena.Bytes(before, n); ok {
				arena.Put(b)
			}
		}
	}
	if note.Phase == ledger.PhaseEmptying {
		half.SetSpliced(k.turn.Spliced() + out - hands.out) // the record may have them already
	}
	half.SetIn(in)
	half.SetOut(out)
	k.countEarlier(note.Half, half, r.Flags())
}

// countEarlier adds to the loop's counters what the half has moved since the process counted it last.
func (k *keeping) countEarlier(h uint8, half ledger.Half, flags uint32) {
	in, out, spliced, ok := k.turn.Counted(h)
	if !ok {
		return // it has not had its turn
	}
	dIn, dOut, dSpliced := half.In()-in, max(half.Out(), 0)-out, half.Spliced()-spliced
	k.turn.SetCounted(h, half.In(), max(half.Out(), 0), half.Spliced())
	if flags&recordEcho != 0 {
		dIn, dOut, dSpliced = dIn+dOut, 2*dOut, 2*dSpliced
	}
	k.stats.BytesRead += dIn
	k.stats.BytesWritten += dOut
	k.stats.BytesSpliced += dSpliced
}

// read returns how many bytes a read has taken from a side that the process died in.
func (k *keeping) read(r ledger.Record, half ledger.Half, fds []int, src int, in int64) (int, bool) {
	if r.Flags()&(recordRecvOne<<src) != 0 {
		n, ok := k.turn.ReadMessage().Moved()
		if !ok {
			n = 0
		}
		return n, true
	}
	c, ok := k.countsOf(r, fds, src)
	if !ok || c.Urgent || c.State == sys.TCPClose {
		return 0, false // reset by its peer: nobody knows if the counter includes an end
	}
	n := int64(half.InBase()) + int64(consumed(&c)) - in
	return int(n), n >= 0 && n <= ledger.ScratchSize
}

// wrote returns how many bytes a write that the process died in has given to a side.
func (k *keeping) wrote(r ledger.Record, half ledger.Half, fds []int, dst int, out int64) (int, bool) {
	if r.Flags()&recordDiscard != 0 {
		return 0, false
	}
	if r.Flags()&(recordSendOne<<dst) != 0 {
		n, ok := k.turn.WriteMessage().Moved()
		if !ok {
			n = 0
		}
		return n, true
	}
	c, ok := k.countsOf(r, fds, dst)
	if !ok {
		return 0, false
	}
	n := int64(half.OutBase()) + int64(written(&c)) - out
	return int(n), n >= 0 && n <= ledger.ScratchSize
}

func (k *keeping) countsOf(r ledger.Record, fds []int, side int) (sys.TCPCounts, bool) {
	if side >= len(fds) || r.Flags()&(recordNoBase<<side) != 0 {
		return sys.TCPCounts{}, false
	}
	c, e := k.holding.kernel.TCPCounts(fds[side])
	return c, e == 0
}

// hands is what is known of a half in whose turn the process died.
type hands struct {
	ledger.Note
	in, out int64 // before the system call that the phase stands for
	moved   int   // bytes that the call has read (PhaseReading) or written (PhaseRead, PhaseFlushing)
	piped   int   // bytes in the pipe
	scratch int   // the scratch buffer's size
}

// resolve returns what the half has taken and delivered, and which part of the scratch buffer waits to be
// delivered before what the pipe holds. It reports false if that is not possible.
func (h *hands) resolve() (in, out int64, from, to int, ok bool) {
	in, out = h.in, h.out
	piped := int64(h.piped)
	switch h.Phase {
	case ledger.PhaseNone:
		return in, out, 0, 0, in-out >= piped
	case ledger.PhaseReading:
		in += int64(h.moved)
		return in, out, 0, h.moved, h.in == h.out && piped == 0 && h.moved <= h.scratch
	case ledger.PhaseRead:
		in += int64(h.N)
		out += int64(h.moved)
		return in, out, h.moved, h.N, h.in == h.out && piped == 0 && h.moved <= h.N && h.N <= h.scratch
	case ledger.PhaseFlushing:
		out += int64(h.moved)
		return in, out, 0, 0, in-out >= piped
	case ledger.PhaseFilling:
		in = out + piped
		return in, out, 0, 0, in >= h.in
	case ledger.PhaseEmptying:
		out = in - piped
		return in, out, 0, 0, out >= h.out
	case ledger.PhaseDraining:
		n := in - out - piped
		return in, out, 0, int(n), n >= 0 && n <= int64(h.scratch)
	}
	return in, out, 0, 0, false
}

// next returns the next flow of the earlier process.
func (k *keeping) next() (x earlierFlow, ok bool) {
	for ; k.at < k.ledger.Top(); k.at++ {
		r := k.ledger.Record(k.at)
		x = earlierFlow{ref: ref{Slot: k.at, Gen: r.Generation()}, record: r}
		// A flow of this process may have a record already: one that was settled before Restore was called.
		if loop.InUse(x.Gen) && k.slots.Find(x.ref) == nil {
			key := k.flowKey(x.ref)
			x.fds = k.earlier[key]
			delete(k.earlier, key)
			k.at++
			return x, true
		}
	}
	return earlierFlow{}, false
}

// abandon resets the connections of a flow that nobody can restore, and forgets it.
func (k *keeping) abandon(x *earlierFlow) {
	k.ledger.Begin(x.Slot)
	for _, fd := range x.fds {
		resetSocket(k.holding.kernel, fd)
		k.holding.kernel.Close(fd)
	}
	k.holding.drop(k.flowKey(x.ref))
}

// releaseEarlier closes the sockets of flows without a record: they have ended.
func (k *keeping) releaseEarlier() {
	for _, key := range slices.SortedFunc(maps.Keys(k.earlier), func(a, b holdKey) int { return slices.Compare(a[:], b[:]) }) {
		k.holding.release(hold.Held{Key: key, FDs: k.earlier[key]})
	}
	clear(k.earlier)
	k.older = nil
}

// consumed is the number of bytes that were taken from a socket.
func consumed(c *sys.TCPCounts) uint64 {
	if _, received, _ := c.State.FINs(); received {
		return c.Consumed - 1
	}
	return c.Consumed
}

// written is the number of bytes that a socket has accepted.
func written(c *sys.TCPCounts) uint64 {
	if sent, _, _ := c.State.FINs(); sent {
		return c.Written - 1
	}
	return c.Written
}

// resetSocket ends a TCP connection with a reset, although others have the socket too.
func resetSocket(k sys.Kernel, fd int) {
	if k.Disconnect(fd) != 0 {
		k.CloseResets(fd, true)
		k.ShutdownBoth(fd)
	}
}
