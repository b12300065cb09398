package relay

import "time"

// FlowState is the stage of an open flow.
type FlowState string

// The stages. A datagram flow is relaying from its first datagram on.
const (
	StateSniffing   FlowState = "sniffing"   // reading the first bytes from the client
	StateHandshake  FlowState = "handshake"  // the TLS handshake with the client or with the upstream
	StateQueued     FlowState = "queued"     // queued by Flow.Queue
	StateConnecting FlowState = "connecting" // connecting to an upstream, or waiting for the next attempt
	StateRelaying   FlowState = "relaying"
)

// FlowInfo describes an open flow. Duration and Idle are as of the last turn of the
// flow's loop.
type FlowInfo struct {
	ID       uint64
	Listener *Listener // that accepted the client; nil for a pair given to Relay
	// Value is the value given to Flow.SetValue. Hooks may use what it points to at
	// the same time, on the flow's loop: it must be safe for concurrent use.
	Value          any
	Client, Peer   Addr // see Flow.Client and Flow.Peer
	Upstream       Addr // that is connected, or was tried last; zero before the first attempt
	State          FlowState
	Datagram       bool // a datagram flow
	Attempts       int  // upstreams tried
	Start          time.Time
	Duration, Idle time.Duration // since Start, and since a byte moved last
	Up             Transfer      // from the client to the upstream
	Down           Transfer      // from the upstream to the client
}

// FlowDetail is FlowInfo and what the kernel knows about the flow's sockets.
type FlowDetail struct {
	FlowInfo
	Loop  int  // the loop that has the flow, from 0
	Local Addr // see Flow.Local
	// Connect, FirstByte and Queued are those of [Record], so far.
	Connect, FirstByte, Queued time.Duration
	// ClientTCP and UpstreamTCP are about the sockets that are TCP sockets; nil for
	// others.
	ClientTCP, UpstreamTCP *TCPInfo
	// ClientTLS and UpstreamTLS are those of [Record], so far.
	ClientTLS, UpstreamTLS *TLS
}

// TCPInfo is the kernel's view of one TCP connection, or of the first subflow of a
// Multipath TCP connection; see TCP_INFO in tcp(7) and include/uapi/linux/tcp.h. A
// field that the kernel does not know is zero.
type TCPInfo struct {
	State         string // such as "established", as printed by ss(8)
	RTT, RTTVar   time.Duration
	MinRTT        time.Duration
	Cwnd          int    // congestion window, in segments
	MSS           int    // maximum size of a segment sent, in bytes
	Unacked       int    // segments
	Lost          int    // segments
	Retransmits   int    // segments, in total
	BytesAcked    int64  // bytes sent and acknowledged
	BytesReceived int64  // bytes received
	NotSent       int64  // bytes in the send queue that have not been sent
	RecvSpace     int64  // bytes: the space for received data that the kernel aims at
	DeliveryRate  int64  // bytes per second
	PacingRate    int64  // bytes per second; 0 means no pacing
	Congestion    string // the congestion control algorithm
	SACK, ECN     bool   // negotiated
	Timestamps    bool   // negotiated
	WindowScale   bool   // negotiated
	FastOpen      bool   // data in the SYN was acknowledged
	MPTCP         bool   // a Multipath TCP connection
}
