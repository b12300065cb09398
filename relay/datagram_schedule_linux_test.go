package relay

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
)

// gramMachine runs one loop with flows of datagrams as a schedule says: who sends what, when the loop has its
// turn, what its clock says, and which calls fail. It runs on the loop's goroutine, so nothing happens
// between two decisions. The peers are real sockets on this host, which have a datagram as soon as it is
// sent. Each datagram names its owner and its number.
type gramMachine struct {
	r         *rig
	l         *loop.Loop
	d         *datagrams
	listener  netip.AddrPort
	left      []byte // of the schedule
	rnd       *rand.Rand
	upstreams [2]gramPeer
	clients   [6]gramPeer
	spares    [8]gramPeer          // made at once: a later one might get the port of a flow that has ended, and what is sent to that
	used      int                  // of the spares
	owners    [6]uint32            // who the clients are: other sockets are other owners
	up        atomic.Pointer[Addr] // of new flows
	heard     []gramOrigin         // of clients, at the upstreams
	ports     map[gramPort]*gramOrigin
	sent      map[gramNumber]int // sizes
	last      map[gramKind]uint32
	next      map[gramKind]uint32
	arrived   int64
	inexact   bool // datagrams are sent that nobody gets
	blocks    *gramBlocks
}

type (
	gramPeer struct {
		fd int
		at netip.AddrPort
	}
	// gramKind is an owner's stream of datagrams: requests, and replies of one upstream.
	gramKind struct {
		owner uint32
		kind  uint32 // 0: requests; 1, 2: replies of an upstream; 3: echoes, which are requests too
	}
	gramNumber struct {
		gramKind
		n uint32
	}
	gramPort struct {
		upstream int
		port     uint16
	}
	// gramOrigin is where an upstream has heard of a client.
	gramOrigin struct {
		upstream int
		to       netip.AddrPort
		owner    uint32
		at       time.Duration
	}
	// gramBlocks is memory that machines use one after the other.
	gramBlocks struct {
		recv, send *sys.Vector
		b          []byte
	}
)

var gramMemory = sync.Pool{New: func() any {
	m := &gramBlocks{recv: sys.NewVector(16, 16, sys.IPv4), send: sys.NewVector(1, 1, sys.IPv4), b: make([]byte, 1<<16)}
	for i := range 16 {
		m.recv.SetBuf(i, make([]byte, 1<<16))
	}
	return m
}}

func (m *gramMachine) decide() byte {
	if len(m.left) == 0 {
		return 0
	}
	b := m.left[0]
	m.left = m.left[1:]
	return b
}

func newGramPeer() (p gramPeer, err error) {
	var e sys.Errno
	if p.fd, e = (sys.Linux{}).Datagram(sys.IPv4); e != 0 {
		return p, e
	}
	return p, p.bind(loopback)
}

func (p *gramPeer) bind(at netip.AddrPort) error {
	var sa sys.Sockaddr
	if err := sa.SetAddrPort(at); err != nil {
		return err
	}
	if e := sys.Bind(p.fd, &sa); e != 0 {
		return e
	}
	sys.SetRecvBuffer(sys.Linux{}, p.fd, 1<<20)
	if e := sys.LocalAddr(p.fd, &sa); e != 0 {
		return e
	}
	p.at = sa.AddrPort()
	return nil
}

// tell sends count datagrams of an owner, of which the last may be shorter, as a run if that is wanted.
func (m *gramMachine) tell(from gramPeer, to netip.AddrPort, kind gramKind, count, size int, run bool) {
	size = max(size, sealHead)
	count = max(1, min(count, 60_000/size))
	b := m.blocks.b[:0]
	for range count {
		n := m.next[kind]
		m.next[kind]++
		m.sent[gramNumber{kind, n}] = size
		at := len(b)
		b = b[:at+size]
		seal(b[at:], kind.owner|kind.kind<<16, n, m.rnd)
	}
	if run && count > 1 {
		m.send(from, to, b, size)
		return
	}
	for ; len(b) > 0; b = b[size:] {
		m.send(from, to, b[:size], 0)
	}
}

func (m *gramMachine) send(from gramPeer, to netip.AddrPort, b []byte, seg int) {
	v := m.blocks.send
	v.Reset()
	i := v.Open()
	v.Add(b)
	v.SetNameLen(i, sys.PutAddrPort(v.Name(i), sys.IPv4, to, 0))
	v.SetControlLen(i, 0)
	if seg > 0 {
		v.SetControlLen(i, len(sys.AppendSegment(v.Control(i), uint16(seg))))
	}
	sys.Linux{}.SendBatch(from.fd, v, 0, 1) // an ICMP error of an earlier one may be told: then this one is lost
}

