package relay

import (
	"math"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pool"
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
	slab  slab[datagramFlow]
	gso   bool
	gro   bool
	// The bound on how many flows may begin per tick.
	perTick     int
	tick        int64 // when left was filled up
	left        int
	ports       []*datagramPort
	admission   admission
	beginning   time.Duration  // how long flows began in this turn
	silent      ages           // flows that had no answer yet: the first to be evicted
	answered    ages           // those that had one
	verified    ages           // and have sent something since; see datagramFlow.verified
	rests       queue[resting] // sockets of flows that have ended
	buffers     [][]byte       // what batches are received into, by all ports in turn; nil until the first port comes
	inputs      [2]*sys.Vector // with the buffers: for IP addresses and for paths
	batch       [dgramBatch]message
	touched     []*datagramFlow  // flows of the batch at hand, in the order of their first message
	strangers   []int16          // messages of the batch at hand whose clients have no flow
	toUpstream  outbox           // to the upstream of one flow at a time
	echoes      outbox           // echoes, by one port at a time
	single      *sys.Vector      // for the datagrams of a refused run
	dirty       []*datagramPort  // whose outboxes have memory that the end of the turn may return
	spareMemory [2][]replyMemory // that no outbox has: for IP addresses and for paths
	finished    []ref            // flows that have had all their replies
	stopping    []*datagramPort  // that were stopped in this turn, or while others got their flows' sockets
	giving      bool             // the flows of others get them
	leaving     int              // ports that were stopped, and are not gone
	empty       []*datagramPort  // closed ones that have no flow any more
	noting      []ref            // flows that are kept and have moved something in this turn
	portless    bool             // a flow gives up its port to another one; see freePort
	unread      bool             // a port may hold more than this turn has taken
	refusals    segment.Refusals
	stats       *DatagramStats
}

// datagramShare is what the datagrams of all loops share.
type datagramShare struct {
	all       []*datagrams // one per loop
	paces     pool.Pool[*pace]
	flows     atomic.Int64
	maxFlows  int64           // 0: three quarters of the descriptors that the process may have
	files     *atomic.Int64   // these
	gate      atomic.Bool     // no flow begins; see Overload
	less      atomic.Bool     // no further flow holds datagrams
	inUse     time.Duration   // how long a flow that goes on keeps its place after each datagram
	asked     atomic.Int64    // when a loop asked the others for room; 0: never
	own       atomic.Int64    // flows that have a socket of their own
	ownMost   int64           // of them
	strays    atomic.Int64    // datagrams that other loops are asked about
	regrouped map[string]bool // listeners whose clients' datagrams may reach other loops than in the process before; see findOlder
	refuses   atomic.Bool     // Drain has found no flow, or returned: ports that took new clients meanwhile take none
	// The sockets of flows that have ended: how long each rests, and how many do
	// per loop.
	restTime   time.Duration
	restLeast  time.Duration
	maxResting int
}

// init sets the limits of an engine that may have this many descriptors, and later as many as now has.
func (sh *datagramShare) init(cfg *Config, files uint64, now *atomic.Int64) {
	sh.maxFlows, sh.files = int64(cfg.MaxDatagramFlows), now
	sh.inUse = inUseTime
	sh.ownMost = ownMost
	sh.restTime, sh.restLeast = restTime, restLeast
	sh.maxResting = max(1, int(min(files/restShare, restMost))/cfg.Loops)
	sh.paces.New = func() *pace { return new(pace) }
}

// most is how many flows there may be.
func (sh *datagramShare) most() int64 {
	if sh.maxFlows > 0 {
		return sh.maxFlows
	}
	files := sh.files.Load()
	return files - files/4
}

// newDatagrams makes the datagrams of a loop, and adds them to the loop and the share.
func newDatagrams(l *loop, all *shared, share *datagramShare, k *keeping) *datagrams {
	cfg := &all.cfg
	d := &datagrams{
		share: share,
		gso:   !cfg.NoGSO && feature.GSO.Err() == nil,
		gro:   !cfg.NoGRO && feature.GRO.Err() == nil,
		stats: &l.stats.Datagrams,
		tick:  -1,
	}
	d.loop, d.shared, d.keep = l, all, k
	d.slab.slots, d.slab.owner = &l.slots, d
	const ticks = int(time.Second / tick) // per second
	switch n := cfg.MaxNewDatagramFlows; {
	case n < 0:
		d.perTick = math.MaxInt
	case n == 0:
		d.perTick = defaultNewFlows / ticks
	default:
		d.perTick = max(1, n/ticks)
	}
	d.admission.init(cfg.MaxNewDatagramFlows < 0)
	l.handlers = append(l.handlers, d)
	share.all = append(share.all, d)
	return d
}

