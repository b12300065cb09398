package relay

import (
	"bytes"
	"net/netip"
	"slices"
	"sync"

	"github.com/penstock/penstock/internal/sys"
)

// datagramPort is a loop's view of a datagram listener: a socket that all clients
// share, and the flows that came by it.
type datagramPort struct {
	datagrams *datagrams
	listener  *Listener
	address   *portAddress
	*listenSocket
	index    int // of the listener's ports
	number   int // of the loop's sources
	family   sys.Family
	name     string // while flows are restored: the listener's address
	wild     bool   // bound to no address: each datagram has the one that it was sent to
	draining bool   // new clients are refused
	attached bool   // it is among the sources of the loop, and may have flows
	dirty    bool   // in datagrams.dirty
	flows    map[datagramKey]*datagramFlow
	several  map[datagramKey][]*Flow    // those of addresses that have more than one; flows has one of them
	named    map[namedKey]*datagramFlow // flows that share the address of a proxy, instead
	paths    map[string]*datagramFlow   // of a Unix port, instead
	recent   *datagramFlow              // the flow that the last message was of
	drops    uint32                     // SO_RXQ_OVFL's last reading
	out      outbox                     // replies
	answers  answerTimes
	blocked  []ref // flows that are not read while the socket is full

	// While it closes; see portState.
	state   portState
	drains  bool            // it was stopped because the engine drains
	refused bool            // a flow could not have a socket of its own
	given   int             // sockets that were given to flows
	owned   int             // flows that have one
	joined  bool            // one of them may be in the group of the port's
	strays  int             // datagrams that other loops are asked about
	stopped *sync.WaitGroup // done when it receives nothing more
}

// A UDP port whose listener closes, or whose engine drains, takes no new clients, and its flows go on: each
// gets a socket of its own, which is connected to its client. Whoever else writes to the address reaches the
// socket of another process that has the port, or is told at once that nobody is there (ICMP port
// unreachable). The port's socket sends the replies of all flows on, and receives nothing more.
//
//	open ──stop──▶ giving ──▶ closed ──no flow is left──▶ gone
//	  ▲               │
//	  └───────────────┘ no flow can have a socket of its own, and the engine drains
//
// While it is giving, the port receives as before, and who is new still begins a flow, which gets its socket at
// once. The port's socket receives nothing from one moment to the next, and what it has received by then is
// relayed. So each datagram reaches somebody, and those of a flow reach nobody else.
//
// Others may have sockets that are bound to the same address (SO_REUSEPORT). The kernel chooses among them by a
// hash and by their number. So a flow's own socket is in another group if that is possible, and the port's stays
// in its group until it is closed: then nobody's datagrams change sockets because of either.
//
// Unix and inherited sockets are different, and so are those whose flows cannot have their own. While the engine
// drains, they take new clients until Drain returns, because nobody else does: nobody can bind the name of a Unix
// socket while it is there, and whoever has passed a socket on starts the next process when this one has ended. If
// their listener closes, their flows end.
type portState uint8

const (
	portOpen portState = iota
	portGiving
	portClosed
	portGone
)

// datagramKey names a flow of a port: the client's address as the kernel wrote it,
// and the local address.
type datagramKey struct {
	name  [28]byte
	local [16]byte
}

// namedKey is datagramKey for clients that share the address of a proxy.
type namedKey struct {
	datagramKey
	client, to netip.AddrPort
}

func (p *datagramPort) loop() int { return p.datagrams.loop.Index }

func (p *datagramPort) socket() *listenSocket { return p.listenSocket }

func (p *datagramPort) key(name []byte, local netip.Addr) (k datagramKey) {
	copy(k.name[:], name)
	if p.wild && local.IsValid() {
		k.local = local.As16()
	}
	return k
}

func (p *datagramPort) namedKey(name []byte, local netip.Addr, client, to netip.AddrPort) namedKey {
	return namedKey{p.key(name, local), client, to}
}

func (p *datagramPort) namedKeyOf(f *datagramFlow) namedKey {
	n := &f.settings.name
	return p.namedKey(f.name[:f.nameLen], f.localAddr, n.client, n.to)
}

// named reports whether a proxy has named the flow's client.
func (f *datagramFlow) named() bool { return f.settings != nil && f.settings.name.is }

// shares reports whether other clients share the address from which the flow's datagrams come.
func (f *datagramFlow) shares() bool { return f.settings != nil && f.settings.name.each }

// find returns the flow of a client and a local address, or nil.
func (d *datagrams) find(p *datagramPort, name []byte, local netip.Addr) *datagramFlow {
	if p.family == sys.Unix {
		return p.paths[string(name)]
	}
	return p.flows[p.key(name, local)]
}

