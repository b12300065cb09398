package relay

import (
	"bytes"
	"net/netip"
	"strconv"

	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
)

// dgramPort is a loop's view of a datagram listener: a socket that all clients
// share, and the flows that came by it.
type dgramPort struct {
	listener *Listener
	dgrams   *dgrams // nil until the loop has it
	fd       int
	index    int // in dgrams.ports
	family   sys.Family
	wild     bool // bound to no address: each datagram tells which one it came to
	draining bool // nobody new is let in
	dirty    bool // in dgrams.dirty
	in       *sys.Vector
	flows    map[dgramKey]*session
	paths    map[string]*session // of a Unix port, instead
	recent   *session            // the flow that the last message was of
	drops    uint32              // SO_RXQ_OVFL's last reading
	out      outbox              // replies
	answers  answerTimes
	parked   []ref // flows that are not read while the socket is full
}

// dgramKey names a flow of a port: the client's address as the kernel wrote it,
// and the local address.
type dgramKey struct {
	name  [28]byte
	local [16]byte
}

func (p *dgramPort) token() uint64 { return sessionBit | uint64(p.index) }

// listen begins to receive from a port.
func (d *dgrams) listen(p *dgramPort) {
	p.dgrams = d
	p.index = len(d.ports)
	for i, q := range d.ports {
		if q == nil {
			p.index = i
			break
		}
	}
	if p.index == len(d.ports) {
		d.ports = append(d.ports, nil)
	}
	d.ports[p.index] = p
	p.in = sys.NewVector(dgramBatch, dgramBatch, p.family)
	for i, b := range d.buffers {
		p.in.SetBuf(i, b)
	}
	p.out.init(d, p.family)
	p.out.own(p)
	if p.family == sys.Unix {
		p.paths = make(map[string]*session)
	} else {
		p.flows = make(map[dgramKey]*session)
	}
	sys.EpollAdd(d.loop.epoll, p.fd, sys.In, p.token())
}

// unlisten ends a port and its flows: they have no other socket to their clients.
func (d *dgrams) unlisten(p *dgramPort) {
	if p.dgrams != d || d.ports[p.index] != p {
		return
	}
	d.sessions.each(func(s *session) {
		if s.port == p {
			d.end(s, CauseClosed, nil)
		}
	})
	d.readDrops(p)
	d.ports[p.index] = nil
	sys.EpollDel(d.loop.epoll, p.fd) // somebody else may have the socket too
	d.loop.env.Kernel.Close(p.fd)
}

// readDrops asks the kernel what a port has lost.
func (d *dgrams) readDrops(p *dgramPort) {
	if n, e := sys.Drops(uintptr(p.fd)); e == 0 {
		d.lost(&p.drops, n)
	}
}

func (d *dgrams) readAllDrops() {
	if d == nil {
		return
	}
	for _, p := range d.ports {
		if p != nil {
			d.readDrops(p)
		}
	}
}

// lost counts what the kernel dropped since a socket's last reading.
func (d *dgrams) lost(last *uint32, now uint32) {
	if more := int32(now - *last); more > 0 {
		d.stats.Lost += int64(more)
		*last = now
	}
}

func (d *dgrams) portEvent(p *dgramPort, ev uint32) {
	if ev&sys.Out != 0 && p.out.blocked {
		d.unblock(p)
	}
	if ev&(sys.In|sys.Err|sys.Hup) != 0 {
		d.receive(p)
	}
}

// receive takes datagrams from clients, groups them by flow, and lets each
// flow send what it got. The order within a flow is kept.
func (d *dgrams) receive(p *dgramPort) {
	kernel := d.loop.env.Kernel
	for range dgramRounds {
		n, e := kernel.RecvBatch(p.fd, p.family, p.in, 0, dgramBatch)
		if e != 0 {
			return // EAGAIN, or an error that this call has taken from the socket
		}
		d.stats.ReadCalls++
		for i := range n {
			d.take(p, i)
		}
		for _, s := range d.touched {
			d.forward(s)
		}
		clear(d.touched)
		d.touched = d.touched[:0]
		d.back.flush() // the memory of the echoes is about to be used again
		p.in.Rearm(0, n)
		if n < dgramBatch {
			return
		}
	}
	d.unread = true
}

