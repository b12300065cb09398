// Package relay is an engine that owns sockets and relays between them. It runs
// one event loop per CPU, each with its own epoll instance, listeners, timers and
// flows. The data path takes no locks, starts no goroutines and does not allocate.
//
// There are two ways to use an engine. [Engine.Listen] accepts clients, asks
// [Hooks] where each should go, connects there and relays. [Engine.Relay] takes
// over two connections that a Go program already has.
//
// A stream flow has two directions: up, from the client to the upstream, and down.
// Each direction copies small messages through user space and splices large
// amounts of data through a pipe. The end of a direction is passed on after its
// last byte, and a reset is passed on as a reset. When a flow has ended, Done is
// called with its [Record].
//
// TCP's urgent byte (tcp(7), MSG_OOB) is not relayed, unless a later urgent byte
// has taken its place: a program that reads the stream does not receive it
// either. It counts as neither read nor dropped. The bytes after it are relayed.
//
// A datagram flow (networks UDP and Unixgram) is one client's address and the
// local address that the client writes to; see [DatagramConfig]. Datagrams that
// arrive together are sent together, in GSO runs where the route allows them.
//
// The TLS of a client can end here ([Flow.Terminate]), and TLS to an upstream begin
// here ([Flow.Originate]). Otherwise TLS is relayed as it is. Where a protocol agrees on TLS
// before it begins, [Flow.Reply] and [Flow.Expect] say the words.
//
// An idle flow needs a few hundred bytes of memory, and one with TLS a few thousand. If the reader of a direction
// is slow, the engine holds at most 64 KiB in user space or one full pipe for it,
// and stops reading from the writer. While a client is sniffed, at most as many
// bytes are held as [Flow.StartSniff] asks for.
//
// What few programs need lies in packages whose APIs may change: what an engine has counted in
// relay/stats, flows that outlive their process in relay/hold, and what to do while memory is short in
// relay/overload.
//
// The engine runs on Linux. On other systems [New] returns [errors.ErrUnsupported].
package relay

import (
	"crypto/tls"
	"errors"
	"net/netip"
	"time"

	"github.com/penstock/penstock/relay/hold"
)

// Config configures an engine. The zero value is ready to use. Negative values are
// errors unless a field says otherwise.
type Config struct {
	// Loops is the number of event loops, at most 256; 0 means runtime.GOMAXPROCS(0). With
	// flows of an earlier process (see Keep) there are as many as those need, and fewer
	// than this if another one cannot be made.
	Loops int

	// Dedicated lets each loop keep a P (of the Go scheduler) while it is busy, which
	// saves about a tenth of the CPU time for small messages. The program should then
	// run with GOMAXPROCS one above Loops. Otherwise a loop gives its P to other
	// goroutines whenever it waits.
	Dedicated bool

	// MaxPipes is the maximum number of open pipes, which have two descriptors each,
	// and is at most 262,144; 0 means 256. A direction that finds no free pipe copies.
	// A negative value switches splicing off.
	MaxPipes int

	// PipeSize is the capacity of each pipe in bytes; 0 means 1 MiB.
	PipeSize int

	// LowWaterMark is the SO_RCVLOWAT (socket(7)), in bytes, of a TCP socket while
	// bulk data arrives on it: the kernel does not wake the loop for less, and the loop
	// looks for less after about a millisecond. 0 means 192 KiB; 1 and negative values
	// switch it off.
	LowWaterMark int

	// User is the user ID that the process will have when it has given up being root; 0
	// means the one that it has. The sockets of listeners, also those that were held for it,
	// belong to that user from the start, as far as the process may change that, so that
	// sockets which it makes later, and other processes that become the same user, may share
	// their ports (SO_REUSEPORT in socket(7)). If the process stays root, it must be 0: see
	// sandbox.CanBecome.
	User int

	// NoGSO sends and NoGRO receives each datagram separately. Some kernels corrupt
	// runs of datagrams without an error (docs/kernel.md).
	NoGSO, NoGRO bool

	// MaxDatagramFlows is the maximum number of datagram flows of all loops, which
	// have one descriptor each; 0 means three quarters of the limit on descriptors,
	// as that changes. At the maximum, a new flow replaces another one: the
	// one that has been silent longest among those that have waited for an answer for
	// more than twice as long as answers take; otherwise, while answered flows have at
	// least half of the places, the answered flow that has been silent longest, if it is
	// not in use. A flow that was answered once is in use for twice as long as its answer
	// took, 250 ms at least; one whose client has gone on after an answer, or whose upstream
	// has sent more than it was asked for, is in use for 5 seconds after each datagram. If
	// there is neither, the datagrams of the new client are dropped as stats.DropNoRoom. A flow
	// of another loop makes room, too, but for a later datagram of the new client.
	MaxDatagramFlows int

	// MaxNewDatagramFlows is the maximum number of datagram flows that each loop begins
	// per second; 0 means 16,384, and a negative value means no limit. Datagrams of new
	// clients beyond it are dropped as stats.DropLimited.
	//
	// Unless it is negative, a loop that falls behind with its datagrams begins only as many as
	// a third of the time allows that its other work has left, so that a flood of datagrams
	// from ever new, perhaps forged, addresses leaves time for existing flows. Half of
	// that third is for clients of networks (an IPv4 /24, an IPv6 /48) that are known from
	// flows that went back and forth, and networks that have begun less lately come first.
	// stats.Datagrams.Crowded counts the others.
	MaxNewDatagramFlows int

	// MaxHandshakes is the maximum number of TLS handshakes that each loop has under way; 0 means
	// 4096. Each needs about 30 KiB. The others wait, as long as Timeouts.Handshake allows.
	MaxHandshakes int

	// Keep has flows outlive the process; if it is nil, they end with it.
	Keep *hold.Keep
}

