// Package relay is an engine that owns sockets and carries many flows between
// them: event loops, one per CPU, each with its own epoll, listeners, timers and
// flows. On the data path it takes no lock, starts no goroutine and allocates
// nothing.
//
// There are two ways in. [Engine.Listen] accepts clients, asks [Hooks] where
// each should go, connects there and relays. [Engine.Relay] takes over two
// connections that a Go program already has.
//
// A stream flow is two directions. Each copies while messages are small and
// splices through a pipe while they are big, so that small messages never pay
// for a pipe and bulk never pays for a copy. The end of one direction is
// passed on after its last byte; a reset is passed on as a reset. At the end of
// each flow there is exactly one [Record].
//
// An urgent byte (tcp(7), MSG_OOB) is not part of a stream unless a later one has
// overtaken it: it is left out, as it is for a program that reads the socket and does
// not ask for it, and counts as neither read nor dropped. What follows it arrives.
//
// A datagram flow (networks UDP and Unixgram) is one client's address and the
// local address that it wrote to; see [DatagramConfig]. What arrives together leaves together, in
// GSO runs where the route takes them.
//
// Memory: a flow that is idle costs a few hundred bytes here. A stream whose
// reader is slow holds at most 64 KiB of user memory, or one pipe, in each
// direction, and its writer is not read from meanwhile. What [Flow.StartSniff] reads
// is held until there is an upstream, at most as much as it asks for.
//
// The engine runs on Linux. Elsewhere the package builds and [New] returns
// [errors.ErrUnsupported].
package relay

import (
	"errors"
	"net/netip"
	"time"
)

// Config says how an engine is built. Its zero value works. A negative value is
// an error of [New] where nothing else is said about it.
type Config struct {
	// Loops is the number of event loops, at most 256; 0 means runtime.GOMAXPROCS(0).
	Loops int

	// Dedicated tells the loops that they may keep a P (of the Go scheduler)
	// each while they are busy, which saves about a tenth of the CPU on small
	// messages. The program should then run with GOMAXPROCS one above Loops.
	// False is polite: a loop that waits gives its P to other goroutines.
	Dedicated bool

	// MaxPipes bounds how many pipes are open at once, two descriptors each, and is
	// at most 262,144; 0 means 256. Directions that find none left copy. Negative:
	// never splice.
	MaxPipes int

	// PipeSize is the room in each pipe, in bytes; 0 means 1 MiB.
	PipeSize int

	// LowWaterMark is the low-water mark (SO_RCVLOWAT, socket(7)) of a TCP source
	// while it streams, in bytes: the loop is not woken for less, and looks for
	// a tail below it after about a millisecond. 0 means 192 KiB; 1 or less
	// than 0 switches it off.
	LowWaterMark int

	// NoGSO sends each datagram by itself, NoGRO receives each by itself. Some
	// kernels corrupt runs of datagrams and say nothing (docs/kernel.md).
	NoGSO, NoGRO bool

	// MaxDatagramFlows bounds the datagram flows of all loops, each of which
	// has a descriptor; 0 means three quarters of the limit on descriptors at
	// New. At the bound a new flow takes the place of one on its loop: of the
	// one silent for longest among those that have waited for an answer twice
	// as long as answers take, or else among those that had one, as long as
	// these have half of the places. If there is no such flow its datagrams are
	// dropped, and counted as [DropNoRoom].
	MaxDatagramFlows int

	// MaxNewDatagramFlows bounds how many datagram flows each loop begins a second, so
	// that a flood from ever new, perhaps spoofed, addresses leaves time for the
	// flows that are there; 0 means 16,384, negative no bound. What is beyond is
	// dropped, and counted as [DropLimited].
	MaxNewDatagramFlows int
}

