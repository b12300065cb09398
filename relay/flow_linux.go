package relay

import (
	"net/netip"
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
)

// The sides of a flow. Half h reads from side h.
const (
	sideA = 0 // the client
	sideB = 1 // the upstream
)

// Flow is one client and its upstream. A hook may use the Flow that it is given until
// it returns, and must not keep it.
//
//	      next upstream, at once or after a pause (retrying); or the same one,
//	                  when there is a descriptor for it (starved)
//	                             ┌──┐
//	                             ▼  │
//	admitting ─▶ sniffing ─▶ connecting ─▶ relaying ─▶ ended
//	     │                     ▲ │ ▲
//	     └─────────────────────┘ ▼ │
//	                            queued
type Flow struct {
	gen, index uint32
	fd         [2]int32
	state      flowState
	wait       [2]pump.State // what each half waits for
	tcp        [2]bool
	odd        [2]bool // the side has hung up, or has urgent data: a short read says nothing
	pending    bool    // the client was readable while the upstream was being connected
	muted      [2]bool // the side's IN is not watched: its half waits for the other side
	inReady    bool
	inLagging  bool
	echo       bool
	cause      Cause // already known, while the other half is still delivering
	attempts   uint16
	nextFree   uint32
	again      bool // the upstream's accept queue is full: try once more at the next tick
	hungUp     bool // the client has closed a Unix socket while there was no upstream
	ended      bool // the client has ended its side meanwhile
	resting    bool // a half has used up its share of the bandwidth: it goes on at the next tick
	loop       *loop
	extra      *extra        // nil: it needs none
	listener   *Listener     // nil for an adopted pair
	cfg        *ListenConfig // what the listener had when it accepted; nil for an adopted pair
	dialing    *DialConfig   // SetDial's; nil: cfg.Dial
	client     *Addr         // SetClient's; nil: the peer is the client
	timeouts   *Timeouts     // shared, and never written to
	done       func(*Record)
	half       [2]pump.Half
	peer       netip.AddrPort // the client's, of TCP
	to         *Addr          // of an adopted pair what B's peer was, where a record needs it
	value      any
	err        error
	start      time.Duration // since the engine's start, as all times here
	since      time.Duration // the start of the present attempt, or of the wait for one
	queued     time.Duration // how long it was parked
	connect    time.Duration
	firstByte  time.Duration // from connect to the upstream's first byte; 0: none came
	active     time.Duration // when a byte, or the end or the failure of a direction, was seen last
	session    *session      // a datagram flow, as hooks see it; the rest is then not used
}

type flowState uint8

const (
	flowFree flowState = iota
	flowAdmitting
	flowSniffing
	flowChoosing // in Hooks.Upstream
	flowConnecting
	flowRetrying // waits before it connects again
	flowParked
	flowStarved // waits for a descriptor
	flowRelaying
)

// alive tells whether the flow is still the one that had generation gen.
func (f *Flow) alive(gen uint32) bool { return f.gen == gen && f.state != flowFree }

func (f *Flow) ref() ref { return ref{f.index, f.gen} }

func (f *Flow) token(side int) uint64 { return uint64(f.gen)<<32 | uint64(f.index<<1) | uint64(side) }

// ID returns the flow's ID, which is unique in the engine.
func (f *Flow) ID() uint64 {
	if f.session != nil {
		return f.session.id(f.loop)
	}
	return uint64(f.loop.index)<<56 | uint64(f.index&(1<<24-1))<<32 | uint64(f.gen)
}

// Listener returns the listener that accepted the client, or nil for a pair given to
// Relay.
func (f *Flow) Listener() *Listener { return f.listener }

// Client returns the client's address: the one given to SetClient, or else the remote
// address of the client's socket. A Unix client usually has no path.
func (f *Flow) Client() Addr {
	c := f.client
	if f.session != nil {
		c = f.session.client
	}
	if c != nil {
		return *c
	}
	return f.Peer()
}

