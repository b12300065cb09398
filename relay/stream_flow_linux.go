package relay

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/pool"
)

const (
	maxPipes     = 1 << 18 // each that may exist has a few bytes of memory
	defaultLowat = 192 << 10
	readyBurst   = 32 // flows that are ready for their next turn before events are taken again
	// lagWait is how long a tail below the low-water mark may wait.
	lagWait = time.Millisecond
	// failedDrain is how long the other side has to take what a side had sent before it
	// failed. The other side is not read from any more, and may be waiting for that.
	failedDrain = time.Second
)

// streams are the stream flows of a loop, its handler of stream sockets. Like the
// loop they belong to one goroutine, but for load and rests.
//
//	clients one by one ─▶ starved flows ─▶ closing ports ─▶ ready flows ─▶ lagging flows
type streams struct {
	tenant
	share        *streamShare
	env          pump.Env
	slab         slab[streamFlow]
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

// init makes the share of an engine that uses pipes, which may be nil.
func (sh *streamShare) init(pipes *pump.Pipes) {
	sh.pipes = pipes
	sh.rest = acceptRest
	sh.computing = make(chan struct{}, runtime.GOMAXPROCS(0))
	sh.early.New = func() *earlyState { return new(earlyState) }
	sh.adoptions.New = func() *adoption { return new(adoption) }
}

// flows is the number of flows of all loops, with those that are in a mailbox.
func (sh *streamShare) flows() (n int64) {
	for _, s := range sh.all {
		n += s.load.Load()
	}
	return n
}

// newStreams makes the streams of a loop, and adds them to the loop and the share.
func newStreams(l *loop, all *shared, share *streamShare, k *keeping) *streams {
	s := &streams{share: share}
	s.loop, s.shared, s.keep = l, all, k
	s.slab.slots, s.slab.owner = &l.slots, s
	s.env = pump.Env{Kernel: all.kernel, Pipes: share.pipes, Lowat: all.cfg.LowWaterMark}
	if k := s.keep; k != nil {
		s.env.Buffers, s.env.Scratch = k.ledger.Arena(), k.ledger.Scratch()
	} else {
		s.env.Buffers, s.env.Scratch = &all.buffers, make([]byte, pump.ScratchSize)
	}
	s.tlsLoop.init(all)
	l.handlers = append(l.handlers, s)
	share.all = append(share.all, s)
	return s
}

// streamFlow is a flow of which both sides are stream sockets.
//
//	                          next upstream, at once or after a pause (retrying); or the same
//	                                 one, when there is a descriptor for it (starved)
//	                                                 ┌──┐
//	                                                 ▼  │
//	admitting ─▶ sniffing ─▶ [securing] ─▶ connecting ─▶ [asking] ─▶ [securing] ─▶ relaying ─▶ ended
//	     │           │                     ▲    │ ▲          │            │
//	     └───────────┴─────────────────────┘    ▼ │◀─────────┴────────────┘
//	                                           queued
//
// It is asking while the upstream is to answer its preface, and securing while there is a TLS handshake: with the
// client, if it is terminated, and with the upstream, if it is originated. Before it goes on from sniffing, relays, or
// is turned away, it is replying while the client does not have all of its replies.
type streamFlow struct {
	Flow
	fd          [2]int32
	state       streamState
	wait        [2]pump.State // what each half waits for
	tcp         [2]bool
	odd         [2]bool // the side has hung up, or has urgent data: a short read says nothing
	muted       [2]bool // the side's IN is not watched: its half waits for the other side
	pending     bool    // the client was readable while the upstream was being connected
	inReady     bool
	inLagging   bool
	backlogFull bool           // the upstream's accept queue is full: the attempt is repeated at the next tick
	hungUp      bool           // the client has closed a Unix socket while there was no upstream
	ended       bool           // the client has ended its side meanwhile
	throttled   bool           // a half has used up its share of the bandwidth: it goes on at the next tick
	early       *earlyState    // nil: it needs none
	tls         *flowTLS       // nil: no side's TLS begins or ends here
	peer        netip.AddrPort // the client's, of TCP
	half        [2]pump.Half
}

type streamState uint8

const (
	streamAdmitting streamState = iota + 1
	streamRestored              // it did not relay yet in the process before, and begins again when all flows are restored
	streamSniffing
	streamReplying // the client is to take its replies before the flow goes on, or ends
	streamSecuring // in a TLS handshake
	streamChoosing // in Hooks.Upstream
	streamConnecting
	streamAsking   // the upstream is to answer; see Flow.Expect
	streamRetrying // waits before it connects again
	streamQueued
	streamStarved // waits for a descriptor
	streamRelaying
)

// lagRef is a flow, and since when it may be held back, or is in its handshake.
type lagRef struct {
	ref
	at time.Duration
}

// newFlow takes a slot for a new flow, which owns the sockets from now on.
func (s *streams) newFlow(state streamState, client, upstream int) *streamFlow {
	f, r := s.slab.take()
	f.init(s, r, s.loop.now)
	f.state = state
	f.fd = [2]int32{int32(client), int32(upstream)}
	if s.keep != nil {
		s.keep.begun(r)
	}
	return f
}

func (s *streams) flow(slot uint32) *Flow { return &s.slab.at(slot).Flow }

// of returns the stream flow that f is the common part of.
func (s *streams) of(f *Flow) *streamFlow { return s.slab.at(f.slot) }

func (s *streams) local(f *Flow, side int) Addr { return localAddr(int(s.of(f).fd[side])) }

// remote is the address of a side's peer: the one that was noted, for a TCP
// socket whose connection has ended knows it no more.
func (s *streams) remote(f *Flow, side int) Addr {
	sf := s.of(f)
	switch {
	case side == sideClient && sf.peer.IsValid():
		return Addr{Network: TCP, AddrPort: sf.peer}
	case side == sideUpstream && f.to != nil:
		return *f.to
	}
	return peerAddr(int(sf.fd[side]))
}

// stage returns the ErrStage of a method that is called in a hook that it is not for.
func (f *streamFlow) stage(method, works string) error {
	where := "of a stream that relays"
	switch f.state {
	case streamAdmitting:
		where = "in Hooks.Admit"
	case streamSniffing:
		where = "in Hooks.Sniff"
	case streamSecuring:
		where = "in Hooks.Secured"
	case streamChoosing, streamQueued:
		where = "in Hooks.Upstream"
	case streamConnecting:
		where = "in Hooks.Connected"
	case streamAsking:
		where = "in Hooks.Answered"
	}
	return stageError(method, where, works)
}

func (s *streams) mayDial(f *Flow) bool {
	sf := s.of(f)
	return sf.state != streamRelaying && !sf.connected()
}

func (s *streams) describe(f *Flow, i *FlowInfo) {
	i.Up.Held = i.Up.Read - i.Up.Written
	i.Down.Held = i.Down.Read - i.Down.Written
	switch s.of(f).state {
	case streamSniffing:
		i.State = StateSniffing
	case streamQueued:
		i.State = StateQueued
	case streamSecuring:
		i.State = StateHandshake
	case streamRestored, streamReplying, streamChoosing, streamConnecting, streamAsking, streamRetrying, streamStarved:
		i.State = StateConnecting
	}
}

// transfer is the account of one direction. An echo has one half, from the client to
// the client: what it has written went up and came down.
func (s *streams) transfer(f *Flow, direction int) Transfer {
	sf := s.of(f)
	half := &sf.half[direction]
	if sf.echo {
		half = &sf.half[up]
	}
	t := Transfer{Read: half.In, Written: half.Out, Spliced: half.Spliced}
	if sf.echo && direction == down {
		t.Read = half.Out
	}
	path, why := half.Path()
	t.Path, t.Why = Path(path), Why(why)
	return t
}

func (s *streams) tcp(f *Flow, side int) int {
	sf := s.of(f)
	if !sf.tcp[side] {
		return -1
	}
	return int(sf.fd[side])
}

// turn ends a turn of the loop.
func (s *streams) turn() (more bool) {
	if s.resting > 0 && s.resting <= s.loop.now {
		s.endRest()
	}
	s.turnHungry()
	s.turnShort()
	s.turnStarved()
	s.turnClosing()
	s.turnReady()
	s.turnLagging()
	s.turnHandshakes()
	if s.keep != nil {
		s.keep.turn.End()
		s.keep.settleSome(s.loop.now)
	}
	return false
}

func (s *streams) until() time.Duration {
	if s.ready.len() > 0 || s.retryShort || len(s.closingPorts) > 0 && s.resting == 0 || s.retryStarved && s.starved.len() > 0 {
		return 0
	}
	if s.resting == 0 && s.hungry.Load() {
		return 0 // turnHungry
	}
	at := s.handshakesUntil()
	if s.lagging.len() > 0 {
		at = min(at, s.lagging.first().at+lagWait)
	}
	if s.resting > 0 {
		at = min(at, s.resting)
	}
	if s.keep != nil {
		at = min(at, s.keep.until())
	}
	return at
}

// close ends all flows; ports that close take what waits for the last time.
func (s *streams) close() {
	s.expireClosing()
	s.turnClosing()
	s.slab.each(func(f *streamFlow) { s.end(f, CauseClosed, nil) })
}

// spare reports that streams have no descriptor that they can do without.
func (s *streams) spare() bool { return false }