// Timeouts are the timeouts of a flow, accurate to about a tenth of a second. Only
// Idle and Life apply to datagram flows.
type Timeouts struct {
	// Connect limits each attempt to connect to an upstream, with its answer to [Flow.Expect]; 0
	// means 5 seconds.
	Connect time.Duration
	// Idle ends a flow when no byte, and no end of a stream, has moved in either
	// direction for this long. 0 means never for a stream and 60 seconds
	// for a datagram flow; a negative value means never.
	Idle time.Duration
	// HalfClosed ends a flow when one side has ended and the other has moved no byte
	// for this long since then; 0 means 60 seconds, and a negative
	// value means never.
	HalfClosed time.Duration
	// FirstByte ends a flow when its upstream has sent nothing for this long since it
	// was connected; 0 means never.
	FirstByte time.Duration
	// Life ends a flow this long after it began; 0 means never.
	Life time.Duration
	// Handshake limits a TLS handshake, the client's or one with an upstream; 0 means
	// 10 seconds.
	Handshake time.Duration
	// Queue ends a flow that has been queued by [Flow.Queue] for this long in total; 0
	// means 30 seconds, and a negative value means never.
	Queue time.Duration
}

// Defaults of [Timeouts] and of [Flow.StartSniff].
const (
	defaultConnect    = 5 * time.Second
	defaultHalfClosed = 60 * time.Second
	defaultQueue      = 30 * time.Second
	defaultSniff      = 5 * time.Second
	defaultHandshake  = 10 * time.Second
)

// SocketOptions are options of a listener's socket, which accepted sockets
// inherit, or of sockets towards upstreams. A zero value leaves the kernel's
// default, except that TCP_NODELAY is set. RecvBuffer and SendBuffer apply to all
// sockets; Mark, DSCP, Interface and Transparent to TCP and UDP sockets; the others
// to TCP sockets only. If an option cannot be set, the error names it.
type SocketOptions struct {
	// Nagle leaves Nagle's algorithm on; see TCP_NODELAY in tcp(7).
	Nagle bool
	// KeepAlive is how long a peer may be silent before it is probed, in whole
	// seconds; 0 means no probes. See TCP_KEEPIDLE in tcp(7).
	KeepAlive time.Duration
	// KeepAliveInterval and KeepAliveCount are TCP_KEEPINTVL and TCP_KEEPCNT; 0 leaves
	// the kernel's default.
	KeepAliveInterval time.Duration
	KeepAliveCount    int
	// UserTimeout ends a connection whose peer has not acknowledged sent data for this
	// long; see TCP_USER_TIMEOUT in tcp(7).
	UserTimeout time.Duration
	// RecvBuffer and SendBuffer are SO_RCVBUF and SO_SNDBUF in bytes. For TCP the
	// kernel's automatic sizing is usually better. The send buffer of a Unix socket,
	// which has no automatic sizing, is enlarged when a spliced stream outgrows it,
	// unless SendBuffer is set.
	RecvBuffer, SendBuffer int
	// Congestion is the name of the congestion control algorithm, one of
	// net.ipv4.tcp_available_congestion_control; see TCP_CONGESTION in tcp(7).
	Congestion string
	// FastOpen above 0 allows data in the SYN (RFC 7413), where net.ipv4.tcp_fastopen
	// does. On a listener it is the maximum number of clients that have sent data and
	// not yet completed the handshake. Towards an upstream whose cookie is known, the
	// connection counts as made before anything has been sent, and the first bytes of
	// the client open it. So it is for protocols in which the client speaks first, and
	// a failure to connect ends the flow instead of leading to the next attempt.
	FastOpen int
	// MPTCP uses Multipath TCP (RFC 8684) with peers that support it, and TCP with
	// others or if the kernel does not support it. Up to Linux 6.18 the kernel copies
	// the bytes of a Multipath TCP socket when they are spliced. Options that the
	// kernel does not support on such a socket are left out.
	//
	// Under heavy load, Linux 6.18 was seen to lose bytes of such connections without
	// an error: about once in 2,000 connections of 64 MiB. See docs/kernel.md. Do not
	// use MPTCP for a protocol that cannot find this out.
	MPTCP bool
	// DSCP is the differentiated services code point of packets, 1 to 63 (RFC 2474).
	// The ECN bits are left as they are. See IP_TOS in ip(7), IPV6_TCLASS in ipv6(7).
	DSCP uint8
	// Mark is the mark for routing rules and packet filters. It needs CAP_NET_ADMIN.
	// See SO_MARK in socket(7).
	Mark uint32
	// Interface is the device that packets must use; see SO_BINDTODEVICE in socket(7).
	Interface string
	// Transparent accepts connections to addresses that are not this host's, or
	// connects from such an address. It needs CAP_NET_ADMIN, and routing that brings
	// the packets here (Documentation/networking/tproxy in the kernel's source). On UDP
	// the port that the client writes to must be the listener's. See IP_TRANSPARENT in
	// ip(7). On TCP, [Flow.Local] is then what the client has connected to, also where
	// netfilter's REDIRECT or DNAT brings it here.
	Transparent bool
}

