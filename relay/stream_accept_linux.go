package relay

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
)

func (p *streamPort) change(next, old *ListenConfig) error {
	if next.Backlog == old.Backlog {
		return nil
	}
	if e := p.streams.shared.kernel.Listen(p.fd, next.Backlog); e != 0 {
		return fmt.Errorf("listen: %w", e)
	}
	return nil
}

func (p *streamPort) setUp(cfg *ListenConfig, was *SocketOptions) error {
	if err := p.listener.setOptions(p.fd, &cfg.Socket, was); err != nil {
		return err
	}
	if e := p.streams.shared.kernel.Listen(p.fd, cfg.Backlog); e != 0 {
		return fmt.Errorf("listen: %w", e)
	}
	return nil
}

func (p *streamPort) start() {
	p.streams.loop.Post(loop.Request{Do: func() { p.streams.listen(p) }})
}

func (p *streamPort) stop(_ stopCause, wg *sync.WaitGroup) {
	wg.Add(1)
	if !p.streams.loop.Post(loop.Request{Do: func() { p.streams.unlisten(p, wg) }}) {
		wg.Done()
	}
}

// Event is called when clients wait.
func (p *streamPort) Event(uint32) { p.streams.serve(p) }

const (
	// acceptBurst is how many clients are accepted from one listener before
	// flows have their turn.
	acceptBurst = 32
	// acceptPause is how long a loop is paused after an accept that failed for lack of a
	// descriptor or of memory.
	acceptPause = 50 * time.Millisecond
	// acceptLast bounds how long a closing listener accepts the clients in its queue:
	// descriptors may be short, and more clients may come.
	acceptLast = 5 * time.Second
)

// accepting is the result of a burst of accepts.
type accepting uint8

const (
	acceptMore   accepting = iota // there may be more clients
	acceptNone                    // there are none
	acceptShort                   // no descriptor or memory is left, or not enough for a flow
	acceptBroken                  // each accept failed
)

// listen begins to accept from a port.
func (s *streams) listen(p *streamPort) {
	p.number = s.loop.AddSource(p)
	s.ports = append(s.ports, p)
	if s.pause.until == 0 {
		s.watched(s.watchPort(p))
	}
}

// watched pauses the ports if one of them cannot be watched, because the kernel has no memory for it: they are tried again.
func (s *streams) watched(e sys.Errno) {
	if e != 0 {
		s.loopStats.AcceptPauses++
		s.pausePorts(false)
	}
}

func (s *streams) watchPort(p *streamPort) sys.Errno {
	if s.handing {
		return 0
	}
	events := uint32(sys.In)
	if p.shared != nil {
		events |= sys.Exclusive | sys.Edge // once, to one of the loops: see serve
	}
	return s.loop.Watch(p.fd, events, loop.SourceToken(p.number))
}

// stopAccepting leaves clients in the queues of the listeners, for the next process.
func (s *streams) stopAccepting() {
	if s.pause.until == 0 {
		for _, p := range s.ports {
			s.loop.Unwatch(p.fd)
		}
	}
	s.handing = true
}

// startAccepting undoes stopAccepting.
func (s *streams) startAccepting() {
	s.handing = false
	if s.pause.until == 0 {
		e := sys.Errno(0)
		for _, p := range s.ports {
			e = cmp.Or(e, s.watchPort(p))
		}
		s.watched(e)
	}
}

// unlisten closes a port as soon as the clients in its queue are accepted, and then calls
// wg.Done.
func (s *streams) unlisten(p *streamPort, wg *sync.WaitGroup) {
	s.loop.RemoveSource(p.number)
	s.ports = slices.DeleteFunc(s.ports, func(q *streamPort) bool { return q == p })
	if s.pause.until == 0 {
		s.loop.Unwatch(p.fd)
	}
	p.until, p.closed = s.loop.Now+acceptLast, wg
	s.closingPorts = append(s.closingPorts, p)
}

// turnClosing accepts a burst from each closing port, and closes those whose queues are
// empty.
func (s *streams) turnClosing() {
	for i := 0; i < len(s.closingPorts); {
		p := s.closingPorts[i]
		if s.loop.Now < p.until && (s.pause.until > 0 || s.acceptClosing(p)) {
			i++
			continue
		}
		s.closingPorts = slices.Delete(s.closingPorts, i, i+1)
		s.closePort(p)
	}
}

// acceptClosing accepts a burst from a closing port and reports whether more clients may
// be in its queue.
func (s *streams) acceptClosing(p *streamPort) bool {
	switch s.accept(p) {
	case acceptMore, acceptShort:
		return true
	}
	return false
}

// expireClosing makes this turn the last one of the closing ports.
func (s *streams) expireClosing() {
	for _, p := range s.closingPorts {
		p.until = s.loop.Now
	}
}

func (s *streams) closePort(p *streamPort) {
	if p.shared == nil || p.shared.open.Add(-1) == 0 {
		p.listener.closeSocket(p.listenSocket)
	}
	p.closed.Done()
	s.loop.CheckDrained()
}

