package relay

import (
	"math"
	"net/netip"
	"time"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
)

const (
	// dgramBatch is how many messages one call receives, and how many leave with one.
	dgramBatch = 64
	// dgramSize is the longest message: with GRO any one may be that long
	// (docs/kernel.md), and a datagram is at most 65,527 bytes.
	dgramSize = 64 << 10
	// dgramStride sets the buffers of a batch apart. It is no multiple of
	// 64 KiB: else the first bytes of all would share one set of the caches.
	dgramStride = dgramSize + 33*64
	// defaultNewFlows is Config.MaxNewDatagramFlows as it comes.
	defaultNewFlows = 16384
	// dgramRounds bounds how many batches one turn takes from a listener.
	dgramRounds = 4
	// maxWidth is the most messages taken from one upstream's socket in a turn.
	maxWidth = 32
	// The sizes of socket buffers that are asked for, in bytes.
	portRecvBuffer, portSendBuffer, upstreamRecvBuffer = 4 << 20, 1 << 20, 1 << 20

	// sessionBit marks the tokens of datagram ports and flows.
	sessionBit = 1 << 31
)

// dgrams is the datagram side of a loop: its ports and flows, and what they
// share. Like the loop it belongs to one goroutine.
type dgrams struct {
	loop *loop
	gso  bool
	gro  bool
	// The bound on flows, of all loops together; and how many may begin a tick.
	perTick  int
	tick     int64 // when left was filled up
	left     int
	ports    []*dgramPort
	sessions sessions
	wheel    wheel
	silent   ages // flows that had no answer yet: the first to be evicted
	answered ages
	rests    queue[resting] // sockets of flows that have ended
	buffers  [][]byte       // what batches are received into, by all ports in turn
	batch    [dgramBatch]message
	touched  []*session  // flows of the batch at hand, in the order of their first message
	up       outbox      // to the upstream of one flow at a time
	back     outbox      // echoes, by one port at a time
	single   *sys.Vector // for the datagrams of a refused run
	dirty    []*dgramPort
	finished []ref // flows that have had all their replies
	unread   bool  // a port may hold more than this turn has taken
	refusals segment.Refusals
	flow     Flow // what hooks are given
	stats    *DatagramStats
}

// message is one of the batch at hand.
type message struct {
	b    []byte
	seg  int   // size of the datagrams in it; 0: it is one
	next int16 // of the same flow; -1: none
}

