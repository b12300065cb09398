package simkernel

import (
	"net/netip"

	"github.com/penstock/penstock/internal/sys"
)

// gram is a datagram socket: of UDP, see udp_linux.go, or a Unix one, see unixgram_linux.go.
type gram struct {
	w      *World
	file   *file
	family sys.Family

	queue    []*packet
	received int    // memory of what is in queue
	unsent   int    // memory of what it has sent and is in flight, or of a Unix socket: is not read yet
	drops    uint32 // for want of memory
	blocked  bool   // somebody waits until it can be written to: SOCKWQ_ASYNC_NOSPACE
	dead     bool   // nobody has it any more
	err      sys.Errno

	sendBuffer, receiveBuffer int
	options                   map[[2]int]int

	// UDP.
	v6Only bool
	local  netip.AddrPort // IPv4 in IPv6 is unmapped
	remote netip.AddrPort // not valid: it is not connected
	group  *gramGroup     // nil: it shares its port with nobody

	// Unix.
	name      string // as the kernel writes it, without the family
	peer      *gram
	shutdown  bool
	wakesWith []*gram // that wait until there is room in queue: unix_dgram_peer_wake_me
}

// packet is a datagram, or several of one size, of which the last may be shorter.
type packet struct {
	from, to netip.AddrPort
	sender   *gram
	name     string // of the sender, if it is a Unix socket
	b        []byte
	segment  int // size of its datagrams; 0: it is one
	tos      uint8
	dropped  uint32 // by the receiver before it came
	joined   int    // packets that came one by one
}

// memory is what a packet counts in its socket's buffer: about skb->truesize.
func (p *packet) memory() int { return 768 + (len(p.b)+511)&^511 }

// split returns the datagrams of a packet, one by one.
func (p *packet) split() (all []*packet) {
	for b := p.b; len(b) > 0; {
		n := min(p.segment, len(b))
		one := *p
		one.b, one.segment = b[:n], 0
		all = append(all, &one)
		b = b[n:]
	}
	return all
}

func (w *World) newGram(family sys.Family) *gram {
	return &gram{w: w, family: family, sendBuffer: w.GramSendBuffer, receiveBuffer: w.GramReceiveBuffer, options: make(map[[2]int]int)}
}

func newGramFile(g *gram) *file {
	f := &file{refs: 1, gram: g}
	g.file = f
	return f
}

func (g *gram) wake(key uint32) {
	if g.file != nil {
		g.file.wake(key)
	}
}

// fail is an error that is told once, by whatever is called next.
func (g *gram) fail(e sys.Errno) {
	g.err = e
	g.wake(sys.Err)
}

func (g *gram) takeError() sys.Errno {
	e := g.err
	g.err = 0
	return e
}

// writable is sock_writeable, or unix_writable.
func (g *gram) writable() bool {
	if g.family == sys.Unix {
		return g.unsent<<2 <= g.sendBuffer
	}
	return g.unsent < g.sendBuffer/2
}

// freed is called when what a socket has sent is not its own memory any more.
func (g *gram) freed(n int) {
	if g.unsent -= n; g.writable() {
		g.wake(sys.Out)
	}
}

// poll is datagram_poll and unix_dgram_poll.
func (g *gram) poll() (mask uint32) {
	if g.err != 0 {
		mask |= sys.Err
	}
	if g.shutdown {
		mask |= sys.In | sys.RdHup | sys.Hup
	}
	if len(g.queue) > 0 {
		mask |= sys.In
	}
	writable := g.writable()
	if writable && g.peer != nil && g.peer.full(g) && !g.peer.dead {
		g.peer.wakeLater(g)
		writable = false
	}
	if writable {
		mask |= sys.Out
	} else {
		g.blocked = true
	}
	return mask
}

// set sets an option.
func (g *gram) set(level, name, value int) sys.Errno {
	if most := g.w.GramBufferMost; most > 0 {
		if sys.PrivilegedSend.Is(level, name) || sys.PrivilegedReceive.Is(level, name) {
			return sys.EPERM
		}
		if sys.SendBuffer.Is(level, name) || sys.ReceiveBuffer.Is(level, name) {
			value = min(value, most)
		}
	}
	switch {
	case sys.SendBuffer.Is(level, name), sys.PrivilegedSend.Is(level, name):
		g.sendBuffer = max(2*value, 4608) // SOCK_MIN_SNDBUF
		return 0
	case sys.ReceiveBuffer.Is(level, name), sys.PrivilegedReceive.Is(level, name):
		g.receiveBuffer = max(2*value, 2304) // SOCK_MIN_RCVBUF
		return 0
	}
	g.options[[2]int{level, name}] = value
	return 0
}

func (g *gram) has(o sys.Option) bool {
	for k, v := range g.options {
		if o.Is(k[0], k[1]) {
			return v != 0
		}
	}
	return false
}

