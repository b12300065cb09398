//go:build linux

package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/dgram"
)

// Each datagram of a flood has a number. The sink reports to each flow how many datagrams it got
// and the highest number among them, often enough that the window never closes for lack of an
// answer. So a lost datagram does not slow the flow down, but is counted.
const (
	FloodWindow = 512 // the number of datagrams of a flow that may be in flight
	floodBurst  = 32  // the number of datagrams that the sender gives to the kernel at once
	floodAnswer = FloodWindow / 4
	floodHead   = 8
	floodTail   = 5 * time.Millisecond // after which the sink answers even if no answer is due
	floodLost   = 20 * time.Millisecond
)

// flow is one client.
type flow struct {
	conn     *dgram.Conn
	sock     *net.UDPConn
	ms       []dgram.Message
	next     int64        // number of the next datagram
	received atomic.Int64 // number of datagrams that the sink got
	seen     atomic.Int64 // one above the highest number that it saw
	given    int64        // below which all are taken for lost
}

func runFlood(spec Spec, cfg Config) (r Result, err error) {
	to, err := net.ResolveUDPAddr("udp", cfg.Addr)
	if err != nil {
		return r, err
	}
	answer := make(chan struct{}, 1)
	flows := make([]*flow, spec.Conns)
	for i := range flows {
		if flows[i], err = newFlow(spec, to, answer); err != nil {
			return r, err
		}
		defer flows[i].sock.Close()
	}
	timer := time.NewTimer(0)
	until := func(end time.Time) error {
		for time.Now().Before(end) {
			moved := false
			for _, f := range flows {
				n, err := f.burst(spec)
				if err != nil {
					return err
				}
				moved = moved || n > 0
			}
			if moved {
				continue
			}
			timer.Reset(floodLost)
			select {
			case <-answer:
			case <-timer.C:
				for _, f := range flows {
					f.given = f.next
				}
			}
		}
		return nil
	}
	on := func(d time.Duration) error { return until(time.Now().Add(d)) }
	if err := on(cfg.Warm); err != nil {
		return r, err
	}
	if err := awaitSettled(spec, cfg, on); err != nil {
		return r, err
	}
	total := func() (sent, received int64) {
		for _, f := range flows {
			sent += f.next
			received += f.received.Load()
		}
		return sent, received
	}
	_, before := total()
	m := meter{cfg: cfg}
	err = m.begin()
	if err == nil {
		err = until(m.start.Add(cfg.Window))
	}
	_, after := total()
	for end := m.start.Add(stall); err == nil && after == before && time.Now().Before(end); {
		err = until(time.Now().Add(floodTail)) // the window lasts until there is something to see
		_, after = total()
	}
	err = errors.Join(err, m.end(&r))
	r.Ops = after - before
	r.Bytes = r.Ops * int64(spec.Size)
	time.Sleep(20 * floodTail)
	sent, received := total()
	r.Sent, r.Lost = sent, sent-received
	if r.Ops == 0 {
		err = errors.Join(err, errors.New("no datagram arrived in the window"))
	}
	return r, err
}

func newFlow(spec Spec, to *net.UDPAddr, answer chan<- struct{}) (*flow, error) {
	sock, err := net.DialUDP("udp", nil, to)
	if err != nil {
		return nil, err
	}
	// Plain datagrams must not be combined into runs.
	conn, err := dgram.New(sock, dgram.Config{NoGSO: spec.Burst == 0})
	if err != nil {
		return nil, err
	}
	f := &flow{conn: conn, sock: sock}
	if spec.Burst > 0 {
		f.ms = []dgram.Message{{Buf: make([]byte, spec.Burst*spec.Size), Segment: spec.Size}}
	} else {
		f.ms = make([]dgram.Message, floodBurst)
		for i := range f.ms {
			f.ms[i].Buf = make([]byte, spec.Size)
		}
	}
	if spec.QUIC {
		if err := f.greet(); err != nil {
			return nil, err
		}
	}
	go f.answers(answer)
	return f, nil
}

// greet sends an Initial packet, and has what follows be packets with short headers: what a relay sees of a connection of QUIC, whose server has given the
// client an ID. The sink does not count the first two.
func (f *flow) greet() error {
	first, err := Initials(rand.New(rand.NewPCG(rand.Uint64(), 0)), 1, false)
	if err != nil {
		return err
	}
	id := binary.BigEndian.AppendUint64(nil, rand.Uint64())
	handshake := append(append([]byte{0xe0, 0, 0, 0, 1, 8}, id...), 0, 20)
	for _, b := range [][]byte{first[0], append(handshake, make([]byte, 20)...)} {
		if _, err := f.sock.Write(b); err != nil {
			return err
		}
	}
	for _, m := range f.ms {
		m.Buf[0] = 0x40
		copy(m.Buf[1:], id)
	}
	return nil
}

