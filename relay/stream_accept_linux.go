package relay

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// streamPort is a loop's view of a stream listener: a socket of its own, or one
// that the ports of all loops share.
//
//	watched ─▶ closing ─▶ closed
//	 │  ▲
//	 ▼  │
//	resting
type streamPort struct {
	streams  *streams
	listener *Listener
	fd       int
	number   int             // of the loop's sources, while it is not closing
	until    time.Duration   // closing: when those who still wait are given up
	closed   *sync.WaitGroup // closing: told at its end
}

func (p *streamPort) socket() int { return p.fd }

func (p *streamPort) change(next, old *ListenConfig) error {
	if next.Backlog == old.Backlog {
		return nil
	}
	if e := sys.Relisten(p.fd, next.Backlog); e != 0 {
		return fmt.Errorf("listen: %w", e)
	}
	return nil
}

func (p *streamPort) start() {
	p.streams.loop.post(request{do: func() { p.streams.listen(p) }})
}

func (p *streamPort) stop(_ bool, wg *sync.WaitGroup) {
	wg.Add(1)
	if !p.streams.loop.post(request{do: func() { p.streams.unlisten(p, wg) }}) {
		wg.Done()
	}
}

// event is called when clients wait.
func (p *streamPort) event(uint32) { p.streams.accept(p) }

// arrival is a client that one loop has accepted and gives to another one.
type arrival struct {
	listener *Listener
	fd       int            // the new loop owns it
	peer     netip.AddrPort // not valid on Unix
}

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
func (s *streams) listen(p *streamPort) {
	p.number = s.loop.addSource(p)
	s.ports = append(s.ports, p)
	if s.resting == 0 {
		s.watchPort(p)
	}
}

func (s *streams) watchPort(p *streamPort) {
	events := uint32(sys.In)
	if p.listener.shared >= 0 {
		events |= sys.Exclusive
	}
	s.loop.watch(p.fd, events, sourceToken(p.number))
}

// unlisten has a port take the clients that wait, and then closes it and tells wg.
func (s *streams) unlisten(p *streamPort, wg *sync.WaitGroup) {
	s.loop.removeSource(p.number)
	s.ports = slices.DeleteFunc(s.ports, func(q *streamPort) bool { return q == p })
	if s.resting == 0 {
		s.loop.unwatch(p.fd)
	}
	p.until, p.closed = s.loop.now+acceptLast, wg
	s.closingPorts = append(s.closingPorts, p)
}

// turnClosing gives each port that closes a burst, and lets go of those that
// nobody waits at any more.
func (s *streams) turnClosing() {
	for i := 0; i < len(s.closingPorts); {
		p := s.closingPorts[i]
		if s.loop.now < p.until && (s.resting > 0 || s.goesOn(p)) {
			i++
			continue
		}
		s.closingPorts = slices.Delete(s.closingPorts, i, i+1)
		s.closePort(p)
	}
}

// goesOn takes a burst from a port that closes; true: it is to be looked at again.
func (s *streams) goesOn(p *streamPort) bool {
	switch s.accept(p) {
	case acceptMore, acceptStarved:
		return true
	}
	return false
}

// giveUp makes this turn the last of ports that close.
func (s *streams) giveUp() {
	for _, p := range s.closingPorts {
		p.until = s.loop.now
	}
}

func (s *streams) closePort(p *streamPort) {
	if ln := p.listener; ln.shared < 0 || ln.open.Add(-1) == 0 {
		s.env.Kernel.Close(p.fd)
	}
	p.closed.Done()
	s.loop.quieten()
}

