package relay

import (
	"time"

	"github.com/penstock/penstock/relay/origin"
)

// datagramIdle is the default of Timeouts.Idle for datagram flows, which have
// no end that could be seen.
const datagramIdle = 60 * time.Second

// DatagramConfig configures the flows of a UDP or Unixgram listener. The zero value is
// ready to use.
//
// A datagram flow is one client's address and the local address that the client
// writes to. It has a connected socket towards its upstream. Replies are sent from the
// address that the client writes to. Datagrams that arrive together are sent together,
// in GSO runs or at least in one system call.
//
// With [Config].Keep a flow outlives its process: it goes on with the same ports on both
// sides, and what waits in the queues of its sockets is delivered. What the process had
// received and not sent is lost, that is the datagrams of one turn of each loop and those
// held for upstreams whose sockets were full. They are counted as stats.DropCrashed in
// stats.Datagrams, and in the record as bytes that were read and not written.
//
// When the listener closes, or the engine drains, the flows of a UDP listener go on. Each
// gets a socket of its own, connected to its client, and the listener's receives nothing
// more: new clients reach the next process that has the port, or learn at once that nobody
// is there (ICMP port unreachable). At most 1,024 flows of an engine get one, those of
// verified clients first, because each makes it slower for the kernel to find the socket
// of another datagram to the same address. The others, and those for which there is no
// descriptor, go on with answers only (stats.Datagrams.AnswersOnly): what their clients
// send reaches the next process. What is sent to a broadcast or multicast address reaches
// it in any case. Where no flow can have a socket, because the process may not bind the
// port any more or the listener's sockets belong to another user (see Config.User), the
// listener takes new clients until Drain returns, and Close ends its flows.
//
// A flow needs about 500 bytes of memory. While the socket of its upstream is full it
// holds up to 128 KiB of datagrams; all flows of a loop together hold up to 32 MiB.
// Further datagrams are dropped and counted. So a full upstream delays only its own
// flow.
//
// The socket towards a UDP upstream has a random port, which the kernel chooses. When
// the flow has ended, the socket rests for 5 seconds: it keeps the port and nothing
// reads from it, so that a late reply cannot reach another flow. At most one descriptor
// in 2, and at most 8,192, belong to resting sockets. They are closed early when a
// flow needs a descriptor, and while fewer than one descriptor in 16 is free. When there
// are no ports, a new flow gets one that has been silent for a second, or its client is
// refused (stats.DropNoRoom). stats.Datagrams counts them.
type DatagramConfig struct {
	// Replies ends a flow when the upstream has sent this many replies to each datagram
	// of the client; 0 means never. DNS has 1.
	Replies int

	// Amplification limits what a client is sent before it is verified, to so many
	// times the bytes that came from it; what exceeds that is dropped as
	// stats.DropAmplification. A client is verified by a datagram that it sends after the first
	// reply was sent to it: whoever forges an address does not know of the reply. So an
	// upstream that answers a little with a lot does not serve to flood others. 0 means
	// no limit, because many protocols need more: an answer of DNS may be 30 times its
	// question, and a stream may follow a single datagram. QUIC has 3 (RFC 9000,
	// section 8.1).
	Amplification int

	// AmplificationAlways has Amplification limit verified clients, too, for as long as their
	// flows last. Whoever forges the address of one victim again and again is taken for
	// verified after the second datagram: nothing tells a datagram that is sent blindly
	// from one that follows a reply. It fits protocols whose sides send about as much as
	// each other, such as WireGuard and games.
	AmplificationAlways bool

	// OnUnreachable is what happens on an ICMP error that the kernel reports for the
	// connected socket of an upstream (udp(7)), such as port unreachable. "Fragmentation
	// needed" is not one of them: it is counted in stats.Datagrams, and the kernel
	// fragments long datagrams from then on. Clients never receive ICMP errors, because
	// that takes a raw socket.
	OnUnreachable UnreachableAction

	// TOS is what each datagram that is relayed keeps of the TOS byte (IPv4) or traffic
	// class (IPv6) with which it arrived, in both directions. It applies where both
	// sides are UDP; an upstream that is built in returns what came. Unix sockets have
	// no such byte: what comes from them counts as 0.
	TOS TOSAction

	// Origin, if not nil, says which senders of a UDP listener are proxies, and reads the headers by which they name
	// the clients of their datagrams. The named client is the flow's [Flow.Client], and the proxy its [Flow.Peer].
	// Where each datagram has a header, flows have no sockets of their own when their listener closes.
	Origin *origin.Config
}

// TOSAction is what becomes of the TOS byte or traffic class of datagrams: six bits of
// DSCP (RFC 2474) and two bits of ECN (RFC 3168).
type TOSAction uint8

// The actions.
const (
	// TOSNone leaves the byte to the socket that a datagram leaves by; see
	// SocketOptions.DSCP.
	TOSNone TOSAction = iota
	// TOSECN keeps the ECN bits, so that both ends learn of congestion on either side of
	// the relay. DSCP is that of the socket.
	TOSECN
	// TOSCopy keeps the byte as it is, whatever SocketOptions.DSCP says. So clients
	// choose the class of their datagrams on the way to upstreams.
	TOSCopy
)

// UnreachableAction is what happens to a datagram flow on an ICMP error of its
// upstream.
type UnreachableAction uint8

// The actions.
const (
	// UnreachableNext goes on to the next upstream that Hooks.Upstream returns, with
	// what the client sends from then on. If there is none, the flow ends with
	// [CauseUpstreamRefused]. Where this host has no route to the upstream, Upstream may
	// return its address again: the flow keeps its socket, and goes on when the route is
	// back; what the client sends until then is dropped. So it does if Upstream returns
	// eight others that cannot be reached, either; it is asked for more a second later.
	UnreachableNext UnreachableAction = iota
	// UnreachableEnd ends the flow with [CauseUpstreamRefused]. The client's next
	// datagram begins another one.
	UnreachableEnd
	// UnreachableIgnore counts the error.
	UnreachableIgnore
)
