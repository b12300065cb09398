package stats

import (
	"net/netip"
	"time"
)

// FlowState is the stage of an open flow.
type FlowState string

// The stages. A datagram flow is relaying from its first datagram on.
const (
	StateSniffing   FlowState = "sniffing"   // reading the first bytes from the client
	StateHandshake  FlowState = "handshake"  // the TLS handshake with the client or with the upstream
	StateQueued     FlowState = "queued"     // queued by relay.Flow.Queue
	StateConnecting FlowState = "connecting" // connecting to an upstream, or waiting for the next attempt
	StateRelaying   FlowState = "relaying"
)

// Sockets is what the kernel knows of the sockets of a flow.
type Sockets struct {
	// ClientTCP and UpstreamTCP are about the sockets that are TCP sockets; nil for others.
	ClientTCP, UpstreamTCP *TCPInfo
	// UpstreamLocal is the local address of the connection to the upstream, or of the socket that sends to it; see
	// relay.Flow.UpstreamLocal. It is zero while there is none, and for a Unix socket.
	UpstreamLocal netip.AddrPort
}

// TLS describes the TLS connection of one side of a flow. What a relay.Transfer counts of that side is what is
// inside of the records.
type TLS struct {
	Version     uint16        // such as tls.VersionTLS13; 0 if there was no handshake that succeeded
	CipherSuite uint16        // such as tls.TLS_AES_128_GCM_SHA256
	ServerName  string        // that was asked for; empty: none was
	Protocol    string        // that ALPN (RFC 7301) chose; empty: none
	Resumed     bool          // an earlier session was resumed
	Handshake   time.Duration // how long the handshake took
	Kernel      bool          // the kernel encrypts and decrypts
	// Received and Sent count the bytes of the socket, those of the handshake and of the records' headers
	// included, until the kernel has the connection.
	Received, Sent int64
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
