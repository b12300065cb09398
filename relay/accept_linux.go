package relay

import (
	"net/netip"
	"slices"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

const (
	// acceptBurst is how many clients are accepted from one listener before
	// flows have their turn.
	acceptBurst = 32
	// acceptRest is how long a listener rests that found no descriptor or memory left.
	acceptRest = 50 * time.Millisecond
	// acceptLast bounds how long a listener that closes takes clients: those who
	// wait in its queue, while descriptors are short or others still come.
	acceptLast = 5 * time.Second
)

// accepting is what a burst came to.
type accepting uint8

const (
	acceptMore    accepting = iota // there may be more clients
	acceptNone                     // there are none
	acceptStarved                  // no descriptor or memory is left
	acceptBroken                   // the listener gives nothing but errors
)

// listen begins to accept from a port.
func (l *loop) listen(p *port) {
	p.index = len(l.ports)
	for i, q := range l.ports {
		if q == nil {
			p.index = i
			break
		}
	}
	if p.index == len(l.ports) {
		l.ports = append(l.ports, nil)
	}
	l.ports[p.index] = p
	if l.resting == 0 {
		l.watchPort(p)
	}
}

func (l *loop) watchPort(p *port) {
	events := uint32(sys.In)
	if p.listener.shared >= 0 {
		events |= sys.Exclusive
	}
	sys.EpollAdd(l.epoll, p.fd, events, portToken(p.index))
}

// unlisten has a port take the clients that wait, and then closes it.
func (l *loop) unlisten(m *letter) {
	p := m.port
	l.ports[p.index] = nil
	if l.resting == 0 {
		sys.EpollDel(l.epoll, p.fd)
	}
	p.until, p.closed = l.now+acceptLast, m.wg
	m.wg = nil
	l.closingPorts = append(l.closingPorts, p)
}

// turnClosing gives each port that closes a burst, and lets go of those that
// nobody waits at any more.
func (l *loop) turnClosing() {
	for i := 0; i < len(l.closingPorts); {
		p := l.closingPorts[i]
		if l.now < p.until && (l.resting > 0 || l.goesOn(p)) {
			i++
			continue
		}
		l.closingPorts = slices.Delete(l.closingPorts, i, i+1)
		l.closePort(p)
	}
}

// goesOn takes a burst from a port that closes; true: it is to be looked at again.
func (l *loop) goesOn(p *port) bool {
	switch l.accept(p) {
	case acceptMore, acceptStarved:
		return true
	}
	return false
}

// giveUp makes this turn the last of ports that close.
func (l *loop) giveUp() {
	for _, p := range l.closingPorts {
		p.until = l.now
	}
}

func (l *loop) closePort(p *port) {
	if ln := p.listener; ln.shared < 0 || ln.open.Add(-1) == 0 {
		l.env.Kernel.Close(p.fd)
	}
	if p.closed != nil {
		p.closed.Done()
	}
	l.quieten()
}

// accept takes a burst of clients.
func (l *loop) accept(p *port) accepting {
	if p.listener.inherited {
		sys.SetNonblock(p.fd) // again: whoever bound it shares the description
	}
	failed := 0
	for range acceptBurst {
		if l.engine.starved.Load() > 0 {
			l.restListeners()
			return acceptStarved
		}
		fd, e := l.env.Kernel.Accept(p.fd, &l.peer)
		switch e {
		case 0:
			l.place(p.listener, fd)
		case sys.EAGAIN:
			return acceptNone
		case sys.EMFILE, sys.ENFILE, sys.ENOBUFS, sys.ENOMEM:
			l.stats.AcceptErrors++
			if l.dgrams.spareRest() {
				continue
			}
			l.stats.AcceptPauses++
			l.restListeners()
			return acceptStarved
		default:
			// The connection failed before it was accepted: accept(2) says to
			// go on to the next one. A listener that gives nothing else is
			// broken, and must not make the loop spin.
			l.stats.AcceptErrors++
			failed++
		}
	}
	if failed == acceptBurst {
		l.stats.AcceptPauses++
		l.restListeners()
		return acceptBroken
	}
	return acceptMore
}

// place begins a client's flow on this loop, or on one that has fewer flows:
// of a socket that all loops accept from, the kernel wakes the same one again and
// again while that is idle, EPOLLEXCLUSIVE notwithstanding.
func (l *loop) place(ln *Listener, fd int) {
	var peer netip.AddrPort
	if ln.addr.Network == TCP {
		peer = l.peer.AddrPort()
	}
	if ln.shared >= 0 {
		own := l.load.Load()
		to, least := l, own-own/8 // a small difference is not worth waking another loop
		for _, other := range l.engine.loops {
			if n := other.load.Load(); n < least {
				to, least = other, n
			}
		}
		if to != l {
			to.load.Add(1)
			if to.post(letter{kind: letterAccepted, from: ln, fd: [2]int{fd}, peer: peer}) {
				return
			}
			to.load.Add(-1)
		}
	}
	l.load.Add(1)
	l.accepted(ln, fd, peer)
}

// restListeners keeps a full descriptor table from turning the loop into a
// spin: nothing is accepted until a flow has ended, or a while has passed.
func (l *loop) restListeners() {
	if l.resting > 0 {
		return
	}
	l.resting = l.now + l.engine.rest
	l.rests.Store(true)
	l.engine.resting.Add(1)
	for _, p := range l.ports {
		if p != nil {
			sys.EpollDel(l.epoll, p.fd)
		}
	}
}

// wakeListeners accepts again.
func (l *loop) wakeListeners() {
	if l.resting == 0 {
		return
	}
	l.resting = 0
	l.feed = true
	l.rests.Store(false)
	l.engine.resting.Add(-1)
	for _, p := range l.ports {
		if p != nil {
			l.watchPort(p)
		}
	}
}

// wakeResting is called when a descriptor has become free. All loops use the
// same table: one that rests is woken wherever that was.
func (l *loop) wakeResting() {
	if l.engine.resting.Load() == 0 {
		return
	}
	l.wakeListeners()
	for _, other := range l.engine.loops {
		if other != l && other.rests.CompareAndSwap(true, false) {
			other.post(letter{kind: letterWake})
		}
	}
}

// quieten tells those who drain that this loop has nothing left, if that is so.
func (l *loop) quieten() {
	if l.draining && len(l.closingPorts) == 0 && l.slab.live+l.dgrams.live() == 0 {
		l.engine.quieten()
	}
}