// DialConfig configures how to connect to upstreams.
type DialConfig struct {
	Socket SocketOptions
	// Source lists the addresses to connect from, which each loop uses in turn; if it
	// is empty, the kernel chooses. Addresses of another family than the upstream's
	// are skipped, and an attempt for which none is left fails. Each source address has
	// the ports of net.ipv4.ip_local_port_range, about 28,000 by default, for each
	// upstream on TCP and in total on UDP.
	Source []netip.Addr
	// FromClient connects from the address that [Flow.Client] returns, with a port
	// that the kernel chooses. It implies Socket.Transparent.
	FromClient bool
	// PrefaceEach puts what [Flow.Preface] has added in front of each datagram of a
	// datagram flow, instead of the first one only.
	PrefaceEach bool
}

// PairConfig configures the flow of a pair of connections given to [Engine.Relay].
// The zero value is ready to use.
type PairConfig struct {
	Timeouts Timeouts // Connect and Queue are not used
	// Done, if not nil, is called on the flow's loop when the flow has ended. It must
	// not block. The record is valid during the call.
	Done func(*Record)
	// Value is the Value of the flow's record.
	Value any
	// Name says what to do with the pair in the next process, if the engine has
	// Config.Keep: it is given to RestoreConfig.Pair, with what Encode encodes. A pair
	// without a name ends with its process.
	Name   string
	Encode func(*hold.Encoder)
}

// ListenConfig configures a listener and its flows. Hooks.Upstream is required.
type ListenConfig struct {
	Hooks    Hooks
	Timeouts Timeouts
	Socket   SocketOptions // of the listener and of accepted sockets
	// Dial configures how to connect to upstreams, unless [Flow.SetDial] does. If it is
	// nil, upstream sockets have the options of Socket, except for FastOpen, Interface
	// and Transparent. The value that Dial points to must not change.
	Dial *DialConfig
	// Datagram is for UDP and Unixgram listeners.
	Datagram DatagramConfig
	// Backlog is the maximum number of connections that wait to be accepted; 0 means
	// the kernel's maximum, net.core.somaxconn.
	Backlog int
	// Mode holds the permission bits of a Unix socket's path; 0 means those that the
	// umask leaves.
	Mode uint32
	// Paused binds and listens but does not accept until an Update without it. The
	// kernel queues clients meanwhile.
	Paused bool
	// Value is for the use of hooks; see [Listener.Value].
	Value any
}

// ErrStage is wrapped by the errors of methods of Flow that are for certain hooks only,
// when they are called elsewhere. The text says which method, where, and where it works.
var ErrStage = errors.New("relay: called in a hook in which it has no effect")

