package relay

import (
	"log/slog"
	"time"

	"github.com/penstock/penstock/internal/enum"
)

// DefaultDatagramIdle ends a datagram flow that has carried nothing for so long,
// where Timeouts.Idle is 0: nothing else tells when a datagram flow is over.
const DefaultDatagramIdle = 60 * time.Second

// DatagramConfig is about the flows of a UDP or Unixgram listener. Its zero value works.
//
// A datagram flow is one client's address and the local address that it wrote
// to, with a connected socket towards the upstream; replies leave from the
// address that the client wrote to. What arrives together is sent together: as
// GSO runs, or else with one system call.
//
// What one flow may hold in user-space memory: about 500 bytes while it
// moves, and up to 128 KiB while its upstream's socket is full, which all flows of
// a loop together do up to 32 MiB. Beyond either its datagrams are dropped
// and counted. So a full upstream delays nobody but its own flow.
//
// The socket towards a UDP upstream has a port that the kernel chooses at
// random. When the flow ends it keeps that port for another 5 seconds, unread,
// so that a late reply cannot reach the next flow: at most one descriptor in 8
// and 8,192 in all rest so ([DatagramStats.Resting]), and they give way to flows
// that need a descriptor or a port.
type DatagramConfig struct {
	// Replies ends a flow when the upstream has answered each datagram of the
	// client with so many; 0: never. DNS is 1.
	Replies int

	// OnUnreachable says what happens to the flow on an ICMP error of its upstream. The
	// kernel tells of port and protocol unreachable on a connected socket (udp(7)).
	// "Fragmentation needed" is routine and no such error: it is counted in
	// [DatagramStats.ICMP], and the kernel sends what is too long for the path in
	// fragments from then on. The client is not told: that takes a raw socket.
	OnUnreachable UnreachableAction
}

// UnreachableAction is what happens to a flow whose upstream answers with an ICMP
// error that says that nothing receives its datagrams.
type UnreachableAction uint8

// The actions.
const (
	// UnreachableNext goes on to the next upstream that Hooks.Upstream names,
	// with what the client sends from then on. A flow that finds none ends
	// with [CauseUpstreamRefused].
	UnreachableNext UnreachableAction = iota
	// UnreachableEnd ends the flow with [CauseUpstreamRefused]: the client's next datagram begins another.
	UnreachableEnd
	// UnreachableIgnore counts the error and goes on.
	UnreachableIgnore
)

// Drop is why a datagram was read and not delivered.
type Drop uint8

// The reasons.
const (
	DropFull        Drop = iota // the socket to send by was full for longer than the flow may hold datagrams
	DropTooBig                  // EMSGSIZE: longer than a datagram, or than the path allows
	DropFiltered                // EPERM: a packet filter of this host dropped it
	DropNoBuffers               // ENOBUFS, ENOMEM: the kernel or the device had no room
	DropUnreachable             // no route, or an ICMP error while it was sent
	DropFailed                  // another error of the send
	DropTruncated               // longer than the 65,536 bytes that are read
	DropNoReturn                // the client has no address that a reply could go to
	DropRefused                 // a new client's, whose flow did not come to be: refused by a hook, or no upstream
	DropLimited                 // a new client's, beyond Config.MaxNewDatagramFlows, or beyond Flow.SetBandwidth
	DropNoRoom                  // a new client's, with no descriptor or port left and nothing to evict
	DropDraining                // a new client's, while the engine drains
	DropEnded                   // held for an upstream, or behind one that failed, when the flow ended
	drops
)

var dropNames = [drops]string{"full", "too-big", "filtered", "no-buffers", "unreachable", "failed", "truncated", "no-return", "refused", "limited", "no-room",
	"draining", "ended"}

// String returns the reason's name, which is lower-case with hyphens, such as "too-big".
func (d Drop) String() string { return enum.Name(dropNames[:], d) }

// MarshalText returns the reason's name. The error is always nil.
func (d Drop) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText sets d to the reason of that name.
func (d *Drop) UnmarshalText(text []byte) error {
	return enum.Set(d, "reason of a drop", dropNames[:], text)
}

// LogValue returns the reason's name. It implements [slog.LogValuer].
func (d Drop) LogValue() slog.Value { return slog.StringValue(d.String()) }

// Drops is the number of values of Drop, the length of DatagramStats.Dropped.
const NumDrops = int(drops)

// DatagramStats are the counters of one loop's datagram flows, and its gauges.
// Once no flow is open: Received = Sent + the sum of Dropped.
type DatagramStats struct {
	Flows              int64           // gauge: flows that are open
	Begun              int64           // flows that began
	Received           int64           // datagrams, from either side
	Sent               int64           // datagrams, to either side
	Dropped            [NumDrops]int64 // datagrams that were read and not delivered, by Drop
	Lost               int64           // datagrams that the kernel dropped before they could be read (SO_RXQ_OVFL)
	Held               int64           // gauge: bytes that wait for full upstream sockets
	Resting            int64           // gauge: sockets towards upstreams that keep their port for late replies, after their flow
	RestingClosedEarly int64           // of those, closed before their time to make room
	ICMP               int64           // ICMP errors that upstreams' sockets told of
	ReadCalls          int64           // system calls that received something
	SuperPackets       int64           // messages received that held several datagrams (GRO)
	WriteCalls         int64           // system calls that sent
	Runs               int64           // messages sent that held several datagrams (GSO)
	Fallbacks          int64           // runs that a route refused, and that were sent again as single datagrams
}

func (s *DatagramStats) add(o *DatagramStats) {
	s.Flows += o.Flows
	s.Begun += o.Begun
	s.Received += o.Received
	s.Sent += o.Sent
	for i := range s.Dropped {
		s.Dropped[i] += o.Dropped[i]
	}
	s.Lost += o.Lost
	s.Held += o.Held
	s.Resting += o.Resting
	s.RestingClosedEarly += o.RestingClosedEarly
	s.ICMP += o.ICMP
	s.ReadCalls += o.ReadCalls
	s.SuperPackets += o.SuperPackets
	s.WriteCalls += o.WriteCalls
	s.Runs += o.Runs
	s.Fallbacks += o.Fallbacks
}
