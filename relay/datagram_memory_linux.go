package relay

import "github.com/penstock/penstock/internal/sys"

// replyMemory is what the replies of a port are received into and planned with. The ports of a loop
// share it: an outbox borrows it with its first reply of a turn, and gives it back when all have
// left. So its size depends on how many ports have replies at the same time, not on how many have
// ever had one.
type replyMemory struct {
	replies *sys.Vector
	v       *sys.Vector
	pieces  []piece
}

// maxReplyMemory is how many pieces of replyMemory a loop keeps of each kind. Each has 4.3 MB, of
// which the system provides what large bursts have used.
const maxReplyMemory = 8

// memoryOf returns the memory for ports of a family.
func (d *datagrams) memoryOf(family sys.Family) *[]replyMemory {
	if family == sys.Unix {
		return &d.spareMemory[1]
	}
	return &d.spareMemory[0]
}

// borrow gives a port's outbox its memory until [outbox.giveBack]. If too many ports of the loop
// have some, their replies leave now rather than at the end of the turn; a blocked one keeps it.
func (o *outbox) borrow() {
	if len(o.d.dirty) >= maxReplyMemory {
		o.d.flushReplies()
	}
	spare := o.d.memoryOf(o.port.family)
	if n := len(*spare); n > 0 {
		m := (*spare)[n-1]
		(*spare)[n-1] = replyMemory{}
		*spare = (*spare)[:n-1]
		o.replies, o.v, o.pieces = m.replies, m.v, m.pieces
		return
	}
	o.v, o.pieces = sys.NewVector(dgramBatch, outboxPieces, o.port.family), make([]piece, 0, outboxPieces)
	o.replies = sys.NewVector(dgramBatch, dgramBatch, 0)
	for i, b := range dgramBuffers() {
		o.replies.SetBuf(i, b)
	}
}

// giveBack returns the memory of a port's outbox, unless something is queued.
func (o *outbox) giveBack() {
	if o.n > 0 || o.replies == nil {
		return
	}
	if spare := o.d.memoryOf(o.port.family); len(*spare) < maxReplyMemory {
		*spare = append(*spare, replyMemory{o.replies, o.v, o.pieces})
	}
	o.replies, o.v, o.pieces = nil, nil, nil
}

// mark tells the end of the turn to flush a port's outbox.
func (d *datagrams) mark(p *datagramPort) {
	if !p.dirty {
		p.dirty = true
		d.dirty = append(d.dirty, p)
	}
}

// flushReplies sends the replies that were gathered. Ports whose replies have all left return their
// memory.
func (d *datagrams) flushReplies() {
	for _, p := range d.dirty {
		p.dirty = false
		p.out.flush()
		p.out.giveBack()
	}
	clear(d.dirty)
	d.dirty = d.dirty[:0]
}