// SetClient sets the client's address, for instance to one from a PROXY header. Client,
// the record and [DialConfig].FromClient use it.
func (f *Flow) SetClient(a Addr) {
	c := new(Addr)
	*c = a
	if f.session != nil {
		f.session.client = c
		return
	}
	f.client = c
}

// Peer returns the remote address of the client's socket.
func (f *Flow) Peer() Addr {
	if f.session != nil {
		return f.session.peer()
	}
	return f.remote(sideA)
}

// SetDial sets how to connect to upstreams, from the next attempt on; nil restores
// ListenConfig.Dial. It is usually called in Hooks.Upstream. The flow keeps d until it
// ends, and *d must not change. SetDial returns [ErrStage] if a stream is already
// connected.
func (f *Flow) SetDial(d *DialConfig) error {
	switch {
	case f.session != nil:
		f.session.dialing = d
		return nil
	case f.state == flowFree, f.state == flowRelaying, f.connected():
		return ErrStage
	}
	f.dialing = d
	return nil
}

// Local returns the address that the client connected or wrote to. On a stream it makes
// a system call.
func (f *Flow) Local() Addr {
	if f.session != nil {
		return f.session.localAddr()
	}
	return localAddr(int(f.fd[sideA]))
}

// Upstream returns the address that is connected or was tried last. It returns nil
// before the first attempt, and for a pair given to Relay.
func (f *Flow) Upstream() *Addr {
	if f.session != nil {
		return f.session.to
	}
	if f.listener == nil {
		return nil
	}
	return f.to
}

// Value returns the value given to SetValue, or nil.
func (f *Flow) Value() any {
	if f.session != nil {
		return f.session.value
	}
	return f.value
}

// SetValue keeps v with the flow. It is part of the flow's [Record] and [FlowInfo].
func (f *Flow) SetValue(v any) {
	if f.session != nil {
		f.session.value = v
		return
	}
	f.value = v
}

// dstSide is where half h writes.
func (f *Flow) dstSide(h int) int {
	if f.echo {
		return h
	}
	return 1 - h
}

const flowEvents = sys.In | sys.Out | sys.RdHup | sys.Pri | sys.Edge

// watch registers a side's socket with the loop's epoll.
func (l *loop) watch(f *Flow, side int) sys.Errno {
	return sys.EpollAdd(l.epoll, int(f.fd[side]), flowEvents, f.token(side))
}

// mute stops watching a side for input while its half cannot deliver what it
// already holds. Without it, every segment that the source still sends wakes the
// loop for nothing: nine of ten wake-ups of a bulk flow with a slow reader. It
// comes with the first such wake-up, so that a flow without one pays nothing.
func (l *loop) mute(f *Flow, side int) {
	if !f.muted[side] {
		f.muted[side] = true
		sys.EpollMod(l.epoll, int(f.fd[side]), flowEvents&^(sys.In|sys.Pri), f.token(side))
	}
}

// unmute watches the side again; what came meanwhile gives an event.
func (l *loop) unmute(f *Flow, side int) {
	f.muted[side] = false
	sys.EpollMod(l.epoll, int(f.fd[side]), flowEvents, f.token(side))
}

// accepted starts the life of a client's flow. The loop owns fd. peer is not
// valid on Unix.
func (l *loop) accepted(from *Listener, fd int, peer netip.AddrPort) {
	f := l.slab.take()
	f.loop, f.listener, f.state = l, from, flowAdmitting
	f.cfg = from.cfg.Load()
	f.timeouts, f.done = &f.cfg.Timeouts, f.cfg.Hooks.Done
	f.fd = [2]int32{int32(fd), -1}
	f.tcp[sideA] = from.addr.Network == TCP
	f.peer = peer
	f.start, f.since, f.active = l.now, l.now, l.now
	l.stats.Accepted++
	if e := l.watch(f, sideA); e != 0 {
		l.end(f, CauseNoDescriptors, e)
		return
	}
	if admit := f.cfg.Hooks.Admit; admit != nil {
		if c := admit(f); c != CauseNone {
			l.end(f, c.or(CauseRefused), nil)
			return
		}
	}
	if x := f.extra; x != nil && x.most > 0 {
		f.state = flowSniffing
		l.rearm(f)
		return
	}
	f.state = flowConnecting
	l.connect(f)
}