// prepare makes what the first port needs, and those after it.
func (d *datagrams) prepare() {
	d.buffers = dgramBuffers()
	d.single = sys.NewVector(1, 1, sys.Unix) // whose names have room for any address
	d.toUpstream.init(d, 0)
	d.echoes.init(d, sys.Unix) // whose names have room for any address
}

// datagramFlow is one client's address, the local address that it wrote to, and a
// connected socket towards the upstream.
//
//	first datagram ─▶ open ──▶ ended
//	                  │  ▲
//	                  └──┘ next upstream, after an ICMP error
//
// It has no state elsewhere, but for its place in the port's table, in the
// loop's timer wheel and in one of two lists by age.
type datagramFlow struct {
	Flow
	fd                int32 // towards the upstream; -1: built in
	own               int32 // towards the client; -1: the port's is
	answered          bool  // the upstream has answered at least once
	verified          bool  // the client has sent something since a reply was sent to it; it does not forge its address, then
	blocked           bool  // replies are not read while the port's socket is full
	v6                bool  // the client is an IPv6 one, and not 4-in-6
	noting            bool  // in datagrams.noting
	suspect           bool  // the process before died while it handled the flow
	width             uint8
	streak            int8
	why               [2]Why
	nameLen           uint8
	tos               uint8    // of the socket towards the upstream, if DatagramConfig.TOS needs it
	name              [28]byte // the client's address as the kernel wrote it; a Unix one is in path
	returned          int64    // bytes of replies, as long as DatagramConfig.Amplification bounds them
	ownDrops          uint32   // SO_RXQ_OVFL's last reading of its own socket
	astray            bool     // it was restored to another socket than its own, or the sockets have changed: its client's datagrams may reach another loop
	path              string
	localAddr         netip.Addr // that the client wrote to, where the listener is bound to none
	zone              uint32     // interface, where localAddr is a link-local address
	drops             uint32     // that of the socket towards the upstream
	port              *datagramPort
	runs              [2]runLimit
	moved             [2]moved
	requests, answers int64   // datagrams sent to the present upstream, and received from it
	held              []byte  // what the upstream's socket has not taken yet; see holdBack
	first, last       int16   // its messages in the batch at hand; -1: none
	pending           int16   // its items in the port's outbox
	sentRuns          [2]bool // per direction: several datagrams have left as one message
	pace              *pace   // nil: no bound on its bandwidth
	newer, older      *datagramFlow
}

// moved is what one direction has carried.
type moved struct {
	read, written      int64 // bytes
	datagrams, dropped int64 // written, and dropped
}

func (d *datagrams) flow(slot uint32) *Flow { return &d.slab.at(slot).Flow }

// of returns the datagram flow that f is the common part of.
func (d *datagrams) of(f *Flow) *datagramFlow { return d.slab.at(f.slot) }

func (d *datagrams) mayDial(*Flow) bool { return true }

func (d *datagrams) limit(f *Flow) *pace {
	df := d.of(f)
	if df.pace == nil {
		df.pace = d.share.paces.Get()
	}
	return df.pace
}

func (d *datagrams) rate(f *Flow) int64 {
	if p := d.of(f).pace; p != nil {
		return p.rate
	}
	return 0
}

// event is called with the readiness of an upstream's socket, or of a flow's own one towards its client. It may
// be that of the upstream before, if an earlier event of the same wait has taken the flow to another
// one: the next socket then has nothing to read, and a built-in upstream has no socket.
func (d *datagrams) event(slot uint32, side int, ev uint32) {
	f := d.slab.at(slot)
	if side == sideClient {
		d.receiveOwn(f)
		return
	}
	if f.builtin() {
		return
	}
	gen := f.gen
	if f.kept {
		d.noteBegin(f)
		defer d.noteEnd(f, gen)
	}
	if ev&sys.Out != 0 && f.held != nil {
		d.release(f)
		if !f.alive(gen) {
			return
		}
	}
	if ev&(sys.In|sys.Err|sys.Hup) != 0 {
		d.readUpstream(f)
	}
}

