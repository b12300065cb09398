package keeper

import (
	"github.com/penstock/penstock/internal/sys"
)

// outbox is what a worker has queued for its keeper, and the sending of it. The worker's lock protects it.
type outbox struct {
	fd     int
	socket messages
	broken bool // nobody is at the other end
	msg    []byte
	seq    uint32

	holds []queuedItem
	fds   []int // of holds, in their order
	drops [][2]uint64

	// What the keeper has, as far as is known: its last count, and everything that was sent after what it
	// had counted.
	maxItems, maxFDs       int
	items, descriptors     int
	unanswered             []sentHold
	sentItems, sentDescrip int // sums of unanswered
	refusedHere            uint64
}

// messages sends messages: a [sys.FDBuffer], or that of a simulation.
type messages interface {
	Send(fd int, p []byte, fds []int) sys.Errno
}

type queuedItem struct {
	key   [2]uint64
	label string
	n     int
}

type sentHold struct {
	seq        uint32
	items, fds int
}

// maxQueued bounds the items that are queued.
const maxQueued = 4096

func (o *outbox) empty() bool { return len(o.holds) == 0 && len(o.drops) == 0 }

func (o *outbox) hold(key [2]uint64, label string, fds []int) error {
	switch {
	case o.items+o.sentItems+len(o.holds) >= o.maxItems || o.descriptors+o.sentDescrip+len(o.fds)+len(fds) > o.maxFDs:
		return ErrFull
	case len(o.holds) >= maxQueued:
		return ErrBusy
	}
	o.unqueue(key)
	o.holds = append(o.holds, queuedItem{key, label, len(fds)})
	o.fds = append(o.fds, fds...)
	return nil
}

// unqueue takes back a queued item, and reports whether there was one.
func (o *outbox) unqueue(key [2]uint64) bool {
	at := len(o.fds)
	for i := len(o.holds) - 1; i >= 0; i-- {
		n := o.holds[i].n
		at -= n
		if o.holds[i].key == key {
			o.holds = append(o.holds[:i], o.holds[i+1:]...)
			o.fds = append(o.fds[:at], o.fds[at+n:]...)
			return true
		}
	}
	return false
}

func (o *outbox) drop(key [2]uint64) {
	if !o.unqueue(key) {
		o.drops = append(o.drops, key)
	}
}

// send reports whether a message is done with: sent, or in vain.
func (o *outbox) send(b []byte, fds []int) bool {
	e := o.trySend(b, fds)
	return e == 0 || o.broken
}

func (o *outbox) trySend(b []byte, fds []int) sys.Errno {
	for !o.broken {
		e := o.socket.Send(o.fd, b, fds)
		switch e {
		case sys.EINTR:
			continue
		case sys.EPIPE, sys.ECONNRESET:
			o.broken = true
		}
		return e
	}
	return sys.EPIPE
}

// flushDrops sends the drops, and reports whether none is left.
func (o *outbox) flushDrops() bool {
	const most = (maxMessage - headerSize) / keySize
	for len(o.drops) > 0 {
		n := min(len(o.drops), most)
		o.msg = appendHeader(o.msg[:0], kindDrop, 0)
		setCount(o.msg, n)
		for _, k := range o.drops[:n] {
			o.msg = appendKey(o.msg, k)
		}
		if !o.send(o.msg, nil) {
			return false
		}
		o.drops = o.drops[:copy(o.drops, o.drops[n:])]
	}
	return true
}

// flush sends everything, in the order in which it is safe: drops first, since a key may be used again.
func (o *outbox) flush() error {
	if !o.flushDrops() {
		return ErrBusy
	}
	var bad error
	most := maxBatchFDs
	for len(o.holds) > 0 {
		n, fds := o.nextBatch(most)
		switch e := o.trySend(o.msg, o.fds[:fds]); {
		case e == 0:
			o.seq++
			o.unanswered = append(o.unanswered, sentHold{o.seq, n, fds})
			o.sentItems += n
			o.sentDescrip += fds
			o.shift(n, fds)
		case o.broken:
			return ErrLost
		case e == sys.EAGAIN || e == sys.ENOBUFS || e == sys.ENOMEM || e == sys.ETOOMANYREFS && n == 1:
			return ErrBusy
		case n > 1: // one of them is bad, or they are too many: one by one
			most = 1
		default:
			bad = e
			o.refusedHere++
			o.shift(n, fds)
		}
	}
	return bad
}

// nextBatch makes a message of the first items: as many as fit, at least one.
func (o *outbox) nextBatch(most int) (n, fds int) {
	o.msg = appendHeader(o.msg[:0], kindHold, o.seq+1)
	for i := range o.holds {
		h := &o.holds[i]
		if n > 0 && (fds+h.n > most || len(o.msg)+itemHead+len(h.label) > maxMessage) {
			break
		}
		o.msg = appendItem(o.msg, h.key, h.label, h.n)
		n++
		fds += h.n
		if most == 1 {
			break
		}
	}
	setCount(o.msg, n)
	return n, fds
}

// shift forgets the first items.
func (o *outbox) shift(n, fds int) {
	rest := copy(o.holds, o.holds[n:])
	clear(o.holds[rest:])
	o.holds = o.holds[:rest]
	o.fds = o.fds[:copy(o.fds, o.fds[fds:])]
}

// limits takes the limits and totals from a message with Start.
func (o *outbox) limits(msg *message) {
	o.maxItems, o.maxFDs = int(msg.word(9)), int(msg.word(10))
	o.items, o.descriptors = int(msg.word(11)), int(msg.word(12))
}

// acknowledged takes the totals that the keeper had after it had read a message.
func (o *outbox) acknowledged(msg *message) {
	o.items, o.descriptors = int(msg.word(0)), int(msg.word(1))
	for len(o.unanswered) > 0 && int32(o.unanswered[0].seq-msg.seq) <= 0 {
		o.sentItems -= o.unanswered[0].items
		o.sentDescrip -= o.unanswered[0].fds
		o.unanswered = o.unanswered[:copy(o.unanswered, o.unanswered[1:])]
	}
}

func (o *outbox) stats() Stats {
	return Stats{Items: o.items + o.sentItems, Descriptors: o.descriptors + o.sentDescrip, MaxItems: o.maxItems, MaxDescriptors: o.maxFDs,
		Queued: len(o.drops), Refused: o.refusedHere}
}