// adopt starts the life of a pair given to Relay.
func (l *loop) adopt(m *letter) {
	f := l.slab.take()
	f.loop, f.state = l, flowRelaying
	f.timeouts, f.done, f.value = l.share(&m.options.Timeouts), m.options.Done, m.options.Value
	f.fd = [2]int32{int32(m.fd[0]), int32(m.fd[1])}
	f.tcp = m.tcp
	f.start, f.since, f.active = l.now, l.now, l.now
	l.stats.Adopted++
	for side := range f.fd {
		if f.tcp[side] {
			// How the caller wanted it closed is over: a reset would destroy what
			// was delivered, and a wait in close(2) would stop the loop.
			sys.ClearLinger(int(f.fd[side]))
		}
		f.half[side].Preload(&l.env, m.read[side])
		l.stats.BytesRead += int64(len(m.read[side]))
	}
	if f.done != nil {
		l.notePeers(f)
	}
	for side := range f.fd {
		if e := l.watch(f, side); e != 0 {
			l.end(f, CauseNoDescriptors, e)
			return
		}
	}
	l.relay(f)
	for h := range f.half {
		if f.half[h].Held() > 0 && f.state == flowRelaying {
			l.turn(f, h)
		}
	}
}

// flowEvent is the way of every readiness: to the half that reads from the
// side, and to the half that writes to it.
func (l *loop) flowEvent(f *Flow, side int, ev uint32) {
	if ev&(sys.Pri|sys.RdHup|sys.Hup|sys.Err) != 0 {
		f.odd[side] = true
		f.half[side].Exact = false
	}
	readable := ev&(sys.In|sys.RdHup|sys.Hup|sys.Err) != 0
	if f.state != flowRelaying {
		f.hungUp = f.hungUp || side == sideA && ev&sys.Hup != 0
		f.ended = f.ended || side == sideA && ev&sys.RdHup != 0
		switch {
		case side == sideB:
			l.connectEvent(f, ev)
		case ev&sys.Err != 0, f.hungUp && (f.state == flowParked || f.state == flowStarved), f.ended && f.state == flowRetrying:
			l.end(f, CauseClientGone, nil)
		case f.state == flowSniffing && readable:
			l.sniff(f)
		default:
			f.pending = f.pending || readable
		}
		return
	}
	gen := f.gen
	switch {
	case !readable:
	case f.wait[side] == pump.WantRead:
		l.turn(f, side)
	case f.wait[side] == pump.WantWrite:
		l.mute(f, side)
	}
	if ev&(sys.Out|sys.Hup|sys.Err) == 0 {
		return
	}
	for h := range f.half {
		if f.alive(gen) && f.dstSide(h) == side && f.wait[h] == pump.WantWrite {
			l.turn(f, h)
		}
	}
	if ev&sys.Err == 0 || !f.alive(gen) {
		return
	}
	l.sideError(f, side)
}

// sideError looks at a side's error where its half would not meet it in a turn
// that comes by itself: where the half holds bytes for the other side, rests, or
// has ended. What it holds has a while to be delivered, as after a failed write.
func (l *loop) sideError(f *Flow, side int) {
	w := f.wait[side]
	if w == pump.WantRead || w == pump.Again && !f.resting || f.cause != CauseNone {
		return
	}
	e := sys.SockError(int(f.fd[side]))
	if e == 0 {
		return
	}
	l.failed(f, side, e)
	if w == pump.WantWrite {
		l.rearm(f)
		return
	}
	l.end(f, f.cause, f.err)
}

