package simkernel

import (
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// TimedOut is what a connect fails with that nobody answers.
const TimedOut = syscall.ETIMEDOUT

// World is what all processes share: the clock, the network, and the sockets in it.
type World struct {
	// Slow keeps what sockets have sent, and resets, in flight until [World.Deliver]. Otherwise all arrives at once.
	Slow bool
	// KernelTLS says that sockets can have kTLS.
	KernelTLS bool
	// SlowConnects keeps TCP sockets that connect waiting until [World.Answer]. Otherwise only those wait whose listener's queue is full.
	SlowConnects bool
	// SendBuffer and ReceiveBuffer are the sizes of the buffers of new sockets, in bytes. PipeFragment is how many bytes a slot of a
	// pipe takes at most.
	SendBuffer, ReceiveBuffer, PipeFragment int
	// GramSendBuffer and GramReceiveBuffer are those of new datagram sockets. GramQueue is how many datagrams wait in the queue of a
	// Unix one before others cannot send to it: net.unix.max_dgram_qlen. GramPorts is how many ports there are to be chosen from.
	GramSendBuffer, GramReceiveBuffer, GramQueue int
	GramPorts                                    uint16
	// GramBufferMost is how large a process may make the buffers of a datagram socket: net.core.rmem_max; 0: as large as it likes.
	GramBufferMost int
	// PairBuffer is the size of the buffers of the sockets of [Process.NewPair]. FlyingMost is how many descriptors may be on their way
	// before no more can be sent: RLIMIT_NOFILE of whoever sends; 0: any number.
	PairBuffer, FlyingMost int
	// Joins has datagrams that come one by one joined, as GRO does behind a network card, and not on the loopback interface.
	Joins bool
	// Lost is called for each datagram that nobody will get; it may be nil.
	Lost func(b []byte)
	// NoRoute returns why this host has no route to an address for UDP: ENETUNREACH, or as the type of a route says (ip-route(8)) EHOSTUNREACH
	// (unreachable), EACCES (prohibit) or EINVAL (blackhole); 0: there is one. If it is nil there are all.
	NoRoute func(to netip.AddrPort) sys.Errno
	// Told is called when a connected UDP socket, whose address is local, is told of an ICMP message; it may be nil.
	Told func(local netip.AddrPort, e sys.Errno)
	// Wipe makes memory that processes have shared what it was before they had it, so that others can have it; nil: the kernel gets it back.
	Wipe func(b []byte)
	// Trace, if it is not nil, is called for each call that a process makes which can fail, with how many bytes it can move.
	Trace func(call Call, n int)
	// Limit is how many descriptors a process may have that has no other limit.
	Limit int

	memory     *memory
	regions    []*file // that have shared memory, and some that have none any more
	start      time.Time
	now        time.Duration
	listeners  map[netip.AddrPort][]*tcpSocket
	paths      map[string]*unixSocket // Unix sockets that are bound
	port       uint16
	grams      map[uint16][]*gram // bound sockets of UDP, by port
	gramPort   uint16
	packets    []*packet // of UDP that are in flight
	unixNames  map[string]*gram
	autobound  int
	flying     int          // descriptors that are on their way
	sockets    int          // that were made
	connecting []*tcpSocket // those that wait for an answer, and some that do not any more
	inFlight   []*tcpSocket // those that have something to deliver, the one that began first in front
}

// New returns a world without processes.
func New() *World {
	return &World{
		SendBuffer: 128 << 10, ReceiveBuffer: 128 << 10, PipeFragment: 16 << 10, Limit: 1 << 16,
		GramSendBuffer: 212992, GramReceiveBuffer: 212992, GramQueue: 10, GramPorts: 28232, PairBuffer: 212992,
		memory: memories.Get().(*memory), start: someStart(), listeners: make(map[netip.AddrPort][]*tcpSocket), paths: make(map[string]*unixSocket), port: 32768,
		grams: make(map[uint16][]*gram), unixNames: make(map[string]*gram),
	}
}

// someStart returns a time at which the monotonic clock has no low bits, so that what rounds it does the same in each run.
func someStart() time.Time {
	now := time.Now()
	return now.Add(-time.Duration(sys.MonotonicAt(now) % (1 << 36)))
}

// Now returns the time, with a monotonic reading.
func (w *World) Now() time.Time { return w.start.Add(w.now) }

// Elapsed returns the time since New.
func (w *World) Elapsed() time.Duration { return w.now }

// Sleep lets time pass.
func (w *World) Sleep(d time.Duration) { w.now += d }

// InFlight returns how many sockets have sent something that can be delivered, or have a reset in flight towards them.
func (w *World) InFlight() (n int) {
	for _, s := range w.inFlight {
		if s.deliverable() {
			n++
		}
	}
	return n
}

// Deliver lets up to most bytes arrive that one of the sockets has sent, the one with number i of those that InFlight has counted, and
// the end of its stream if that comes next. A reset that is in flight towards the socket arrives instead.
func (w *World) Deliver(i, most int) {
	for _, s := range w.inFlight {
		if !s.deliverable() {
			continue
		}
		if i == 0 {
			s.deliver(most)
			return
		}
		i--
	}
}

// Connecting returns how many TCP sockets wait to be connected.
func (w *World) Connecting() int {
	w.connecting = slices.DeleteFunc(w.connecting, func(s *tcpSocket) bool { return s.state != sys.TCPSynSent })
	return len(w.connecting)
}

// Answer answers one of them, number i, as its listener does: it is connected, is refused because nobody listens, or waits on
// because the queue is full. With an error, it fails with that.
func (w *World) Answer(i int, e sys.Errno) {
	if w.Connecting() <= i {
		return
	}
	s := w.connecting[i]
	if e == 0 {
		s.meet()
		return
	}
	s.reset()
	s.err = e
}

// Unaccepted returns the numbers of the clients that nobody has accepted yet at an address: see [Process.Number].
func (w *World) Unaccepted(at *sys.Sockaddr) (clients []int) {
	for _, l := range w.listeners[at.AddrPort()] {
		for _, c := range l.clients {
			clients = append(clients, c.origin)
		}
	}
	if l := w.paths[at.UnixPath()]; l != nil {
		for _, c := range l.clients {
			clients = append(clients, c.peer.number)
		}
	}
	return clients
}

// sent is called when a socket has something to deliver.
func (w *World) sent(s *tcpSocket) {
	if !w.Slow {
		for s.deliverable() {
			s.deliver(1 << 30)
		}
	}
	if s.undelivered() && !s.queued {
		s.queued = true
		w.inFlight = append(w.inFlight, s)
	}
}

// delivered is called when a socket has nothing left to deliver.
func (w *World) delivered(s *tcpSocket) {
	if !s.queued {
		return
	}
	s.queued = false
	for i, other := range w.inFlight {
		if other == s {
			w.inFlight = append(w.inFlight[:i], w.inFlight[i+1:]...)
			return
		}
	}
}

// freePort returns a port of an address that nobody has.
func (w *World) freePort() uint16 {
	w.port++
	if w.port < 32768 {
		w.port = 32768
	}
	return w.port
}
