package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/flood"
	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pool"
	"github.com/penstock/penstock/relay/origin"
)

const (
	// dgramBatch is how many messages one call receives, and how many leave with one.
	dgramBatch = 64
	// dgramSize is the longest message: with GRO any one may be that long
	// (docs/kernel.md), and a datagram is at most 65,527 bytes.
	dgramSize = 64 << 10
	// dgramStride is the distance between the buffers of a batch. It is not a multiple
	// of 64 KiB, because the first bytes of all would then share one set of the caches.
	dgramStride = dgramSize + 33*64
	// defaultNewFlows is the default of Config.MaxNewDatagramFlows.
	defaultNewFlows = 16384
	// dgramRounds bounds how many batches one turn takes from a listener.
	dgramRounds = 4
	// dgramReads bounds how many it takes if it drops most of what is in them, which costs little: the
	// sooner they are out of the way, the sooner come those behind them.
	dgramReads = 32
	// maxWidth is the most messages taken from one upstream's socket in a turn.
	maxWidth = 32
	// The requested sizes of socket buffers, in bytes.
	portRecvBuffer, portSendBuffer, upstreamRecvBuffer = 4 << 20, 1 << 20, 1 << 20
)

// datagrams are the datagram flows of a loop, its handler of datagram sockets.
// Like the loop they belong to one goroutine.
//
//	replies leave ─▶ resting sockets ─▶ flows that have had all their replies
type datagrams struct {
	tenant
	share *datagramShare
	slab  loop.Slab[datagramFlow]
	gso   bool
	gro   bool
	// The bound on how many flows may begin per tick.
	perTick        int
	tick           int64 // when left was filled up
	left           int
	ports          []*datagramPort
	floodControl   flood.Control
	beginning      time.Duration             // how long flows began in this turn
	undecided      ages                      // flows that have no upstream yet, because their clients are sniffed: the first to be evicted
	undecidedBytes int64                     // that they may hold
	sniffs         map[uint32]*datagramSniff // of these flows, by slot
	admitting      *datagramFlow             // for which Hooks.Admit runs
	watching       *datagramFlow             // for which a hook runs in which StartSniff makes it watched
	choosing       *datagramFlow             // for which Hooks.Upstream runs
	silent         ages                      // flows that had no answer yet: the next
	answered       ages                      // those that had one
	verified       ages                      // and have sent something since; see datagramFlow.verified
	rests          queue[resting]            // sockets of flows that have ended
	buffers        [][]byte                  // what batches are received into, by all ports in turn; nil until the first port comes
	inputs         [2]*sys.Vector            // with the buffers: for IP addresses and for paths
	batch          []message                 // those that were received, and then further datagrams of those that were taken apart
	origin         *origin.Config            // of the batch at hand; nil: no sender is a proxy
	alone          [1]*Flow                  // the flows of an address that has one
	sender         [28]byte                  // of what is in an own socket
	touched        []*datagramFlow           // flows of the batch at hand, in the order of their first message
	strangers      []int16                   // messages of the batch at hand whose clients have no flow
	toUpstream     outbox                    // to the upstream of one flow at a time
	echoes         outbox                    // echoes, by one port at a time
	unnamed        sys.Sockaddr              // the Unix address that has the kernel choose one
	single         *sys.Vector               // for the datagrams of a refused run
	dirty          []*datagramPort           // whose outboxes have memory that the end of the turn may return
	spareMemory    [2][]replyMemory          // that no outbox has: for IP addresses and for paths
	finished       []ref                     // flows that have had all their replies
	stopping       []*datagramPort           // that were stopped in this turn, or while others got their flows' sockets
	giving         bool                      // the flows of others get them
	leaving        int                       // ports that were stopped, and are not gone
	empty          []*datagramPort           // closed ones that have no flow any more
	noting         []ref                     // flows that are kept and have moved something in this turn
	portless       bool                      // a flow gives up its port to another one; see freePort
	unread         bool                      // a port may hold more than this turn has taken
	refusals       segment.Refusals
	stats          *datagramCounters
}