// Timeouts of a flow. All are checked to about a tenth of a second. For a
// datagram flow Idle and Life count.
type Timeouts struct {
	// Connect bounds each attempt to connect to an upstream; 0 means 5 s.
	Connect time.Duration
	// Idle ends a flow that has moved no byte either way, and has passed on no
	// end of a stream, for so long; 0 means never for a stream and
	// [DefaultDatagramIdle] for a datagram flow, negative never.
	Idle time.Duration
	// HalfClosed ends a flow of which one side has ended and the other has
	// moved no byte for so long since then; 0 means 60 s, negative never.
	HalfClosed time.Duration
	// FirstByte ends a flow whose upstream has sent nothing for so long since it
	// was connected; 0 means never.
	FirstByte time.Duration
	// Life ends a flow so long after it began, whatever it does; 0 means never.
	Life time.Duration
	// Queue ends a flow that [Flow.Queue] has queued for so long in all; 0 means 30 s,
	// negative never.
	Queue time.Duration
}

// The defaults of Timeouts, and of Flow.StartSniff's.
const (
	DefaultConnectTimeout    = 5 * time.Second
	DefaultHalfClosedTimeout = 60 * time.Second
	DefaultQueueTimeout      = 30 * time.Second
	DefaultSniffTimeout      = 5 * time.Second
)

// SocketOptions are set on a listener's socket, from which accepted ones
// inherit them, and on sockets towards upstreams. Zero values leave what the
// kernel does, TCP_NODELAY apart, which is on. Sockets of datagrams take the
// buffers, Mark, DSCP, Interface and Transparent, Unix ones the buffers only.
// An option that fails is an error that names it.
type SocketOptions struct {
	// Nagle leaves Nagle's algorithm on. tcp(7), TCP_NODELAY.
	Nagle bool
	// KeepAlive probes a peer that has been silent for so long; see tcp(7),
	// TCP_KEEPIDLE, in whole seconds. 0: no probes.
	KeepAlive time.Duration
	// KeepAliveInterval and KeepAliveCount are TCP_KEEPINTVL and TCP_KEEPCNT; 0: the kernel's.
	KeepAliveInterval time.Duration
	KeepAliveCount    int
	// UserTimeout ends a connection whose sent data stays unacknowledged for
	// so long. tcp(7), TCP_USER_TIMEOUT.
	UserTimeout time.Duration
	// RecvBuffer and SendBuffer fix SO_RCVBUF and SO_SNDBUF, in bytes; the
	// kernel's autotuning is usually better. A Unix socket has none: its send
	// buffer is enlarged when a spliced stream outgrows it, unless SendBuffer is set.
	RecvBuffer, SendBuffer int
	// Congestion names the congestion control, one of
	// net.ipv4.tcp_available_congestion_control; "": the namespace's. tcp(7), TCP_CONGESTION.
	Congestion string
	// FastOpen above 0 lets data travel with the SYN (RFC 7413), where
	// net.ipv4.tcp_fastopen allows it. On a listener it bounds the clients that
	// have sent some and not yet finished the handshake. Towards an upstream
	// the connection counts as made before anything is sent, if the
	// upstream's cookie is known: the first bytes of the client open it, so that
	// it is only for protocols in which the client speaks first, and what
	// goes wrong is an error of the flow instead of an attempt that failed.
	FastOpen int
	// MPTCP uses multipath TCP (RFC 8684) with peers that do too, and TCP with
	// others, or where the kernel has none. Up to Linux 6.18 its bytes are
	// copied inside the kernel when they are spliced. A multipath socket goes
	// without those of the options here that its kernel does not have for it.
	MPTCP bool
	// DSCP is the code point of packets, 1 to 63 (RFC 2474); the ECN bits stay
	// as they are. ip(7), IP_TOS; ipv6(7), IPV6_TCLASS.
	DSCP uint8
	// Mark is for routing rules and filters; it needs CAP_NET_ADMIN. socket(7), SO_MARK.
	Mark uint32
	// Interface is the device that packets come and go by. socket(7), SO_BINDTODEVICE.
	Interface string
	// Transparent takes clients of addresses that are not this host's, or
	// connects from such an address; it needs CAP_NET_ADMIN, and routing that
	// brings the packets here (Documentation/networking/tproxy in the kernel's
	// source). On UDP the port that the client wrote to must be the
	// listener's. ip(7), IP_TRANSPARENT.
	Transparent bool
}

