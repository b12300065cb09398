package relay

import (
	"encoding/binary"

	"github.com/penstock/penstock/internal/segment"
)

// A flow whose upstream's socket is full holds datagrams back in session.hold,
// one behind the other: 4 bytes length, 4 bytes segment size, payload. While
// it does, whatever comes is put behind them, so that the order stays.

const (
	holdMost   = 128 << 10 // one flow's
	holdTotal  = 32 << 20  // all flows' of a loop
	holdHeader = 8
)

// holdBack keeps a message for later, or drops it where there is no room.
func (d *dgrams) holdBack(s *session, b []byte, seg int) {
	need := holdHeader + len(b)
	if s.hold == nil && d.stats.BytesHeld+holdMost <= holdTotal {
		s.hold = d.loop.env.Buffers.Get(holdMost)[:0]
		d.stats.BytesHeld += holdMost
		d.watch(s)
	}
	if len(s.hold)+need > holdMost || s.hold == nil {
		d.drop(s, toB, DropFull, len(b), segment.Count(len(b), seg))
		return
	}
	s.hold = appendHeld(s.hold, b, seg)
}

func appendHeld(hold, b []byte, seg int) []byte {
	hold = binary.NativeEndian.AppendUint32(hold, uint32(len(b)))
	hold = binary.NativeEndian.AppendUint32(hold, uint32(seg))
	return append(hold, b...)
}

// cutHeld splits the first message off.
func cutHeld(hold []byte) (b []byte, seg int, rest []byte) {
	n := binary.NativeEndian.Uint32(hold)
	seg = int(binary.NativeEndian.Uint32(hold[4:]))
	rest = hold[holdHeader:]
	return rest[:n:n], seg, rest[n:]
}

// heldBytes is the length of the payload in hold.
func heldBytes(hold []byte) (n int64) {
	for len(hold) > 0 {
		var b []byte
		b, _, hold = cutHeld(hold)
		n += int64(len(b))
	}
	return n
}

// release sends what s held back, now that its socket has room.
func (d *dgrams) release(s *session) {
	held := s.hold
	s.hold = nil
	d.stats.BytesHeld -= holdMost
	d.watch(s)
	ref := s.ref()
	for rest := held; len(rest) > 0; {
		var b []byte
		var seg int
		b, seg, rest = cutHeld(rest)
		if s.gen != ref.gen || !s.open {
			d.drop(nil, toB, DropEnded, len(b), segment.Count(len(b), seg))
			continue
		}
		d.up.add(s, b, seg)
	}
	d.up.flush() // what stays is copied into another buffer
	d.loop.env.Buffers.Put(held)
}

// dropHeld lets go of what a flow held when it ends.
func (d *dgrams) dropHeld(s *session) {
	if s.hold == nil {
		return
	}
	for rest := s.hold; len(rest) > 0; {
		var b []byte
		var seg int
		b, seg, rest = cutHeld(rest)
		d.drop(s, toB, DropEnded, len(b), segment.Count(len(b), seg))
	}
	d.loop.env.Buffers.Put(s.hold)
	s.hold = nil
	d.stats.BytesHeld -= holdMost
}