// matches reports whether f is the flow of a client and a local address.
func (f *datagramFlow) matches(name []byte, local netip.Addr) bool {
	if f.port.family == sys.Unix {
		return f.path == string(name)
	}
	return bytes.Equal(f.name[:f.nameLen], name) && (!f.port.wild || f.localAddr == local)
}

// put adds a flow to the port's table.
func (p *datagramPort) put(f *datagramFlow) {
	switch {
	case p.family == sys.Unix:
		p.paths[f.path] = f
	case f.shares():
		if p.named == nil {
			p.named = make(map[namedKey]*datagramFlow)
		}
		p.named[p.namedKeyOf(f)] = f
	default:
		k := p.key(f.name[:f.nameLen], f.localAddr)
		if first := p.flows[k]; first != nil {
			p.join(k, first, f)
			return
		}
		p.flows[k] = f
	}
}

// join adds a flow to those of an address that has one.
func (p *datagramPort) join(k datagramKey, first, f *datagramFlow) {
	if p.several == nil {
		p.several = make(map[datagramKey][]*Flow)
	}
	if first.address != addressSeveral {
		first.address = addressSeveral
		p.several[k] = []*Flow{&first.Flow}
	}
	f.address = addressSeveral
	p.several[k] = append(p.several[k], &f.Flow)
}

// get returns the flow that the port's table has in the place of f, or nil: there is none, or f may join it.
func (p *datagramPort) get(f *datagramFlow) *datagramFlow {
	switch {
	case p.family == sys.Unix:
		return p.paths[f.path]
	case f.shares():
		return p.named[p.namedKeyOf(f)]
	}
	first := p.flows[p.key(f.name[:f.nameLen], f.localAddr)]
	switch {
	case f.address == addressSeveral:
		return f
	case first != nil && first != f && first.divided() && f.divided():
		return nil
	}
	return first
}

// live returns how many addresses have flows; of a Unix port, which is not closed as others are, 0.
func (p *datagramPort) live() int { return len(p.flows) + len(p.named) }

// remove removes a flow from the port's table, if it is there.
func (p *datagramPort) remove(f *datagramFlow) {
	switch {
	case p.get(f) != f:
	case p.family == sys.Unix:
		delete(p.paths, f.path)
	case f.shares():
		delete(p.named, p.namedKeyOf(f))
	default:
		k := p.key(f.name[:f.nameLen], f.localAddr)
		if f.address != addressSeveral {
			delete(p.flows, k)
			break
		}
		p.part(k, f)
	}
	if p.recent == f {
		p.recent = nil
	}
}

// part removes a flow from those of an address that has several.
func (p *datagramPort) part(k datagramKey, f *datagramFlow) {
	f.address = addressDivided
	rest := slices.DeleteFunc(p.several[k], func(o *Flow) bool { return o == &f.Flow })
	first := p.datagrams.of(rest[0])
	p.flows[k] = first
	p.several[k] = rest
	if len(rest) == 1 {
		first.address = addressDivided
		delete(p.several, k)
	}
}

// siblings returns the flows of the address of f, which has several; nil: it has no other one.
func (p *datagramPort) siblings(f *datagramFlow) []*Flow {
	if f.address != addressSeveral {
		return nil
	}
	return p.several[p.key(f.name[:f.nameLen], f.localAddr)]
}

// clientName returns the client's address as the kernel wrote it.
func (f *datagramFlow) clientName() []byte {
	if f.port.family == sys.Unix {
		return []byte(f.path)
	}
	return f.name[:f.nameLen]
}

// returnable reports whether a reply can be sent to name: an IP address and a port that is not 0.
func returnable(name []byte) bool {
	ap, _ := sys.GetAddrPort(name)
	return ap.Port() != 0
}

// checkEmpty tells the end of the turn to let go of a port that is closed, if it has no flow.
func (d *datagrams) checkEmpty(p *datagramPort) {
	if p.state == portClosed && p.live() == 0 {
		d.empty = append(d.empty, p)
	}
}

// readDrops asks the kernel how many datagrams a port has lost.
func (d *datagrams) readDrops(p *datagramPort) {
	if n, e := sys.Drops(d.shared.kernel, p.fd); e == 0 {
		d.lost(&p.drops, n)
	}
}

func (d *datagrams) readAllDrops() {
	for _, p := range d.ports {
		d.readDrops(p)
	}
}

// lost counts what the kernel dropped since a socket's last reading.
func (d *datagrams) lost(last *uint32, now uint32) {
	if more := int32(now - *last); more > 0 {
		d.stats.Lost += int64(more)
		*last = now
	}
}
