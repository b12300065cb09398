package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/pool"
)

// streams are the stream flows of a loop, its handler of stream sockets. Like the
// loop they belong to one goroutine, but for load and rests.
//
//	clients one by one ─▶ starved flows ─▶ closing ports ─▶ ready flows ─▶ lagging flows
type streams struct {
	tenant
	share        *streamShare
	env          pump.Env
	slab         loop.Slab[streamFlow]
	addrs        []*Addr       // of adopted pairs that have ended
	ports        []*streamPort // that accept clients, or rest
	closingPorts []*streamPort
	resting      time.Duration     // until when the ports rest; 0: they do not
	starved      queue[starvedRef] // flows that wait for a descriptor
	handing      bool              // the flows are being handed over, and clients are left to the next process
	retryStarved bool              // a descriptor may have become free for them
	retryShort   bool              // the ports rest, and there may be descriptors for some clients
	singly       int               // clients that were accepted so since others were called
	ready        queue[ref]        // flows whose budget was spent
	restored     queue[ref]        // see streamRestored
	pairs        map[uint32]pair   // what is to be known of pairs given to Relay, by slot
	lagging      queue[lagRef]     // flows that the low-water mark may hold back
	load         atomic.Int64      // flows, with those that are in the mailbox
	rests        atomic.Bool       // the ports rest, and have not been woken yet
	short        bool              // they rest because the budget has no descriptors
	hungry       atomic.Bool       // it found none in the budget when it looked last
	awake        int               // turns since the ports rested, while it is hungry
	gone         int               // of the next clients, how many are examined; see left
	firstPort    int               // which of the ports is watched first when they are woken
	tlsLoop      loopTLS
}

// streamShare is what the streams of all loops share.
type streamShare struct {
	pipes     *pump.Pipes // nil: nothing is spliced
	all       []*streams  // one per loop
	early     pool.Pool[*earlyState]
	adoptions pool.Pool[*adoption]
	resting   atomic.Int32   // loops whose ports rest
	short     atomic.Int32   // of them, those for which the budget has no descriptors
	hungry    atomic.Int32   // loops that are hungry
	starved   atomic.Int32   // flows that wait for a descriptor
	gate      atomic.Bool    // no client is accepted; see Overload
	computing chan struct{}  // holds a value for each TLS handshake that computes
	running   sync.WaitGroup // goroutines of TLS handshakes
	rest      time.Duration  // how long ports rest that found no descriptor
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

// pair is what a pair given to Relay has that other flows have from their listener.
type pair struct {
	done   func(*Record)
	name   string
	encode func(*Encoder)
}

// starvedRef is a flow that waits for a descriptor, and since when.
type starvedRef struct {
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