// Hooks are called at the stages of a flow. They run on event loops, several at a
// time but never two for one flow, and must not block. A *Flow is valid during the
// call only.
type Hooks struct {
	// Admit, if not nil, is called for each new client. CauseNone admits the client;
	// any other cause refuses it and is the flow's cause. CauseEnd and values that are
	// not a Cause count as [CauseRefused].
	Admit func(*Flow) Cause

	// Sniff is called with the first bytes from the client of a stream, or with its first
	// datagrams, if Admit has called [Flow.StartSniff], which documents it. Package
	// clienthello parses what a TLS client sends, package quichello what a QUIC client does.
	Sniff func(f *Flow, b []byte, last bool) (take int, next SniffNext)

	// Choose, if not nil, tells connections apart that come from one address and port of a client, as those of QUIC may: it
	// is called with each datagram b from an address that has flows of a UDP listener, and returns the one of them to which b
	// belongs; nil begins another flow, for which Admit and Sniff are called before Choose is again. The order of the flows
	// has no meaning. An address has at most 16. flows and b are valid during the call and must not be written to. It is called once
	// with a datagram for which it returns a flow, and may be called again with one for which it returns nil, also on other loops, with the
	// flows that the address has there. It is not called for what proxies send (DatagramConfig.Origin).
	Choose func(flows []*Flow, b []byte) *Flow

	// Upstream returns the address to connect to. It is called with attempt 0, and
	// after each failure with the next number. If it returns nil, the flow ends with
	// [CauseNoUpstream], or is queued if Upstream has called [Flow.Queue]. The address
	// is kept until the flow ends and must not change. The zero Addr, and one of a network
	// that does not carry what the client sends, is a mistake that ends the flow with
	// CauseNoUpstream; Record.Err says so. So is a path that is too long for a Unix socket.
	//
	// The first eight attempts follow each other at once. Before each later one of a
	// stream there is a pause of 64 ms to a second, in which the flow ends with
	// [CauseClientGone] if its client ends its side. After 32 attempts the flow ends
	// with [CauseNoUpstream]; a datagram flow does so after eight attempts that failed
	// at once, but not for want of a route. Of a datagram flow, Upstream may call [Flow.Preface], and return the address that
	// the flow has: see [UnreachableNext]. While it has no route, it is asked at most once a second.
	Upstream func(f *Flow, attempt int) *Addr

	// Connected, if not nil, is called after each attempt to connect; a built-in upstream
	// of a stream needs none. The error is nil,
	// the system call's error, or os.ErrDeadlineExceeded. If it is nil, Connected of a
	// stream may call [Flow.Preface]. The upstream of a datagram flow counts as connected when its
	// first answer arrives; took is then [Record.FirstByte]. That this host has no route to it any more
	// is an [os.SyscallError] of "send", and took is 0; ICMP messages are the error alone.
	Connected func(f *Flow, to *Addr, took time.Duration, err error)

	// Answered, if not nil, is called when an upstream has answered as [Flow.Expect] says; took is the time
	// since the attempt began. If [Flow.Originate] was called too, Secured is called instead. If the upstream has
	// not answered like that, the error says why, an [AnswerError], the system call's error, or
	// os.ErrDeadlineExceeded, and the flow goes on to the next upstream as after a failed attempt to connect.
	//
	// Of a datagram flow whose client Sniff goes on seeing, as [Flow.StartSniff] says, Answered is called with each datagram b of the
	// upstream, which is valid during the call and must not be written to, until it returns false. It holds nothing up. Otherwise b
	// is nil, and the result has no meaning.
	Answered func(f *Flow, b []byte, took time.Duration, err error) (more bool)

	// Secured, if not nil, is called when a TLS handshake has ended, that of the client
	// after [Flow.Terminate], or that with an upstream after [Flow.Originate]; took is how
	// long it took. If it failed, state is nil and the error says why: the flow then ends
	// with [CauseClientTLS], or goes on to the next upstream as after a failed attempt to
	// connect. Otherwise CauseNone lets the flow go on; any other cause ends it. A client
	// that ends its connection during the handshake ends the flow with [CauseClientGone].
	Secured func(f *Flow, side Side, state *tls.ConnectionState, took time.Duration, err error) Cause

	// Encode, if not nil, encodes what the hooks know of the flow, for a flow that
	// outlives its process (Config.Keep). It is called when the flow is settled, and
	// after [Flow.Changed]. If it encodes more than [hold.MaxEncoded] bytes, the flow is not
	// settled.
	Encode func(f *Flow, e *hold.Encoder)

	// Decode, if not nil, is called in the next process with what Encode has encoded,
	// before the flow goes on. It may set the flow's value, timeouts and client. If it
	// returns an error, the flow ends with [CauseCrashed].
	Decode func(f *Flow, d *hold.Decoder) error

	// Done, if not nil, is called exactly once for each accepted client, including
	// those that Admit refused. The record is valid during the call.
	Done func(*Record)
}

// SniffNext is what to do after a call of Hooks.Sniff.
type SniffNext uint8

// The results of Hooks.Sniff.
const (
	SniffMore   SniffNext = iota // call Sniff again when there are more bytes
	SniffDone                    // go on to Hooks.Upstream
	SniffRefuse                  // end the flow with CauseRefused
)