// datagramShare is what the datagrams of all loops share.
type datagramShare struct {
	all       []*datagrams // one per loop
	settings  pool.Pool[*datagramSettings]
	flows     atomic.Int64
	maxFlows  int64         // 0: three quarters of the descriptors that the process may have
	files     *atomic.Int64 // these
	gate      atomic.Bool   // no flow begins; see Overload
	less      atomic.Bool   // no further flow holds datagrams
	inUse     time.Duration // how long a flow that goes on keeps its place after each datagram
	asked     atomic.Int64  // when a loop asked the others for room; 0: never
	own       atomic.Int64  // flows that have a socket of their own
	ownMost   int64         // of them
	strays    atomic.Int64  // datagrams that other loops are asked about
	addressMu sync.Mutex
	addresses map[string]*portAddress // that ports are bound to
	regrouped map[string]bool         // listeners whose clients' datagrams may reach other loops than in the process before; see findOlder
	homes     map[string]map[int]bool // loops that have flows of an earlier process, by their listener
	refuses   atomic.Bool             // Drain has found no flow, or returned: ports that took new clients meanwhile take none
	// The sockets of flows that have ended: how long each rests, and how many do
	// per loop.
	restTime   time.Duration
	restLeast  time.Duration
	maxResting int
}

// portAddress is what the ports of an address have in common: those of a listener, and of others that were removed before and
// whose flows go on.
type portAddress struct {
	astray    atomic.Int64      // flows of clients whose datagrams may reach another loop, how often their number is not known yet, and ports that have joined; see joins
	marking   atomic.Int64      // how often that is
	listeners map[*Listener]int // that have a port there, and how many; under datagramShare.addressMu
	leftLast  atomic.Int64      // when the last port left, by the loops' clock, if a holder may have its socket; 0: none has. See holderLast
}

// holderLast is how long the holder may have a socket that was dropped. As long as it does, the socket is among those of its address, and
// when it leaves them the kernel may give clients to other loops. Nobody tells the engine when that is, so flows that begin until then are
// astray.
const holderLast = 10 * time.Second

// leaves reports whether the socket of a port that has left may still be among those of the address.
func (a *portAddress) leaves(now time.Duration) bool {
	last := time.Duration(a.leftLast.Load())
	return last > 0 && now < last+holderLast
}

// shared reports whether the sockets of an address will change, or have changed and not each flow is marked for it: those of a
// listener that closes are beside those of another one, and leave with the process at the latest.
func (sh *datagramShare) shared(a *portAddress) bool {
	sh.addressMu.Lock()
	defer sh.addressMu.Unlock()
	return len(a.listeners) > 1 || a.marking.Load() > 0
}

// most is how many flows there may be.
func (sh *datagramShare) most() int64 {
	if sh.maxFlows > 0 {
		return sh.maxFlows
	}
	files := sh.files.Load()
	return files - files/4
}

// message is one of the batch at hand.
type message struct {
	b    []byte
	seg  int   // size of the datagrams in it; 0: it is one
	tos  uint8 // with which it arrived, if the port's socket tells
	next int16 // of the same flow; -1: none
	in   int16 // which of the received ones it is from
}

// resting is the socket of a flow that has ended.
type resting struct {
	fd    int
	until time.Duration
	key   holdKey // see datagrams.unkeep; zero: it can not be held
	held  bool    // under the key
}

// replyMemory is what the replies of a port are received into and planned with. The ports of a loop
// share it: an outbox borrows it with its first reply of a turn, and gives it back when all have
// left. So its size depends on how many ports have replies at the same time, not on how many have
// ever had one.
type replyMemory struct {
	replies *sys.Vector
	v       *sys.Vector
	pieces  []piece
}

func (d *datagrams) flow(slot uint32) *Flow { return &d.slab.At(slot).Flow }

// of returns the datagram flow that f is the common part of.
func (d *datagrams) of(f *Flow) *datagramFlow { return d.slab.At(f.slot) }
