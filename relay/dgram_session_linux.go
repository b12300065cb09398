package relay

import (
	"net/netip"
	"time"

	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
)

// The directions of a datagram flow, as in Record.
const (
	toB = 0 // from the client to the upstream
	toA = 1 // from the upstream to the client
)

// session is a datagram flow: one client's address, the local address that it
// wrote to, and a connected socket towards the upstream.
//
//	first datagram ─▶ open ──▶ ended
//	                  │  ▲
//	                  └──┘ next upstream, after an ICMP error
//
// It has no state elsewhere, but for its place in the port's table, in the
// timer wheel and in one of two lists by age.
type session struct {
	gen, index, nextFree uint32
	fd                   int32 // towards the upstream; -1: built in
	open                 bool
	answered             bool // the upstream has answered at least once
	echo                 bool // builtin: what comes goes back; else it goes nowhere
	parked               bool // replies are not read while the port's socket is full
	v6                   bool // the client is an IPv6 one, and not 4-in-6
	width                uint8
	streak               int8
	why                  [2]Why
	nameLen              uint8
	name                 [28]byte // the client's address as the kernel wrote it; a Unix one is in path
	path                 string
	local                netip.Addr // that the client wrote to, where the listener is bound to none
	index2               uint32     // interface, where local is a link-local address
	port                 *dgramPort
	cfg                  *ListenConfig // what the listener had when the flow began
	dialing              *DialConfig   // SetDial's; nil: cfg.Dial
	client               *Addr         // SetClient's; nil: the peer is the client
	to                   *Addr
	value                any
	err                  error
	limit                [2]limit
	moved                [2]moved
	requests, answers    int64 // datagrams sent to the present upstream, and received from it
	start, since         time.Duration
	connect, active      time.Duration
	firstByte            time.Duration // see Record.FirstByte
	attempts             uint16
	drops                uint32 // SO_RXQ_OVFL's last reading
	hold                 []byte // what waits for the upstream's socket; see held
	first, last          int16  // its messages in the batch at hand; -1: none
	pending              int16  // its items in the port's outbox
	idle, life           time.Duration
	extra                *extra // nil: no bound on its bandwidth
	newer, older         *session
}

// moved is what one direction has carried.
type moved struct {
	read, written int64 // bytes
	grams, lost   int64 // datagrams written, and dropped
	runs          bool
}

// limit is what one run in one direction may hold.
type limit struct {
	segment.Limit
	refusal segment.Refusal
}

// limitOf returns the limit for a message whose datagrams have the given size.
func (d *dgrams) limitOf(s *session, dir, size int) segment.Limit {
	m := &s.limit[dir]
	if size > m.refusal.Largest {
		if d.now().Before(m.refusal.Until) {
			return segment.Limit{Count: 1, Bytes: m.Bytes}
		}
		m.refusal = segment.None
	}
	return m.Limit
}

func (s *session) token() uint64 { return uint64(s.gen)<<32 | sessionBit | uint64(s.index) }

func (s *session) ref() ref { return ref{s.index, s.gen} }

func (s *session) id(l *loop) uint64 {
	return uint64(l.index)<<56 | 1<<55 | uint64(s.index&(1<<23-1))<<32 | uint64(s.gen)
}

// peer is the address that the client's datagrams come from.
func (s *session) peer() Addr {
	if s.port.family == sys.Unix {
		return Addr{Network: Unixgram, Path: unixPath(s.path)}
	}
	return Addr{Network: UDP, AddrPort: addrPort(s.name[:s.nameLen])}
}

// localAddr is the address that the client wrote to.
func (s *session) localAddr() Addr {
	a := s.port.listener.addr
	if s.local.IsValid() {
		a.AddrPort = netip.AddrPortFrom(s.local, a.AddrPort.Port())
	}
	return a
}

// upstreamFamily is the family of the socket towards the upstream, as far as a
// receive has to know it.
func (s *session) upstreamFamily() sys.Family {
	if s.to.Network == Unixgram {
		return sys.Unix
	}
	return sys.IPv6
}

// builtin tells whether the upstream is inside.
func (s *session) builtin() bool { return s.fd < 0 }

// transfer is the account of one direction.
func (s *session) transfer(dir int) Transfer {
	m := &s.moved[dir]
	t := Transfer{Read: m.read, Written: m.written, Datagrams: m.grams, DatagramsDropped: m.lost}
	switch {
	case m.runs:
		t.Path = PathGSO
	case m.grams > 0:
		t.Path, t.Why = PathCopy, s.why[dir]
		if t.Why == WhyNone {
			t.Why = WhySingle
		}
	}
	return t
}

// sessions holds a loop's datagram flows in chunks that never move, as slab does for streams.
type sessions struct {
	chunks [][]session
	free   uint32 // index+1 of the first free slot
	live   int
}

func (t *sessions) take() *session {
	if t.free == 0 {
		base := uint32(len(t.chunks) * slabChunk)
		c := make([]session, slabChunk)
		for i := range c {
			c[i].index = base + uint32(i)
			c[i].nextFree = base + uint32(i) + 2
		}
		c[slabChunk-1].nextFree = 0
		t.chunks = append(t.chunks, c)
		t.free = base + 1
	}
	s := t.at(t.free - 1)
	t.free = s.nextFree
	t.live++
	s.gen = max(1, s.gen+1) // 0 is nobody's
	s.open = true
	return s
}

func (t *sessions) put(s *session) {
	*s = session{index: s.index, gen: s.gen, nextFree: t.free}
	t.free = s.index + 1
	t.live--
}

func (t *sessions) at(i uint32) *session { return &t.chunks[i/slabChunk][i%slabChunk] }

// find gives the flow that r names, nil if it has ended.
func (t *sessions) find(r ref) *session {
	if int(r.index/slabChunk) >= len(t.chunks) {
		return nil
	}
	if s := t.at(r.index); s.gen == r.gen && s.open {
		return s
	}
	return nil
}

func (t *sessions) each(do func(*session)) {
	for _, c := range t.chunks {
		for i := range c {
			if c[i].open {
				do(&c[i])
			}
		}
	}
}

// ages is a list of flows by when they carried something last.
type ages struct {
	newest, oldest *session
	n              int
}

func (a *ages) add(s *session) {
	a.n++
	s.newer, s.older = nil, a.newest
	if a.newest != nil {
		a.newest.newer = s
	} else {
		a.oldest = s
	}
	a.newest = s
}

func (a *ages) remove(s *session) {
	a.n--
	if s.newer != nil {
		s.newer.older = s.older
	} else {
		a.newest = s.older
	}
	if s.older != nil {
		s.older.newer = s.newer
	} else {
		a.oldest = s.newer
	}
	s.newer, s.older = nil, nil
}

// touch makes s the newest.
func (a *ages) touch(s *session) {
	if a.newest != s {
		a.remove(s)
		a.add(s)
	}
}
