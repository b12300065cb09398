package relay

import "time"

// FlowState is the stage at which a flow is.
type FlowState string

// The stages. A datagram flow is relaying from its first datagram on.
const (
	StateSniffing   FlowState = "sniffing"   // what the client says first is read
	StateQueued     FlowState = "queued"     // Hooks.Upstream will be asked again
	StateConnecting FlowState = "connecting" // an attempt to connect is under way
	StateRelaying   FlowState = "relaying"
)

// FlowInfo tells about an open flow. What has moved since the last look at the
// clock of its loop, once a turn, may be missing from Idle.
type FlowInfo struct {
	ID       uint64
	Listener *Listener // nil for a pair given to Relay
	// Value is what the hooks gave to Flow.SetValue. What it points to may
	// be in use on the flow's loop: it must be safe to read from here.
	Value          any
	Client, Peer   Addr // see Flow.Client and Flow.Peer
	Upstream       Addr // connected or tried last; zero before the first attempt
	State          FlowState
	Datagram       bool
	Attempts       int
	Start          time.Time
	Duration, Idle time.Duration // since the start, and since a byte moved last
	Up, Down       Transfer      // so far; see Record
}

// FlowDetail is FlowInfo and what the kernel tells of a flow's sockets.
type FlowDetail struct {
	FlowInfo
	Local Addr // that the client connected or wrote to
	// Connect, FirstByte and Queued are those of [Record], so far.
	Connect, FirstByte, Queued time.Duration
	ClientTCP, UpstreamTCP     *TCPInfo // of the client's and the upstream's socket; nil where there is none of TCP
}

// TCPInfo is the kernel's view of one TCP connection, or of the first subflow of
// a multipath one. tcp(7), TCP_INFO; include/uapi/linux/tcp.h. What the kernel
// does not know, or an older one does not tell, is zero.
type TCPInfo struct {
	State         string // established, syn-sent, fin-wait1 …, as ss(8) has them
	RTT, RTTVar   time.Duration
	MinRTT        time.Duration
	Cwnd          int    // segments
	MSS           int    // bytes, of what is sent
	Unacked       int    // segments
	Lost          int    // segments
	Retransmits   int    // segments, in all
	BytesAcked    int64  // sent and acknowledged
	BytesReceived int64  // received
	NotSent       int64  // bytes in the send queue that were never sent
	DeliveryRate  int64  // bytes a second
	PacingRate    int64  // bytes a second; 0: none
	Congestion    string // the congestion control
	SACK, ECN     bool   // what both ends agreed on
	Timestamps    bool
	WindowScale   bool
	FastOpen      bool // data travelled with the SYN, and was acknowledged
	MPTCP         bool // multipath, and the peer takes part
}
