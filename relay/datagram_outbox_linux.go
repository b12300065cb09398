package relay

import (
	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
)

// outbox plans what leaves by one socket: datagrams of one flow that stand
// beside each other, and have the same TOS byte, become a run, and all runs leave with one system call.
// Payload is not copied. There are two kinds of outbox, by who owns the memory:
//
//   - A port's, datagramPort.out, gathers the replies of all its flows until the
//     loop's turn ends, or for longer while the port's socket is full. It has
//     the memory that they are received into: see lease and replyMemory.
//   - The others are given memory that belongs to the caller, until flush
//     returns: they never wait, and are empty then. datagrams.toUpstream sends to the
//     upstream of one flow at a time, datagrams.echoes returns echoes by one port at
//     a time.
type outbox struct {
	d       *datagrams
	port    *datagramPort // nil: towards an upstream
	of      *datagramFlow // towards its upstream
	replies *sys.Vector   // what replies are received into; nil: the memory is the caller's
	leased  int           // messages of replies that were received into since the outbox was empty
	v       *sys.Vector
	items   [dgramBatch]item
	pieces  []piece
	n       int         // items
	at      int         // items that have left already, while blocked
	run     segment.Run // the last item; empty once that is sealed, and nothing joins it
	blocked bool        // the port's socket is full
}

// item is one message: a datagram or a run.
type item struct {
	f            *datagramFlow // nil: it has ended
	first, past  int           // of the pieces
	bytes, count int
	segment      int   // size of a run's datagrams; 0: one datagram
	tos          uint8 // what the flow keeps of the TOS byte with which they arrived
	bare         bool  // no control messages
}

// piece is memory to send, cut every seg bytes if seg is not 0.
type piece struct {
	b     []byte
	seg   int
	front bool // it is in front of the datagram that the next piece is; see preface
}

const outboxPieces = 4 * dgramBatch

// init makes o ready for the addresses of a family; 0: its sockets are connected.
func (o *outbox) init(d *datagrams, family sys.Family) {
	*o = outbox{d: d, v: sys.NewVector(dgramBatch, outboxPieces, family), pieces: make([]piece, 0, outboxPieces)}
}

func (o *outbox) dir() int {
	if o.port != nil {
		return down
	}
	return up
}

// alive counts the items from at on whose flows have not ended.
func (o *outbox) alive() int {
	n := 0
	for o.at+n < o.n && o.items[o.at+n].f != nil {
		n++
	}
	return n
}

func (o *outbox) reset() {
	o.v.Reset()
	o.pieces = o.pieces[:0]
	clear(o.items[:o.n])
	o.n, o.at, o.of = 0, 0, nil
	o.run = segment.Run{}
}

// family returns the family of the addresses that are sent to.
func (o *outbox) family() sys.Family {
	if o.port != nil {
		return o.port.family
	}
	return o.of.upstreamFamily()
}