// newDgrams makes the datagram side of l, when its first datagram port comes.
func newDgrams(l *loop) *dgrams {
	cfg := &l.engine.cfg
	d := &dgrams{
		loop:    l,
		gso:     !cfg.NoGSO && feature.GSO.Err() == nil,
		gro:     !cfg.NoGRO && feature.GRO.Err() == nil,
		buffers: dgramBuffers(),
		stats:   &l.stats.Datagrams,
	}
	d.single = sys.NewVector(1, 1, sys.Unix) // whose names have room for any address
	d.tick = -1
	d.flow.loop = l
	d.up.init(d, 0)
	d.back.init(d, sys.Unix)              // whose names have room for any address
	const ticks = int(time.Second / tick) // a second
	switch n := cfg.MaxNewDatagramFlows; {
	case n < 0:
		d.perTick = math.MaxInt
	case n == 0:
		d.perTick = defaultNewFlows / ticks
	default:
		d.perTick = max(1, n/ticks)
	}
	return d
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

// live is the number of flows; a loop without datagram ports has none.
func (d *dgrams) live() int {
	if d == nil {
		return 0
	}
	return d.sessions.live
}

// event is the way of every readiness of a datagram socket.
func (d *dgrams) event(low, gen, ev uint32) {
	i := low &^ sessionBit
	if gen == 0 {
		if p := d.ports[i]; p != nil {
			d.portEvent(p, ev)
		}
		return
	}
	s := d.sessions.find(ref{i, gen})
	if s == nil {
		return
	}
	if ev&sys.Out != 0 && s.hold != nil {
		d.release(s)
		if s.gen != gen || !s.open {
			return
		}
	}
	if ev&(sys.In|sys.Err|sys.Hup) != 0 {
		d.readUpstream(s)
	}
}

// turn ends a turn of the loop: what was gathered leaves.
func (d *dgrams) turn() {
	if d == nil {
		return
	}
	for _, p := range d.dirty {
		p.dirty = false
		p.out.flush()
	}
	clear(d.dirty)
	d.dirty = d.dirty[:0]
	d.endRests()
	for _, r := range d.finished {
		if s := d.sessions.find(r); s != nil && s.full() {
			d.end(s, CauseAnswered, nil)
		}
	}
	d.finished = d.finished[:0]
}

// timers looks at the flows whose time has come.
func (d *dgrams) timers(now int64) {
	if d == nil {
		return
	}
	d.wheel.advance(now, timerBurst, func(i uint32) {
		if s := d.sessions.at(i); s.open {
			d.expire(s)
		}
	})
}

// more reports whether this turn has left datagrams in a port, and forgets it.
func (d *dgrams) more() bool {
	if d == nil {
		return false
	}
	more := d.unread
	d.unread = false
	return more
}

// until tells when a timer wants to be looked at; 0: never.
func (d *dgrams) until() time.Duration {
	if d == nil {
		return 0
	}
	at := time.Duration(0)
	if k := d.wheel.until(); k >= 0 {
		at = time.Duration(d.wheel.now+k) * tick
	}
	if d.rests.len() > 0 && (at == 0 || d.rests.first().until < at) {
		at = d.rests.first().until
	}
	return at
}

// close gives the ports' descriptors back. The flows have ended.
func (d *dgrams) close() {
	if d == nil {
		return
	}
	for _, p := range d.ports {
		if p != nil {
			d.unlisten(p)
		}
	}
	for d.rests.len() > 0 {
		d.endRest()
	}
}

// hookFlow is s as hooks see it.
func (d *dgrams) hookFlow(s *session) *Flow {
	d.flow.session, d.flow.listener = s, s.port.listener
	return &d.flow
}

// now is the time of this turn.
func (d *dgrams) now() time.Time { return d.loop.engine.start.Add(d.loop.now) }

// refuseRuns notes that a run of datagrams of the given size was refused on its
// way, and that the datagrams went through one by one.
func (d *dgrams) refuseRuns(s *session, dir int, size int, e sys.Errno) {
	s.limit[dir].refusal = d.refusals.Add(d.destination(s, dir), size, e != sys.EIO, d.now())
	s.why[dir] = WhyKernel
}

func (d *dgrams) destination(s *session, dir int) netip.Addr {
	if dir == toA {
		return addrPort(s.name[:s.nameLen]).Addr()
	}
	if s.to == nil {
		return netip.Addr{}
	}
	return s.to.AddrPort.Addr()
}

// setLimit says what runs of s in one direction may hold.
func (d *dgrams) setLimit(s *session, dir int, family sys.Family, v6 bool) {
	m := limit{Limit: segment.Limit{Count: 1, Bytes: math.MaxInt}, refusal: segment.None}
	switch {
	case family == sys.Unix:
		s.why[dir] = WhyKernel
	case !d.gso:
		s.why[dir] = WhyOff
		if !d.loop.engine.cfg.NoGSO {
			s.why[dir] = WhyKernel
		}
	default:
		m.Limit = segment.Limit{Count: segment.MaxCount, Bytes: segment.MaxBytes4}
		if v6 {
			m.Bytes = segment.MaxBytes6
		}
		s.why[dir] = WhyNone
		if d.refusals.Len() > 0 {
			m.refusal = d.refusals.Of(d.destination(s, dir), d.now())
		}
		if m.refusal != segment.None {
			s.why[dir] = WhyKernel
		}
	}
	s.limit[dir] = m
}

func addrPort(name []byte) netip.AddrPort {
	ap, scope := sys.GetAddrPort(name)
	if scope != 0 {
		ap = netip.AddrPortFrom(ap.Addr().WithZone(itoa(scope)), ap.Port())
	}
	return ap
}
