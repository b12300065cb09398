package relay

import (
	"encoding/binary"

	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/relay/stats"
)

// A flow whose upstream's socket is full holds datagrams back in datagramFlow.held,
// one behind the other: 4 bytes length, 2 bytes segment size, TOS byte, a byte unused, payload. While
// it does, whatever comes is put behind them, so that the order stays.

const (
	holdMost   = 128 << 10 // one flow's
	holdTotal  = 32 << 20  // all flows' per loop
	holdHeader = 8
)

// holdBack holds a message until the socket has room, or drops it if too much is held.
func (d *datagrams) holdBack(f *datagramFlow, b []byte, seg int, tos uint8) {
	need := holdHeader + len(b)
	if f.held == nil && d.mayHold(holdMost) {
		f.held = d.takeHold(holdMost)
		d.watch(f)
	}
	if len(f.held)+need > holdMost || f.held == nil {
		d.drop(f, up, stats.DropFull, len(b), segment.Count(len(b), seg))
		return
	}
	f.held = appendHeld(f.held, b, seg, tos)
}

// mayHold reports whether the flows of this loop may hold n bytes more.
func (d *datagrams) mayHold(n int) bool {
	return d.stats.BytesHeld+int64(n) <= holdTotal && !d.share.less.Load()
}

// takeHold returns a buffer for at least n bytes, which is empty.
func (d *datagrams) takeHold(n int) []byte {
	b := d.shared.buffers.Get(n)[:0]
	d.stats.BytesHeld += int64(cap(b))
	return b
}

// giveHold takes back a buffer from takeHold.
func (d *datagrams) giveHold(b []byte) {
	d.stats.BytesHeld -= int64(cap(b))
	d.shared.buffers.Put(b)
}

func appendHeld(hold, b []byte, seg int, tos uint8) []byte {
	hold = binary.NativeEndian.AppendUint32(hold, uint32(len(b)))
	hold = binary.NativeEndian.AppendUint16(hold, uint16(seg))
	hold = append(hold, tos, 0)
	return append(hold, b...)
}

// cutHeld splits the first message off.
func cutHeld(hold []byte) (b []byte, seg int, tos uint8, rest []byte) {
	n := binary.NativeEndian.Uint32(hold)
	seg, tos = int(binary.NativeEndian.Uint16(hold[4:])), hold[6]
	rest = hold[holdHeader:]
	return rest[:n:n], seg, tos, rest[n:]
}

// heldBytes is the length of the payload in hold.
func heldBytes(hold []byte) (n int64) {
	for len(hold) > 0 {
		var b []byte
		b, _, _, hold = cutHeld(hold)
		n += int64(len(b))
	}
	return n
}

// release sends what f held back, now that its socket has room, or that it has one.
func (d *datagrams) release(f *datagramFlow) {
	held := f.held
	f.held = nil
	d.watch(f)
	ref := f.ref()
	for rest := held; len(rest) > 0; {
		var b []byte
		var seg int
		var tos uint8
		b, seg, tos, rest = cutHeld(rest)
		if !f.alive(ref.Gen) {
			d.drop(nil, up, stats.DropEnded, len(b), segment.Count(len(b), seg))
			continue
		}
		d.toUpstream.add(f, b, seg, tos)
	}
	d.toUpstream.flush() // what stays is copied into another buffer
	d.giveHold(held)
	if f.alive(ref.Gen) {
		d.checkFull(f) // all of it may have been dropped, and no reply is to come
	}
}

// dropHeld lets go of what a flow held when it ends.
func (d *datagrams) dropHeld(f *datagramFlow, why stats.Drop) {
	if f.held == nil {
		return
	}
	for rest := f.held; len(rest) > 0; {
		var b []byte
		var seg int
		b, seg, _, rest = cutHeld(rest)
		d.drop(f, up, why, len(b), segment.Count(len(b), seg))
	}
	d.giveHold(f.held)
	f.held = nil
}
