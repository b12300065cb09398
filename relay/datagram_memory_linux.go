package relay

import "github.com/penstock/penstock/internal/sys"

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
	m := newReplyMemory(o.port.family, dgramBuffers())
	o.replies, o.v, o.pieces = m.replies, m.v, m.pieces
}

// newReplyMemory makes memory for ports of a family, out of the buffers of one batch.
func newReplyMemory(family sys.Family, buffers [][]byte) replyMemory {
	m := replyMemory{replies: sys.NewVector(dgramBatch, dgramBatch, 0), v: sys.NewVector(dgramBatch, outboxPieces, family), pieces: make([]piece, 0, outboxPieces)}
	for i, b := range buffers {
		m.replies.SetBuf(i, b)
	}
	return m
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

// prepareWith makes what the first port needs, and those after it, but for the buffers of a batch.
func (d *datagrams) prepareWith(buffers [][]byte) {
	d.buffers = buffers
	d.batch = make([]message, dgramBatch)
	d.single = sys.NewVector(1, 2, sys.Unix) // whose names have room for any address
	d.toUpstream.init(d, 0)
	d.echoes.init(d, sys.Unix) // whose names have room for any address
}

// dgramBuffers makes the buffers of one batch, out of one piece.
func dgramBuffers() [][]byte {
	all := make([]byte, dgramBatch*dgramStride)
	bs := make([][]byte, dgramBatch)
	for i := range bs {
		bs[i] = all[i*dgramStride:][:dgramSize:dgramSize]
	}
	return bs
}