// accept takes a burst of clients.
func (s *streams) accept(p *streamPort) accepting {
	if p.listener.inherited {
		sys.SetNonblock(p.fd) // again: whoever bound it shares the description
	}
	failed := 0
	for range acceptBurst {
		if s.share.starved.Load() > 0 {
			s.restPorts()
			return acceptStarved
		}
		fd, e := s.env.Kernel.Accept(p.fd, &s.address)
		switch e {
		case 0:
			s.place(p.listener, fd)
		case sys.EAGAIN:
			return acceptNone
		case sys.EMFILE, sys.ENFILE, sys.ENOBUFS, sys.ENOMEM:
			s.loop.stats.AcceptErrors++
			if s.loop.spareDescriptor() {
				continue
			}
			s.loop.stats.AcceptPauses++
			s.restPorts()
			return acceptStarved
		default:
			// The connection failed before it was accepted: accept(2) says to
			// go on to the next one. A listener that gives nothing else is
			// broken, and must not make the loop spin.
			s.loop.stats.AcceptErrors++
			failed++
		}
	}
	if failed == acceptBurst {
		s.loop.stats.AcceptPauses++
		s.restPorts()
		return acceptBroken
	}
	return acceptMore
}

// place begins a client's flow on this loop, or on one that has fewer flows:
// of a socket that all loops accept from, the kernel wakes the same one again and
// again while that is idle, EPOLLEXCLUSIVE notwithstanding.
func (s *streams) place(ln *Listener, fd int) {
	var peer netip.AddrPort
	if ln.addr.Network == TCP {
		peer = s.address.AddrPort()
	}
	if ln.shared >= 0 {
		own := s.load.Load()
		to, least := s, own-own/8 // a small difference is not worth waking another loop
		for _, other := range s.share.all {
			if n := other.load.Load(); n < least {
				to, least = other, n
			}
		}
		if to != s {
			to.load.Add(1)
			a := s.share.arrivals.Get()
			*a = arrival{ln, fd, peer}
			if to.loop.post(request{to: to, arg: a}) {
				return
			}
			*a = arrival{}
			s.share.arrivals.Put(a)
			to.load.Add(-1)
		}
	}
	s.load.Add(1)
	s.accepted(ln, fd, peer)
}

// request takes over a client or a pair, or resumes a flow.
func (s *streams) request(r *request) {
	switch x := r.arg.(type) {
	case *arrival:
		s.accepted(x.listener, x.fd, x.peer)
		*x = arrival{}
		s.share.arrivals.Put(x)
	case *adoption:
		s.adopt(x)
		*x = adoption{}
		s.share.adoptions.Put(x)
	default:
		s.resume(r.ref)
	}
}

// accepted starts the life of a client's flow. The loop owns fd. peer is not
// valid on Unix.
func (s *streams) accepted(from *Listener, fd int, peer netip.AddrPort) {
	f := s.newFlow(streamAdmitting, fd, -1)
	f.inherit(from)
	f.done = f.cfg.Hooks.Done
	f.tcp[sideClient] = from.addr.Network == TCP
	f.peer = peer
	s.loop.stats.Accepted++
	if e := s.watch(f, sideClient); e != 0 {
		s.end(f, CauseNoDescriptors, e)
		return
	}
	if admit := f.cfg.Hooks.Admit; admit != nil {
		if c := admit(&f.Flow); c != CauseNone {
			s.end(f, c.or(CauseRefused), nil)
			return
		}
	}
	if x := f.early; x != nil && x.most > 0 {
		f.state = streamSniffing
		s.rearm(f)
		return
	}
	f.state = streamConnecting
	s.connect(f)
}

// restPorts keeps a full descriptor table from turning the loop into a
// spin: nothing is accepted until a flow has ended, or a while has passed.
func (s *streams) restPorts() {
	if s.resting > 0 {
		return
	}
	s.resting = s.loop.now + s.share.rest
	s.rests.Store(true)
	s.share.resting.Add(1)
	for _, p := range s.ports {
		s.loop.unwatch(p.fd)
	}
}

// wakePorts accepts again.
func (s *streams) wakePorts() {
	if s.resting == 0 {
		return
	}
	s.resting = 0
	s.feed = true
	s.rests.Store(false)
	s.share.resting.Add(-1)
	for _, p := range s.ports {
		s.watchPort(p)
	}
}

// freed is called when a descriptor has become free. All loops use the same
// table: one whose ports rest is woken wherever that was.
func (s *streams) freed() {
	if s.share.resting.Load() == 0 {
		return
	}
	s.wakePorts()
	for _, other := range s.share.all {
		if other != s && other.rests.CompareAndSwap(true, false) {
			other.loop.post(request{do: other.wakePorts})
		}
	}
}
