package relay

import (
	"math"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// listSlots bounds the slots that a loop looks at for one letter: some tens of
// microseconds.
const listSlots = 256

// listing is a walk over a loop's flows, a slice a letter. Slots do not move: a
// flow that is open all the while is met once.
type listing struct {
	at    uint32
	grams bool // streams are done with
	end   bool
	infos []FlowInfo
}

// Flows calls yield with all open flows, in slices of at most a few hundred, until
// yield returns false. It is an iterator: a range loop over e.Flows works. The slice is
// valid until yield returns. The loops do not stop: each copies one slice between two
// turns and goes on while yield runs, so a flow that begins or ends meanwhile may be
// missing. Flows may be called while the engine drains or closes.
func (e *Engine) Flows(yield func([]FlowInfo) bool) {
	notInHook("Flows")
	var q listing
	q.infos = make([]FlowInfo, 0, listSlots)
	for _, l := range e.loops {
		q.at, q.grams, q.end = 0, false, false
		for !q.end {
			clear(q.infos)
			q.infos = q.infos[:0]
			if !l.ask(letter{kind: letterList, list: &q}) {
				break
			}
			if len(q.infos) > 0 && !yield(q.infos) {
				return
			}
		}
	}
}

// Flow returns details of the open flow with the given ID, and whether there is one.
func (e *Engine) Flow(id uint64) (FlowDetail, bool) {
	notInHook("Flow")
	var d FlowDetail
	var found bool
	l := e.loopOf(id)
	ok := l != nil && l.ask(letter{kind: letterDetail, id: id, detail: &d, found: &found}) && found
	return d, ok
}

// Kill ends the flow with the given ID and reports whether there was one. c is the
// flow's cause; CauseNone, CauseEnd and values that are not a Cause count as
// [CauseKilled]. In a hook Kill does not wait for the answer, and reports whether there
// may be such a flow.
func (e *Engine) Kill(id uint64, c Cause) bool {
	var found bool
	l := e.loopOf(id)
	if l != nil && inHook() {
		return l.post(letter{kind: letterKill, id: id, cause: c.or(CauseKilled), found: &found})
	}
	return l != nil && l.ask(letter{kind: letterKill, id: id, cause: c.or(CauseKilled), found: &found}) && found
}

// loopOf is the loop that a flow's ID names, nil if it names none.
func (e *core) loopOf(id uint64) *loop {
	if i := id >> 56; i < uint64(len(e.loops)) {
		return e.loops[i]
	}
	return nil
}

// ask posts a letter and waits until it is answered; false: the loop has ended.
func (l *loop) ask(m letter) bool {
	var wg sync.WaitGroup
	wg.Add(1)
	m.wg = &wg
	if !l.post(m) {
		return false
	}
	wg.Wait()
	return true
}

// list fills the next slice of a walk.
func (l *loop) list(q *listing) {
	for range listSlots {
		switch {
		case !q.grams && int(q.at) < len(l.slab.chunks)*slabChunk:
			if f := l.slab.at(q.at); f.state != flowFree {
				f.info(q.next())
			}
			q.at++
		case !q.grams:
			q.grams, q.at = true, 0
		case l.dgrams != nil && int(q.at) < len(l.dgrams.sessions.chunks)*slabChunk:
			if s := l.dgrams.sessions.at(q.at); s.open {
				s.info(l, q.next())
			}
			q.at++
		default:
			q.end = true
			return
		}
	}
}

// next is room for one more flow.
func (q *listing) next() *FlowInfo {
	q.infos = q.infos[:len(q.infos)+1]
	return &q.infos[len(q.infos)-1]
}

// flowOf gives the flow that an ID names: a stream, or else a session, or neither.
func (l *loop) flowOf(id uint64) (*Flow, *session) {
	gen, index := uint32(id), uint32(id>>32)&(1<<24-1)
	if index&(1<<23) != 0 {
		if l.dgrams == nil {
			return nil, nil
		}
		return nil, l.dgrams.sessions.find(ref{index &^ (1 << 23), gen})
	}
	return l.slab.find(ref{index, gen}), nil
}

func (l *loop) detail(id uint64, d *FlowDetail) bool {
	switch f, s := l.flowOf(id); {
	case f != nil:
		f.info(&d.FlowInfo)
		d.Local = f.Local()
		d.Connect, d.FirstByte, d.Queued = f.connect, f.firstByte, f.queued
		if f.state == flowParked {
			d.Queued += l.now - f.since
		}
		d.ClientTCP, d.UpstreamTCP = f.tcpInfo(sideA), f.tcpInfo(sideB)
	case s != nil:
		s.info(l, &d.FlowInfo)
		d.Local = s.localAddr()
		d.Connect, d.FirstByte = s.connect, s.firstByte
	default:
		return false
	}
	return true
}

func (l *loop) kill(id uint64, c Cause) bool {
	switch f, s := l.flowOf(id); {
	case f != nil:
		l.end(f, c, nil)
	case s != nil:
		l.dgrams.end(s, c, nil)
	default:
		return false
	}
	return true
}

// info fills i with what a stream flow is doing.
func (f *Flow) info(i *FlowInfo) {
	l := f.loop
	peer := f.Peer()
	*i = FlowInfo{
		ID: f.ID(), Listener: f.listener, Value: f.value, Client: peer, Peer: peer, State: f.stage(), Attempts: int(f.attempts),
		Start: l.engine.start.Add(f.start), Duration: l.now - f.start, Idle: l.now - f.active,
		Up: f.transfer(sideA), Down: f.transfer(sideB),
	}
	i.Up.Held = i.Up.Read - i.Up.Written
	i.Down.Held = i.Down.Read - i.Down.Written
	if f.client != nil {
		i.Client = *f.client
	}
	switch {
	case f.to != nil:
		i.Upstream = *f.to
	case f.listener == nil:
		i.Upstream = f.remote(sideB)
	}
}

func (f *Flow) stage() FlowState {
	switch f.state {
	case flowSniffing:
		return StateSniffing
	case flowParked:
		return StateQueued
	case flowConnecting, flowRetrying, flowStarved:
		return StateConnecting
	}
	return StateRelaying
}

// info fills i with what a datagram flow is doing.
func (s *session) info(l *loop, i *FlowInfo) {
	peer := s.peer()
	*i = FlowInfo{
		ID: s.id(l), Listener: s.port.listener, Value: s.value, Client: peer, Peer: peer, State: StateRelaying, Datagram: true, Attempts: int(s.attempts),
		Start: l.engine.start.Add(s.start), Duration: l.now - s.start, Idle: l.now - s.active,
		Up: s.transfer(toB), Down: s.transfer(toA),
	}
	i.Up.Held = heldBytes(s.hold)
	if s.client != nil {
		i.Client = *s.client
	}
	if s.to != nil {
		i.Upstream = *s.to
	}
}

// tcpStates are the kernel's states by number, include/net/tcp_states.h.
var tcpStates = [...]string{"unknown", "established", "syn-sent", "syn-recv", "fin-wait1", "fin-wait2", "time-wait", "closed", "close-wait",
	"last-ack", "listen", "closing", "new-syn-recv"}

func (f *Flow) tcpInfo(side int) *TCPInfo {
	fd := int(f.fd[side])
	var k sys.TCPInfo
	if fd < 0 || !f.tcp[side] || sys.Info(fd, &k) != 0 {
		return nil
	}
	micro := func(n uint32) time.Duration {
		if n == math.MaxUint32 { // not known
			return 0
		}
		return time.Duration(n) * time.Microsecond
	}
	t := &TCPInfo{
		State: tcpStates[0], RTT: micro(k.Rtt), RTTVar: micro(k.Rttvar), MinRTT: micro(k.Min_rtt), Cwnd: int(k.Snd_cwnd), MSS: int(k.Snd_mss),
		Unacked: int(k.Unacked), Lost: int(k.Lost), Retransmits: int(k.Total_retrans), BytesAcked: int64(k.Bytes_acked),
		BytesReceived: int64(k.Bytes_received), NotSent: int64(k.Notsent_bytes), DeliveryRate: int64(k.Delivery_rate),
		SACK: k.Options&sys.OptSACK != 0, ECN: k.Options&sys.OptECN != 0, Timestamps: k.Options&sys.OptTimestamps != 0,
		WindowScale: k.Options&sys.OptWScale != 0, FastOpen: k.Options&sys.OptSynData != 0, MPTCP: sys.IsMPTCP(fd),
	}
	if int(k.State) < len(tcpStates) {
		t.State = tcpStates[k.State]
	}
	if k.Pacing_rate != math.MaxUint64 {
		t.PacingRate = int64(k.Pacing_rate)
	}
	t.Congestion, _ = sys.Congestion(fd)
	return t
}