// turn ends a turn of the loop: what was gathered leaves.
func (d *datagrams) turn() (more bool) {
	d.flushReplies()
	d.closeRests()
	for _, r := range d.finished {
		if f := d.slab.find(r); f != nil && f.full() {
			d.end(f, CauseAnswered, nil)
		}
	}
	d.finished = d.finished[:0]
	d.noteAll()
	d.turnStopping()
	d.turnEmpty()
	more, d.unread, d.beginning = d.unread, false, 0
	return more
}

func (d *datagrams) until() time.Duration {
	if d.rests.len() > 0 {
		return d.rests.first().until
	}
	return never
}

// request does nothing: what is asked of datagrams by a request without a closure is to
// resume a flow, and theirs are never queued.
func (d *datagrams) request(*request) {}

// freed is called when a descriptor has become free: no datagram flow waits for one.
func (d *datagrams) freed() {}

// spare closes the socket that has rested for longest, and reports whether there was one.
func (d *datagrams) spare() bool {
	if d.rests.len() == 0 {
		return false
	}
	d.closeOldestRest()
	return true
}

// close ends all flows and ports, and all rests.
func (d *datagrams) close() {
	d.slab.each(func(f *datagramFlow) { d.end(f, CauseClosed, nil) })
	for _, p := range slices.Clone(d.ports) {
		d.unlisten(p)
	}
	for d.rests.len() > 0 {
		d.closeRest()
	}
}

// remote is the address that the client's datagrams come from, or the upstream's.
func (d *datagrams) remote(f *Flow, side int) Addr {
	df := d.of(f)
	switch {
	case side == sideUpstream:
		return Addr{}
	case df.port.family == sys.Unix:
		return Addr{Network: Unixgram, Path: unixPath(df.path)}
	}
	return Addr{Network: UDP, AddrPort: addrPort(df.name[:df.nameLen])}
}

// local is the address that the client wrote to, or that the upstream is written to from.
func (d *datagrams) local(f *Flow, side int) Addr {
	df := d.of(f)
	if side == sideUpstream {
		a := localAddr(int(df.fd))
		if a.Network != 0 {
			a.Network = f.to.Network
		}
		return a
	}
	a := f.listener.addr
	if df.localAddr.IsValid() {
		a.AddrPort = netip.AddrPortFrom(df.localAddr, a.AddrPort.Port())
	}
	return a
}

func (d *datagrams) tcp(*Flow, int) int { return -1 }

func (d *datagrams) tls(*Flow, int) *TLS { return nil }

// transfer is the account of one direction.
func (d *datagrams) transfer(f *Flow, direction int) Transfer {
	df := d.of(f)
	m := &df.moved[direction]
	t := Transfer{Read: m.read, Written: m.written, Datagrams: m.datagrams, DatagramsDropped: m.dropped}
	switch {
	case df.sentRuns[direction]:
		t.Path = PathGSO
	case m.datagrams > 0:
		t.Path, t.Why = PathCopy, df.why[direction]
		if t.Why == WhyNone {
			t.Why = WhySingle
		}
	}
	return t
}

func (d *datagrams) describe(f *Flow, i *FlowInfo) {
	i.Datagram = true
	i.Up.Held = heldBytes(d.of(f).held)
}

// upstreamFamily is the family of the socket towards the upstream, as far as a
// receive has to know it.
func (f *datagramFlow) upstreamFamily() sys.Family {
	if f.to.Network == Unixgram {
		return sys.Unix
	}
	return sys.IPv6
}

// toV6 reports whether what is sent to the upstream travels as IPv6.
func (f *datagramFlow) toV6() bool {
	ip := f.to.AddrPort.Addr()
	return ip.Is6() && !ip.Is4In6()
}

// builtin reports whether the upstream is inside.
func (f *datagramFlow) builtin() bool { return f.fd < 0 }

// dgramBuffers makes the buffers of one batch, out of one piece.
func dgramBuffers() [][]byte {
	all := make([]byte, dgramBatch*dgramStride)
	bs := make([][]byte, dgramBatch)
	for i := range bs {
		bs[i] = all[i*dgramStride:][:dgramSize:dgramSize]
	}
	return bs
}

func addrPort(name []byte) netip.AddrPort {
	ap, scope := sys.GetAddrPort(name)
	if scope != 0 {
		ap = netip.AddrPortFrom(ap.Addr().WithZone(itoa(scope)), ap.Port())
	}
	return ap
}

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// unixPath is a path as Addr has it, from an address that the kernel wrote.
func unixPath(name string) string {
	b := sys.GetPath([]byte(name))
	if len(b) > 0 && b[0] == 0 {
		return "@" + string(b[1:])
	}
	return string(b)
}