// hear reads all that has come to a peer, and checks whose it is.
func (m *gramMachine) hear(p gramPeer, check func(b []byte, from netip.AddrPort) error) error {
	v := m.blocks.recv
	for {
		v.Rearm(0, 16)
		n, e := sys.Linux{}.RecvBatch(p.fd, sys.IPv4, v, 0, 16)
		if e == sys.ECONNREFUSED {
			continue
		}
		if e != 0 {
			return nil
		}
		for i := range n {
			size, _, name, _ := v.Received(i)
			from, _ := sys.GetAddrPort(name)
			m.arrived++
			if err := check(v.Buf(i)[:size], from); err != nil {
				return err
			}
		}
	}
}

// owned checks a datagram that came to somebody: it is whole, and comes behind those of its kind that came before.
func (m *gramMachine) owned(b []byte, as uint32) (kind gramKind, err error) {
	if len(b) < sealHead {
		return kind, fmt.Errorf("a datagram of %d bytes, which nobody has sent", len(b))
	}
	flow, n := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	kind = gramKind{flow & 0xffff, flow >> 16}
	size, ok := m.sent[gramNumber{kind, n}]
	if !ok {
		return kind, fmt.Errorf("datagram %d of %+v, which nobody has sent", n, kind)
	}
	if err := broken(b, size, flow, n); err != nil {
		return kind, err
	}
	order := kind
	if as != 0 {
		order.kind = as
	}
	if last, ok := m.last[order]; ok && n <= last {
		return kind, fmt.Errorf("datagram %d of %+v came behind %d", n, order, last)
	}
	m.last[order] = n
	return kind, nil
}