// relay begins to carry bytes: both sides are connected.
func (l *loop) relay(f *Flow) {
	f.state = flowRelaying
	f.active = l.now
	for h := range f.half {
		half := &f.half[h]
		half.TCP, half.Exact = f.tcp[h], f.tcp[h] && !f.odd[h]
		half.Enlarge = !f.tcp[f.dstSide(h)]
		if l.env.Pipes == nil {
			half.Refuse(pump.WhyOff)
		}
		f.wait[h] = pump.WantRead
	}
	l.deliver(f)
	l.rearm(f)
}

// turn lets one half move bytes, and does what its new state asks for.
func (l *loop) turn(f *Flow, h int) {
	half := &f.half[h]
	in, out, spliced := half.In, half.Out, half.Spliced
	dst := int(f.fd[f.dstSide(h)])
	budget := turnBudget
	if f.extra != nil {
		budget = l.paced(f, h)
	}
	f.wait[h] = half.Turn(&l.env, int(f.fd[h]), dst, budget)
	if f.extra != nil {
		l.env.Hard = false
		f.extra.pace.spend(h, half.In-in)
	}
	if f.muted[h] && f.wait[h] == pump.WantRead {
		l.unmute(f, h)
	}
	if half.In != in || half.Out != out {
		f.active = l.now
		l.stats.BytesRead += half.In - in
		l.stats.BytesWritten += half.Out - out
		l.stats.BytesSpliced += half.Spliced - spliced
		if h == sideB && f.firstByte == 0 {
			f.firstByte = max(1, l.now-f.start-f.connect)
		}
	}
	switch f.wait[h] {
	case pump.Again:
		if budget < turnBudget {
			l.rest(f)
			break
		}
		l.again(f)
	case pump.End:
		l.halfEnd(f, h)
	case pump.Failed:
		l.halfFailed(f, h)
	default:
		if half.Lagging() {
			l.lag(f, l.now)
		}
		if f.odd[h] && f.wait[h] == pump.WantWrite {
			l.sideError(f, h) // whose event may have come before the half stalled
		}
	}
}

// again gives the flow another turn, after the others that are ready.
func (l *loop) again(f *Flow) {
	if !f.inReady {
		f.inReady = true
		l.ready.push(f.ref())
	}
}

// over tells whether half h will move nothing any more.
func (f *Flow) over(h int) bool { return f.wait[h] == pump.End || f.wait[h] == pump.Failed }

// halfEnd passes the end of a direction on: its last byte is delivered.
func (l *loop) halfEnd(f *Flow, h int) {
	f.active = l.now
	switch {
	case f.cause != CauseNone:
		l.end(f, f.cause, f.err)
	case f.over(1 - h):
		// close says all that a shutdown would
		l.end(f, CauseEnd, nil)
	default:
		l.env.Kernel.ShutdownWrite(int(f.fd[1-h]))
		l.rearm(f)
	}
}

// halfFailed ends a flow whose one side failed. Where a write failed, what
// that side has already sent is delivered first.
func (l *loop) halfFailed(f *Flow, h int) {
	half := &f.half[h]
	side := h
	if !half.AtSrc {
		side = f.dstSide(h)
	}
	l.failed(f, side, half.Err)
	if half.AtSrc || f.over(1-h) {
		l.end(f, f.cause, f.err)
		return
	}
	half.Close(&l.env)
	l.rearm(f)
	if f.wait[1-h] == pump.WantRead {
		l.turn(f, 1-h)
	}
}

// failed notes that the connection of a side has failed. The first failure is
// the flow's cause.
func (l *loop) failed(f *Flow, side int, e sys.Errno) {
	f.active = l.now
	if f.cause != CauseNone {
		return
	}
	f.err = e
	reset := e == sys.ECONNRESET || e == sys.EPIPE
	switch {
	case reset && side == sideA:
		f.cause = CauseClientReset
	case reset:
		f.cause = CauseUpstreamReset
	case side == sideA:
		f.cause = CauseClientFailed
	default:
		f.cause = CauseUpstreamFailed
	}
}