// take gives message i of the batch at hand to its flow, which may be new.
func (d *dgrams) take(p *dgramPort, i int) {
	n, flags, name, control := p.in.Received(i)
	var c sys.Control
	if len(control) > 0 {
		c = sys.ParseControl(control)
		if c.HasDrops {
			d.lost(&p.drops, c.Drops)
		}
	}
	m := &d.batch[i]
	*m = message{b: d.buffers[i][:min(n, dgramSize)], next: -1}
	count := 1
	if c.Segment > 0 && c.Segment < n {
		m.seg = c.Segment
		count = segment.Count(n, c.Segment)
		d.stats.SuperPackets++
	}
	d.stats.Received += int64(count)
	d.loop.stats.BytesRead += int64(len(m.b))
	if flags&sys.MsgTrunc != 0 {
		d.drop(nil, toB, DropTruncated, len(m.b), count)
		return
	}
	s := p.recent
	if s == nil || !s.is(name, c.Local) {
		if s = d.find(p, name, c.Local); s == nil {
			s = d.begin(p, name, &c, len(m.b), count)
			if s == nil {
				return
			}
		}
		p.recent = s
	}
	s.moved[toB].read += int64(len(m.b))
	if d.exceeds(s, toB, len(m.b)) {
		d.drop(s, toB, DropLimited, len(m.b), count)
		return
	}
	if s.first < 0 {
		s.first = int16(i)
		d.touched = append(d.touched, s)
	} else {
		d.batch[s.last].next = int16(i)
	}
	s.last = int16(i)
}

// is tells whether s is the flow of a client and a local address.
func (s *session) is(name []byte, local netip.Addr) bool {
	if s.port.family == sys.Unix {
		return s.path == string(name)
	}
	return bytes.Equal(s.name[:s.nameLen], name) && (!s.port.wild || s.local == local)
}

// find looks a flow up; nil: there is none.
func (d *dgrams) find(p *dgramPort, name []byte, local netip.Addr) *session {
	if p.family == sys.Unix {
		return p.paths[string(name)]
	}
	return p.flows[p.key(name, local)]
}

func (p *dgramPort) key(name []byte, local netip.Addr) (k dgramKey) {
	copy(k.name[:], name)
	if p.wild && local.IsValid() {
		k.local = local.As16()
	}
	return k
}

// forward sends a flow's messages of the batch on.
func (d *dgrams) forward(s *session) {
	if s.first < 0 {
		return // it has ended meanwhile
	}
	s.active = d.loop.now
	d.age(s).touch(s)
	i := s.first
	s.first = -1
	if s.builtin() {
		for ; i >= 0; i = d.batch[i].next {
			d.inside(s, d.batch[i].b, d.batch[i].seg)
		}
		return
	}
	ref := s.ref()
	for ; i >= 0; i = d.batch[i].next {
		m := &d.batch[i]
		if s.gen != ref.gen || !s.open {
			d.drop(nil, toB, DropEnded, len(m.b), segment.Count(len(m.b), m.seg))
			continue
		}
		d.up.add(s, m.b, m.seg)
	}
	d.up.flush()
}

// inside is the upstream that is built in.
func (d *dgrams) inside(s *session, b []byte, seg int) {
	count := segment.Count(len(b), seg)
	m := &s.moved[toB]
	m.written += int64(len(b))
	m.grams += int64(count)
	s.requests += int64(count)
	s.why[toB] = WhyBuiltin
	d.loop.stats.BytesWritten += int64(len(b))
	d.stats.Sent += int64(count)
	if !s.echo {
		return
	}
	m = &s.moved[toA]
	m.read += int64(len(b))
	d.loop.stats.BytesRead += int64(len(b))
	d.stats.Received += int64(count)
	d.answer(s, count)
	if d.back.port != s.port {
		d.back.flush()
		d.back.port = s.port
	}
	d.back.add(s, b, seg)
}

// drop counts a message that was read and is not delivered; s may be nil.
func (d *dgrams) drop(s *session, dir int, why Drop, n, count int) {
	d.stats.Dropped[why] += int64(count)
	d.loop.stats.BytesDropped += int64(n)
	if s != nil {
		s.moved[dir].lost += int64(count)
	}
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