// look makes all peers look at what they got.
func (m *gramMachine) look() error {
	for u := range m.upstreams {
		err := m.hear(m.upstreams[u], func(b []byte, from netip.AddrPort) error {
			kind, err := m.owned(b, 0)
			if err != nil || kind.kind != 0 {
				return fmt.Errorf("upstream %d: %+v, %w", u, kind, err)
			}
			port := gramPort{u, from.Port()}
			origin := m.ports[port]
			if origin == nil {
				origin = &gramOrigin{owner: kind.owner}
				m.ports[port] = origin
			}
			if origin.owner != kind.owner && m.l.Now-origin.at < restTime && m.d.stats.RestingClosedEarly == 0 {
				return fmt.Errorf("upstream %d: port %d, which was client %d's %v ago, is client %d's now", u, from.Port(), origin.owner, m.l.Now-origin.at, kind.owner)
			}
			*origin = gramOrigin{u, from, kind.owner, m.l.Now}
			m.heard = append(m.heard, *origin)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for c := range m.clients {
		err := m.hear(m.clients[c], func(b []byte, from netip.AddrPort) error {
			as := uint32(0)
			if len(b) > 4 && binary.LittleEndian.Uint32(b)>>16 == 0 {
				as = 3 // an echo
			}
			kind, err := m.owned(b, as)
			if err != nil || kind.owner != m.owners[c] || from != m.listener {
				return fmt.Errorf("client %d got %+v from %v: %w", c, kind, from, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// turn is one turn of the loop, without a wait.
func (m *gramMachine) turn() (busy bool) {
	return m.l.Step()
}

// settle lets the loop do all that there is to do.
func (m *gramMachine) settle() error {
	for range 500 {
		busy := m.turn()
		if err := m.look(); err != nil || !busy {
			return err
		}
	}
	return fmt.Errorf("the loop finds no end: %+v", *m.d.stats)
}

// replace closes a peer's socket and gives it another one, if there is one left.
func (m *gramMachine) replace(p *gramPeer) bool {
	if m.used == len(m.spares) {
		return false
	}
	sys.Linux{}.Close(p.fd)
	*p, m.spares[m.used] = m.spares[m.used], gramPeer{fd: -1}
	m.used++
	m.inexact = true
	return true
}

var gramSizes = [8]int{sealHead, 100, 100, 1200, 1400, 9000, 20_000, 60_000}

// step does what the next decision says.
func (m *gramMachine) step() error {
	switch op := m.decide() % 16; op {
	case 0, 1, 2, 3, 4:
		who, how := m.decide(), m.decide()
		c := int(who) % len(m.clients)
		m.tell(m.clients[c], m.listener, gramKind{m.owners[c], 0}, 1+int(how>>4), gramSizes[how%8], how&8 != 0)
	case 5, 6, 7:
		which, how := m.decide(), m.decide()
		if len(m.heard) == 0 {
			break
		}
		origin := m.heard[len(m.heard)-1-int(which)%len(m.heard)]
		if m.l.Now-origin.at < restTime-time.Second || m.ports[gramPort{origin.upstream, origin.to.Port()}].owner == origin.owner {
			m.tell(m.upstreams[origin.upstream], origin.to, gramKind{origin.owner, 1 + uint32(origin.upstream)}, 1+int(how>>4), gramSizes[how%8], how&8 != 0)
		}
	case 8, 9:
		m.turn()
		return m.look()
	case 10:
		return m.settle()
	case 11, 12:
		what, times := m.decide(), 1+int(m.decide()%4)
		call := []testkernel.Call{testkernel.SendBatch, testkernel.SendRun, testkernel.Send, testkernel.SendBatch}[what%4]
		errno := []sys.Errno{sys.EAGAIN, sys.EMSGSIZE, sys.ENOBUFS, sys.EPERM, sys.EINTR, sys.EINVAL, syscall.EIO, sys.EAGAIN}[what>>2%8]
		m.r.k.FailAfter(int(what>>5), call, errno, times)
	case 13:
		switch what := m.decide(); what % 8 {
		case 0, 1, 2:
			m.r.k.Heal()
		case 3:
			m.r.k.Fail(testkernel.Datagram, sys.EMFILE, 1)
		case 4:
			m.r.k.Fail(testkernel.Connect, syscall.ENETUNREACH, 1)
		default:
			m.r.k.FailAfter(int(what>>4), testkernel.Send, sys.ECONNREFUSED, 1+int(what>>3&1))
		}
	case 14:
		m.l.Now += []time.Duration{time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond, time.Second, 6 * time.Second, 61 * time.Second}[m.decide()%6]
		m.turn()
		return m.look()
	case 15:
		switch what := m.decide(); what % 8 {
		case 0, 1, 2, 3:
			at := Addr{Network: UDP, AddrPort: m.upstreams[what%2].at}
			m.up.Store(&at)
		case 4:
			m.up.Store(&Addr{Network: Echo})
			m.inexact = true // an echo is sent twice: to the upstream inside, and back
		case 5, 6:
			// The second upstream is gone for a while: flows meet ICMP errors.
			at := m.upstreams[1].at
			if m.replace(&m.upstreams[1]) && what%8 == 5 {
				m.upstreams[1].at = at // nobody is there
			}
		case 7:
			c := int(what>>3) % len(m.clients) // a client is gone, with what is on its way to it
			if m.replace(&m.clients[c]) {
				m.owners[c] += uint32(len(m.clients))
			}
		}
	}
	return nil
}

// finish lets all that is on its way arrive.
func (m *gramMachine) finish() error {
	m.r.k.Heal()
	if err := m.settle(); err != nil {
		return err
	}
	for _, p := range m.d.ports {
		if p.out.blocked || sys.Readable(sys.Linux{}, p.fd) {
			return fmt.Errorf("the loop sleeps, and its port is blocked: %v, or has datagrams", p.out.blocked)
		}
	}
	var err error
	sniffed, undecided := 0, 0
	m.d.slab.Each(func(f *datagramFlow) {
		if f.sniffed {
			sniffed++
			undecided += cap(f.held)
		}
		if f.fd >= 0 && (f.held != nil || f.blocked || sys.Readable(sys.Linux{}, int(f.fd))) {
			err = fmt.Errorf("the loop sleeps, and a flow holds %d bytes, is blocked: %v, or has replies", len(f.held), f.blocked)
		}
	})
	if d := m.d; err == nil && (sniffed != d.undecided.n || sniffed != len(d.sniffs) || int64(undecided) != d.undecidedBytes) {
		err = fmt.Errorf("%d flows that are sniffed hold %d bytes; %d are listed, of %d the bounds are kept, %d bytes are counted", sniffed, undecided, d.undecided.n, len(d.sniffs), d.undecidedBytes)
	}
	if err == nil && !m.inexact && m.arrived != m.d.stats.Sent {
		err = fmt.Errorf("%d datagrams were sent, %d have arrived", m.d.stats.Sent, m.arrived)
	}
	return err
}

func runGrams(t *testing.T, data []byte) {
	m := &gramMachine{left: data, rnd: rand.New(rand.NewPCG(1, 1)), ports: make(map[gramPort]*gramOrigin), sent: make(map[gramNumber]int), last: make(map[gramKind]uint32), next: make(map[gramKind]uint32)}
	kind := m.decide()
	cfg := Config{Loops: 1, NoGSO: kind&1 != 0, NoGRO: kind&2 != 0, MaxNewDatagramFlows: -1}
	if kind&4 != 0 {
		cfg.MaxDatagramFlows = 3
	}
	m.r = newDatagramRig(t, cfg)
	for _, peers := range [][]gramPeer{m.upstreams[:], m.clients[:], m.spares[:]} {
		for i := range peers {
			var err error
			if peers[i], err = newGramPeer(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if fd := peers[i].fd; fd >= 0 {
					sys.Linux{}.Close(fd)
				}
			}()
		}
	}
	m.blocks = gramMemory.Get().(*gramBlocks)
	defer gramMemory.Put(m.blocks)
	for c := range m.owners {
		m.owners[c] = uint32(c)
	}
	first := Addr{Network: UDP, AddrPort: m.upstreams[0].at}
	m.up.Store(&first)
	hooks := Hooks{Upstream: func(_ *Flow, attempt int) *Addr { return []*Addr{m.up.Load(), nil}[min(attempt, 1)] }}
	if kind >= 128 {
		hooks.Admit = func(f *Flow) Cause { f.StartSniff(100_000, 3*time.Second); return CauseNone }
		hooks.Sniff = sniffGrams
	}
	l := m.r.listenAt(gramPlace(t, "udp4"), ListenConfig{
		Hooks:    hooks,
		Datagram: DatagramConfig{Replies: int(kind >> 3 & 1), OnUnreachable: UnreachableAction(kind >> 4 % 3)},
	})
	m.listener = l.Addr().AddrPort
	m.l = m.r.e.loops[0]
	m.d = m.r.e.datagrams.all[0]
	var err error
	m.l.Ask(func() {
		for len(m.left) > 0 && err == nil {
			err = m.step()
		}
		if err == nil {
			err = m.finish()
		}
	})
	m.r.k.Heal()
	if err != nil {
		t.Fatalf("%v\ndecisions left: %d; %+v;%s", err, len(m.left), *m.d.stats, m.r.k.Counts())
	}
}

// sniffGrams decides about a client after some of its datagrams, by what is in them.
func sniffGrams(f *Flow, b []byte, last bool) (int, SniffNext) {
	seen, _ := f.Value().(int)
	f.SetValue(seen + 1)
	switch {
	case b == nil:
		return 0, SniffNext(1 + seen%2)
	case b[8]%16 == 0:
		return 0, SniffRefuse
	case b[8]%16 == 1:
		return 1, SniffMore
	case last, seen == 3, b[8]%4 == 0:
		return 0, SniffDone
	}
	return 0, SniffMore
}

// FuzzGrams: the flows of a loop as a state machine. Whoever sends what, however sends fail, upstreams go, flows are
// evicted, rest and end: a datagram reaches its owner or nobody, whole, at most once and in order; nothing is left
// lying when the loop sleeps; the counters balance.
func FuzzGrams(f *testing.F) {
	for kind := range byte(6) {
		f.Add([]byte{kind * 5, 0, 1, 0x2b, 0, 2, 0x1a, 10, 5, 0, 0x3b, 5, 1, 0x2c, 10})
		f.Add([]byte{128 + kind*5, 0, 1, 0x2b, 0, 2, 0x1a, 10, 5, 0, 0x3b, 0, 1, 0x0c, 8, 14, 4, 5, 1, 0x2c, 10})
		f.Add([]byte{kind * 7, 0, 1, 0x2b, 11, 1, 3, 0, 2, 0x1a, 9, 5, 0, 0x3b, 5, 1, 0x2c, 11, 0, 2, 14, 4, 0, 3, 9, 10})
		f.Add([]byte{kind * 9, 0, 0, 0, 10, 14, 2, 0, 1, 0, 10, 14, 2, 0, 2, 0, 10, 0, 3, 0, 10, 0, 4, 0, 10, 5, 4, 0, 5, 3, 0, 15, 5, 0, 5, 9, 10})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) <= 300 { // a run takes 10 ms; fuzzing gives up on one of 10 s
			runGrams(t, data)
		}
	})
}

// The same with random schedules, which are others in each run.
func TestGramSchedules(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 40 {
		data := make([]byte, 2+r.IntN(300))
		for j := range data {
			data[j] = byte(r.Uint32())
		}
		if !t.Run(fmt.Sprintf("seed=%d/%d", seed, i), func(t *testing.T) { runGrams(t, data) }) {
			t.Fatalf("schedule %#v, a seed for FuzzGrams", data)
		}
	}
}