// serve accepts clients from a port, a burst at a time.
//
// If all loops accept from one socket, the kernel keeps waking the same loop as long as that is idle,
// EPOLLEXCLUSIVE notwithstanding. So before each client, that loop calls another one which has fewer flows,
// and the client waits in the queue until the loop accepts it that serves it: a client that one loop had
// accepted for another would be lost with the process. One event tells one loop of all clients that have
// come. That loop, or the one that it has called, goes on until the queue is empty.
func (s *streams) serve(p *streamPort) {
	if s.accept(p) == acceptMore && p.shared != nil {
		p.call() // there is no event for those who still wait
	}
}

// pass calls a loop that has fewer flows and is not paused, if there is one.
func (s *streams) pass(p *streamPort) bool {
	own := s.load.Load()
	to, least := s, own-own/8 // a small difference is not worth waking another loop
	for _, other := range s.share.all {
		if n := other.load.Load(); n < least && !other.pause.asleep.Load() {
			to, least = other, n
		}
	}
	return to != s && p.shared.ports[to.loop.Index].call()
}

// call makes the port's loop serve the port. It reports false if that loop has ended.
func (p *streamPort) call() bool {
	if p.called.CompareAndSwap(false, true) && !p.streams.loop.Post(loop.Request{To: p.streams, Arg: p}) {
		p.called.Store(false)
		return false
	}
	return true
}

// answer serves a port after a call. One that is paused or closes finds its clients by itself.
func (s *streams) answer(p *streamPort) {
	p.called.Store(false) // before the queue is looked at, which whoever comes now is in
	if s.pause.until == 0 && !s.handing && slices.Contains(s.ports, p) {
		s.serve(p)
	}
}

// accept accepts a burst of clients.
func (s *streams) accept(p *streamPort) accepting {
	failed := 0
	for range acceptBurst {
		if s.share.short.flows.Load() > 0 || s.share.gate.Load() {
			s.pausePorts(false)
			return acceptShort
		}
		if p.shared != nil && p.closed == nil && s.pass(p) {
			return acceptNone // for this loop
		}
		if !s.takeClient() {
			if !sys.Readable(s.env.Kernel, p.fd) {
				return acceptNone // nobody waits
			}
			if !s.makeRoom() {
				s.loopStats.AcceptPauses++
				s.descriptors.budget.waits.Add(1)
				s.pausePorts(true)
				return acceptShort
			}
		}
		switch e := s.acceptOne(p); e {
		case 0:
		case sys.EAGAIN:
			return acceptNone
		case sys.EMFILE, sys.ENFILE, sys.ENOBUFS, sys.ENOMEM:
			s.loopStats.AcceptErrors++
			if s.loop.Spare() {
				continue
			}
			s.descriptors.budget.full(s.loop.Now)
			s.loopStats.AcceptPauses++
			s.pausePorts(false)
			return acceptShort
		default:
			// The connection failed before it was accepted; accept(2) says to
			// retry. A listener of which every accept fails must not make the
			// loop spin.
			s.loopStats.AcceptErrors++
			failed++
		}
	}
	if failed == acceptBurst {
		s.loopStats.AcceptPauses++
		s.pausePorts(false)
		return acceptBroken
	}
	return acceptMore
}

// acceptOne accepts a client, for whose flow descriptors were taken.
func (s *streams) acceptOne(p *streamPort) sys.Errno {
	if p.listener.inherited {
		s.env.Kernel.SetNonblock(p.fd) // again: whoever bound it shares the description
	}
	fd, e := s.env.Kernel.Accept(p.fd, &s.address)
	if e != 0 {
		s.descriptors.give(flowDescriptors)
		return e
	}
	s.descriptors.opened(1)
	s.load.Add(1)
	s.accepted(p.listener, fd)
	return 0
}

// accepted begins the flow of the client that was accepted last; it owns fd.
func (s *streams) accepted(from *Listener, fd int) {
	f := s.newFlow(streamAdmitting, fd, -1)
	f.reserved = flowDescriptors
	f.inherit(from)
	f.tcp[sideClient] = from.addr.Network == TCP
	f.straight = !from.multipath
	if f.tcp[sideClient] {
		f.peer = s.address.AddrPort()
	}
	s.loopStats.Accepted++
	if e := s.watch(f, sideClient); e != 0 {
		s.end(f, CauseNoDescriptors, e)
		return
	}
	if admit := f.cfg.Hooks.Admit; admit != nil {
		if c := admit(&f.Flow); c != CauseNone {
			s.turnAway(f, c.or(CauseRefused), nil)
			return
		}
	}
	if x := f.early; x != nil && x.most > 0 {
		f.state = streamSniffing
		s.rearm(f)
		return
	}
	if s.left(f) {
		s.end(f, CauseClientGone, nil)
		return
	}
	s.toUpstream(f)
}

// left reports whether the client has reset its connection while it waited to be accepted.
// That costs a system call, so only as long as some have done so lately.
func (s *streams) left(f *streamFlow) bool {
	if s.gone == 0 || !f.tcp[sideClient] {
		return false
	}
	s.gone--
	return sys.SockError(s.env.Kernel, int(f.fd[sideClient])) != 0
}