// DialConfig says how to connect to upstreams.
type DialConfig struct {
	Socket SocketOptions
	// Source are the addresses to connect from, taken in turn by each loop; those
	// of another family than the upstream's are passed over, and an attempt for
	// which none is left fails. None leaves the choice to the kernel. Each
	// source has its own range of ports, net.ipv4.ip_local_port_range: about 28,000
	// as Linux comes, towards each upstream on TCP and altogether on UDP.
	Source []netip.Addr
	// FromClient connects from the address that [Flow.Client] tells, with a port
	// that the kernel chooses. It implies Socket.Transparent.
	FromClient bool
}

// PairConfig is for a pair of connections given to [Engine.Relay]. Its zero value
// works.
type PairConfig struct {
	Timeouts Timeouts // Connect is not used
	// Done, if not nil, is given the flow's record when it has ended, on the
	// flow's loop: it must not block. The record is valid during the call.
	Done func(*Record)
	// Value comes back in the record.
	Value any
}

// ListenConfig says how to listen and what to do with the clients. Hooks.Upstream is required.
type ListenConfig struct {
	Hooks    Hooks
	Timeouts Timeouts
	Socket   SocketOptions
	// Dial says how to connect to upstreams, where Flow.SetDial does not. Nil: with
	// Socket, but for FastOpen, Interface and Transparent, which are then the
	// listener's alone. What it points to must not change.
	Dial *DialConfig
	// Datagram is for UDP and Unixgram listeners.
	Datagram DatagramConfig
	// Backlog bounds the connections that wait to be accepted; 0: the kernel's most, net.core.somaxconn.
	Backlog int
	// Mode is the permission of a Unix socket's path; 0 leaves what the umask gives.
	Mode uint32
	// Paused binds and listens and takes nobody in until an Update without it: the
	// kernel queues clients meanwhile.
	Paused bool
	// Value is for the hooks, see [Listener.Value].
	Value any
}

// ErrStage is returned by methods of Flow that are for certain hooks only, when they
// are called elsewhere.
var ErrStage = errors.New("relay: called in a hook in which it has no effect")

// Hooks are the stages of a flow that belong to the engine's user. They run on
// event loops, several at a time but never two for one flow, and must not
// block. A *Flow is valid during the call only.
type Hooks struct {
	// Admit, if not nil, decides about a new client: CauseNone admits, any
	// other cause refuses and is the flow's cause, or [CauseRefused] where it is
	// CauseEnd or not a Cause at all.
	Admit func(*Flow) Cause

	// Sniff is shown what the client of a stream says first, where Admit has
	// called [Flow.StartSniff]; what it returns is explained there. Package
	// clienthello reads what a TLS client says.
	Sniff func(f *Flow, b []byte, last bool) (take int, next SniffNext)

	// Upstream returns the address to connect to. It is called with attempt 0, and
	// after each failure with the next number. If it returns nil, the flow ends with
	// [CauseNoUpstream], or is queued if it has called [Flow.Queue]. The address is
	// kept until the flow ends and must not change.
	//
	// The first eight attempts follow each other at once. Before each later one of a
	// stream there is a pause of 64 ms to a second, in which the flow ends with
	// [CauseClientGone] if its client ends its side. After 32 attempts the flow ends
	// with [CauseNoUpstream]; a datagram flow does so after eight attempts that failed
	// at once.
	Upstream func(f *Flow, attempt int) *Addr

	// Connected, if not nil, learns how an attempt ended: err is nil, the
	// system call's error, or os.ErrDeadlineExceeded. Where it is nil,
	// [Flow.Preface] may be called. An upstream of datagrams counts as connected when it
	// first answers: took is then [Record.FirstByte].
	Connected func(f *Flow, to *Addr, took time.Duration, err error)

	// Done, if not nil, is given the record of each flow that was accepted,
	// refused ones too, exactly once. The record is valid during the call.
	Done func(*Record)
}

// SniffNext is what to do after a look at what the client says.
type SniffNext uint8

// The answers of Hooks.Sniff.
const (
	SniffMore   SniffNext = iota // show me more
	SniffDone                    // that is enough: go on to Hooks.Upstream
	SniffRefuse                  // end the flow with CauseRefused
)
