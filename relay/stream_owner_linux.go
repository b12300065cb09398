package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/tlsconn"
	"github.com/penstock/penstock/pool"
	"github.com/penstock/penstock/relay/hold"
	"github.com/penstock/penstock/relay/stats"
)

// streams are the stream flows of a loop, its handler of stream sockets. Like the
// loop they belong to one goroutine, but for load, pause.asleep and short.loop.
//
//	clients one by one ─▶ flows that are short ─▶ closing ports ─▶ ready flows ─▶ lagging flows
type streams struct {
	tenant
	share        *streamShare
	env          pump.Env
	slab         loop.Slab[streamFlow]
	addrs        []*Addr       // of adopted pairs that have ended
	ports        []*streamPort // that accept clients, or are paused
	closingPorts []*streamPort
	pause        pause           // of accepting
	short        shortage        // of descriptors
	handing      bool            // the flows are being handed over, and clients are left to the next process
	ready        queue[ref]      // flows whose budget was spent
	restored     queue[ref]      // see streamRestored
	pairs        map[uint32]pair // what is to be known of pairs given to Relay, by slot
	lagging      queue[lagRef]   // flows that the low-water mark may hold back
	load         atomic.Int64    // flows, with those that are in the mailbox
	gone         int             // of the next clients, how many are examined; see left
	tlsLoop      loopTLS
	lingering    *streams              // of the engine that goes on with TLS when this one has handed over; nil: there is none
	innerFlows   map[uint32]*innerFlow // of flows with an inner socket, by slot
}

// streamShare is what the streams of all loops share.
type streamShare struct {
	pipes     *pump.Pipes // nil: nothing is spliced
	all       []*streams  // one per loop
	early     pool.Pool[*earlyState]
	adoptions pool.Pool[*adoption]
	paused    pauses
	short     shortages
	gate      atomic.Bool       // no client is accepted; see Overload
	computing tlsconn.Computing // TLS handshakes
	running   sync.WaitGroup    // goroutines of TLS handshakes
}

// pause is that of a loop which accepts no clients, because descriptors or memory are missing: its ports are not watched.
type pause struct {
	until  time.Duration // when they are watched again, at the latest; 0: they are
	budget bool          // it is the budget that has no descriptors, and not the kernel
	asleep atomic.Bool   // nobody has woken the loop yet
	again  bool          // the budget may have descriptors for some clients
	singly int           // clients that were accepted so since others were called
	first  int           // which of the ports is watched first
}

// pauses are those of all loops.
type pauses struct {
	loops  atomic.Int32  // that are paused
	budget atomic.Int32  // of them, those for which the budget has no descriptors
	most   time.Duration // how long one lasts
}

// shortage is the want of descriptors: of a loop for its next client, and of flows for their upstreams.
type shortage struct {
	loop  atomic.Bool     // it found none in the budget when it looked last
	turns int             // since its pause, while it is short
	flows queue[shortRef] // that wait for one which the kernel has refused
	again bool            // one may have become free for them
}

// shortages are those of all loops.
type shortages struct {
	loops atomic.Int32 // that are short
	flows atomic.Int32 // that wait
}

// flows is the number of flows of all loops, with those that are in a mailbox.
func (sh *streamShare) flows() (n int64) {
	for _, s := range sh.all {
		n += s.load.Load()
	}
	return n
}

// adoption is a pair given to Relay.
type adoption struct {
	fd     [2]int // the loop owns them
	tcp    [2]bool
	read   [2][]byte // already read, to be delivered first
	config PairConfig
}

// A leg is one of the two connections of a split flow that stay in this process, with its TLS: a side of the flow, and an
// inner socket in place of the other one. See stream_inner_linux.go.
type leg struct {
	fd     [2]int
	side   int // which of them has the TLS; the other one is the inner socket
	tcp    bool
	odd    bool
	over   [2]bool   // halves that have ended
	held   [2][]byte // what is to be delivered first
	conn   *tlsconn.Conn
	tls    *flowTLS      // of the flow
	theirs int           // the other end of the inner socket
	info   [2]*stats.TLS // of the flow
	spoke  bool          // the client has sent something
}

// innerFlow is what is to be known of a flow with an inner socket.
type innerFlow struct {
	tls         [2]*stats.TLS // of the sides with inner sockets, as it was when they were made
	undelivered int           // see streams.undelivered
}

// pair is what a pair given to Relay has that other flows have from their listener.
type pair struct {
	done   func(*Record)
	name   string
	encode func(*hold.Encoder)
}

// shortRef is a flow that waits for a descriptor, and since when.
type shortRef struct {
	ref
	since time.Duration
}

// lagRef is a flow, and since when it may be held back, or is in its handshake.
type lagRef struct {
	ref
	at time.Duration
}

func (s *streams) flow(slot uint32) *Flow { return &s.slab.At(slot).Flow }

// of returns the stream flow that f is the common part of.
func (s *streams) of(f *Flow) *streamFlow { return s.slab.At(f.slot) }