// numberAt is where datagrams of a flood have their number.
func (s Spec) numberAt() int {
	if s.QUIC {
		return 16 // behind a short header with an ID of 8 bytes
	}
	return 0
}

// answers reads the sink's reports until the socket is closed.
func (f *flow) answers(answer chan<- struct{}) {
	ms := make([]dgram.Message, 16)
	for i := range ms {
		ms[i].Buf = make([]byte, dgram.MaxSize)
	}
	for {
		n, err := f.conn.ReadBatch(ms)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		for _, m := range ms[:n] {
			for b := m.Buf[:m.N]; len(b) >= 16; b = b[16:] {
				f.received.Store(max(f.received.Load(), int64(binary.LittleEndian.Uint64(b))))
				f.seen.Store(max(f.seen.Load(), int64(binary.LittleEndian.Uint64(b[8:]))))
			}
		}
		select {
		case answer <- struct{}{}:
		default:
		}
	}
}

// burst sends what the window allows, at most floodBurst datagrams, and returns how many.
func (f *flow) burst(spec Spec) (int, error) {
	if f.next+floodBurst-max(f.seen.Load(), f.given) > FloodWindow {
		return 0, nil
	}
	next := f.next
	for _, m := range f.ms {
		for b := m.Buf; len(b) > 0; b = b[spec.Size:] {
			binary.LittleEndian.PutUint64(b[spec.numberAt():], uint64(next))
			next++
		}
	}
	f.next = next
	if n, err := f.conn.WriteBatch(f.ms); err != nil {
		return 0, fmt.Errorf("send message %d of %d: %w", n, len(f.ms), err)
	}
	return floodBurst, nil
}

func newUDPSink(spec Spec, ip netip.Addr) (*Sink, error) {
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, 0)))
	if err != nil {
		return nil, err
	}
	return &Sink{spec: spec, udp: c, Addr: c.LocalAddr().String()}, nil
}

// got is what the sink knows about one flow.
type got struct {
	count, answered, seen int64
}

func (s *Sink) serveFlood() error {
	c, err := dgram.New(s.udp, dgram.Config{})
	if err != nil {
		return err
	}
	if _, err := c.SetReadBuffer(8 << 20); err != nil {
		return err
	}
	ms := make([]dgram.Message, 64)
	for i := range ms {
		ms[i].Buf = make([]byte, dgram.MaxSize)
	}
	flows := make(map[netip.AddrPort]*got)
	out := make([]dgram.Message, 0, len(ms))
	var bufs [64][16]byte
	answer := func(a netip.AddrPort, g *got) {
		b := bufs[len(out)][:]
		binary.LittleEndian.PutUint64(b, uint64(g.count))
		binary.LittleEndian.PutUint64(b[8:], uint64(g.seen))
		g.answered = g.count
		out = append(out, dgram.Message{Buf: b, Addr: a})
	}
	for {
		s.udp.SetReadDeadline(time.Now().Add(floodTail))
		n, err := c.ReadBatch(ms)
		if err != nil && !isTimeout(err) {
			continue // an ICMP error, because a relay went away
		}
		for _, m := range ms[:n] {
			if m.N < floodHead || s.spec.QUIC && m.Buf[0]&0x80 != 0 {
				continue
			}
			g := flows[m.Addr]
			if g == nil {
				g = new(got)
				flows[m.Addr] = g
			}
			count, last := 1, 0
			if m.Segment > 0 && m.N > m.Segment {
				count = (m.N + m.Segment - 1) / m.Segment
				last = (count - 1) * m.Segment
			}
			g.count += int64(count)
			g.seen = max(g.seen, 1+int64(binary.LittleEndian.Uint64(m.Buf[last+s.spec.numberAt():])))
			if g.count-g.answered >= floodAnswer {
				answer(m.Addr, g)
			}
		}
		if n == 0 {
			for a, g := range flows {
				if g.answered < g.count && len(out) < cap(out) {
					answer(a, g)
				}
			}
		}
		if len(out) > 0 {
			c.WriteBatch(out) // the next answer makes up for a lost one
			out = out[:0]
		}
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func (s *Sink) serveUDPEcho() error {
	c, err := dgram.New(s.udp, dgram.Config{NoGRO: true, NoGSO: true})
	if err != nil {
		return err
	}
	ms := make([]dgram.Message, 64)
	room := make([]byte, len(ms)*2048)
	for {
		for i := range ms {
			ms[i] = dgram.Message{Buf: room[i*2048:][:2048]}
		}
		n, err := c.ReadBatch(ms)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		for i := range ms[:n] {
			ms[i] = dgram.Message{Buf: ms[i].Buf[:ms[i].N], Addr: ms[i].Addr}
		}
		c.WriteBatch(ms[:n])
	}
}