// option reads an option.
func (g *gram) option(level, name int) int {
	switch {
	case sys.Domain.Is(level, name):
		return int(g.family)
	case sys.SocketType.Is(level, name):
		return sys.SockDgram
	case sys.SendBuffer.Is(level, name):
		return g.sendBuffer
	case sys.ReceiveBuffer.Is(level, name):
		return g.receiveBuffer
	case sys.PendingError.Is(level, name):
		return int(g.takeError())
	}
	return g.options[[2]int{level, name}]
}

// enqueue puts a packet into the queue, or drops it if there is no memory for it: __udp_enqueue_schedule_skb.
func (g *gram) enqueue(p *packet) {
	if g.received > 0 && g.received+p.memory() > g.receiveBuffer {
		g.drops++
		g.w.lost(p)
		return
	}
	p.dropped = g.drops
	if !g.join(p) {
		g.queue = append(g.queue, p)
		g.received += p.memory()
	}
	g.wake(sys.In)
}

// join adds a packet to the last one of the queue, as a network card's driver does that passes several at a time.
func (g *gram) join(p *packet) bool {
	const most = 64 // UDP_GRO_CNT_MAX
	if !g.w.Joins || len(g.queue) == 0 || !g.has(sys.GRO) || p.segment != 0 {
		return false
	}
	last := g.queue[len(g.queue)-1]
	size := last.segment
	if size == 0 {
		size = len(last.b)
	}
	switch {
	case last.from != p.from, last.to != p.to, last.tos != p.tos, last.dropped != p.dropped, len(p.b) == 0, len(p.b) > size,
		len(last.b)%size != 0, last.joined == 0 && last.segment != 0, last.joined+1 >= most, len(last.b)+len(p.b) > 65535-28:
		return false
	}
	g.received -= last.memory()
	last.b, last.segment, last.joined = append(last.b[:len(last.b):len(last.b)], p.b...), size, max(1, last.joined)+1
	g.received += last.memory()
	return true
}

// next takes the next packet.
func (g *gram) next() (*packet, sys.Errno) {
	if e := g.takeError(); e != 0 {
		return nil, e
	}
	if len(g.queue) == 0 {
		return nil, sys.EAGAIN
	}
	return g.first(), 0
}

// first takes the first packet, which is there.
func (g *gram) first() *packet {
	p := g.queue[0]
	g.queue = g.queue[1:]
	g.received -= p.memory()
	if g.family == sys.Unix {
		for _, other := range g.wakesWith {
			other.wake(sys.Out)
		}
		g.wakesWith = nil
		p.sender.freed(p.memory())
	}
	return p
}

// close is called when nobody has the socket any more.
func (g *gram) close() {
	g.dead, g.file = true, nil
	if g.family == sys.Unix {
		g.closeUnix()
	} else {
		g.unbind()
	}
	for _, p := range g.queue {
		g.w.lost(p)
	}
	g.queue, g.received = nil, 0
}

// lost tells of a packet that nobody will get.
func (w *World) lost(p *packet) {
	if w.Lost == nil {
		return
	}
	if p.segment == 0 {
		w.Lost(p.b)
		return
	}
	for _, one := range p.split() {
		w.Lost(one.b)
	}
}

// Datagrams calls have for each datagram that is in flight or, queued, in a socket's queue.
func (w *World) Datagrams(have func(b []byte, queued bool)) {
	queued := false
	each := func(all []*packet) {
		for _, p := range all {
			if p.segment == 0 {
				have(p.b, queued)
				continue
			}
			for b := p.b; len(b) > 0; {
				n := min(p.segment, len(b))
				have(b[:n], queued)
				b = b[n:]
			}
		}
	}
	each(w.packets)
	queued = true
	for _, all := range w.grams {
		for _, g := range all {
			each(g.queue)
		}
	}
	for _, g := range w.unixNames {
		each(g.queue)
	}
}

// fly keeps a packet in flight, or lets it arrive at once.
func (w *World) fly(p *packet) {
	if !w.Slow {
		p.sender.freed(0) // skb_orphan
		w.arrive(p)
		return
	}
	p.sender.unsent += p.memory()
	w.packets = append(w.packets, p)
}

// PacketsInFlight returns how many datagrams of UDP, or GSO runs, are in flight.
func (w *World) PacketsInFlight() int { return len(w.packets) }

// DeliverPacket lets a packet arrive that is in flight, which is the first one that has the source and the destination of number i.
func (w *World) DeliverPacket(i int) {
	p := w.takePacket(i)
	p.sender.freed(p.memory())
	w.arrive(p)
}

// LosePacket loses it instead.
func (w *World) LosePacket(i int) {
	p := w.takePacket(i)
	w.lost(p)
	p.sender.freed(p.memory())
}

func (w *World) takePacket(i int) *packet {
	p := w.packets[i]
	for j, q := range w.packets[:i] {
		if q.from == p.from && q.to == p.to {
			i, p = j, q
			break
		}
	}
	w.packets = append(w.packets[:i:i], w.packets[i+1:]...)
	return p
}
