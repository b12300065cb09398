package api

import (
	"time"

	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/stats"
)

// Addr is the address of one side of a flow. Its text is a URL as in the configuration, "unix:" or
// "unixgram:" for a Unix socket without a name, as most clients have, or empty if there is no
// address.
type Addr = relay.Addr

// FlowStates are the values of Flow.State.
var FlowStates = []string{string(stats.StateSniffing), string(stats.StateHandshake), string(stats.StateQueued), string(stats.StateConnecting), string(stats.StateRelaying)}

// Flow is one open flow.
type Flow struct {
	ID       uint64    `json:"id,string"`
	Kind     string    `json:"kind"` // stream or datagram
	State    string    `json:"state"`
	Listener string    `json:"listener"`
	Route    string    `json:"route,omitempty"`
	Group    string    `json:"group,omitempty"`
	Member   string    `json:"member,omitempty"`
	Client   Addr      `json:"client"`
	Upstream Addr      `json:"upstream,omitzero"` // connected or being tried; absent if there is none yet
	SNI      string    `json:"sni,omitempty"`
	Protocol string    `json:"protocol,omitempty"` // that its first bytes are of, where a route asks for that
	Start    time.Time `json:"start"`
	Age      float64   `json:"age"`
	Idle     float64   `json:"idle"` // since a byte moved
	Up       Transfer  `json:"up"`
	Down     Transfer  `json:"down"`
	// Rate is in bytes per second, both directions together. It is set in a listing that is
	// sorted by rate.
	Rate float64 `json:"rate,omitempty"`
}

// Bytes returns the bytes of both directions.
func (f *Flow) Bytes() int64 { return f.Up.Bytes + f.Down.Bytes }

// Transfer describes what one direction has moved.
type Transfer struct {
	Bytes            int64  `json:"bytes"`             // taken by the receiving socket
	Held             int64  `json:"held,omitempty"`    // read, but not yet taken by that socket
	Spliced          int64  `json:"spliced,omitempty"` // of Bytes, those that were not copied to user space
	Datagrams        int64  `json:"datagrams,omitempty"`
	DatagramsDropped int64  `json:"datagrams_dropped,omitempty"` // read, but not delivered
	Path             string `json:"path"`                        // none, copy, splice or gso
	Why              string `json:"why,omitempty"`               // why not a faster path
}

// Flows is a listing.
type Flows struct {
	Flows   []Flow `json:"flows"`
	Matched int64  `json:"matched"` // flows that match the filter; with a cursor, those after it
	Total   int64  `json:"total"`   // flows that were examined
	// Next is the cursor of the next page of a listing in the order of ids; empty on the last
	// page.
	Next string `json:"next,omitempty"`
}

// FlowDetail is one flow with the TCP state of its sockets.
type FlowDetail struct {
	Flow
	ALPN []string `json:"alpn,omitempty"`
	JA4  string   `json:"ja4,omitempty"` // the fingerprint of the client's ClientHello
	// QUICVersion is the version of QUIC: 1, 2, or another one as 0x and eight hexadecimal digits. QUICID is the connection ID that the
	// client used last, as far as it was seen, in hexadecimal digits, and QUICCame how it was recognised if it has moved: by server-id or
	// learned; unknown: its connection had begun elsewhere.
	QUICVersion string `json:"quic_version,omitempty"`
	QUICID      string `json:"quic_id,omitempty"`
	QUICCame    string `json:"quic_came,omitempty"`
	Loop        int    `json:"loop"`
	Local       Addr   `json:"local"` // the address that the client connected to
	Peer        Addr   `json:"peer"`  // the other end of the client's socket: a proxy or the client itself
	// UpstreamLocal is the relay's address of the connection to the upstream; absent for Unix sockets, and if there is none.
	UpstreamLocal Addr     `json:"upstream_local,omitzero"`
	Attempts      int      `json:"attempts"`
	Connect       float64  `json:"connect"`              // time until the upstream was connected; 0 if it is not
	FirstByte     float64  `json:"first_byte,omitempty"` // time from then until the first byte of the upstream; 0 if there was none
	ClientTCP     *TCPInfo `json:"client_tcp,omitempty"`
	UpstreamTCP   *TCPInfo `json:"upstream_tcp,omitempty"`
	IdleLimit     float64  `json:"idle_limit,omitempty"`
	LifeLimit     float64  `json:"life_limit,omitempty"`
	RateLimit     int64    `json:"rate_limit,omitempty"` // bytes per second, in each direction
	Queued        float64  `json:"queued,omitempty"`
	// ClientTLS and UpstreamTLS are set where the TLS of a side ends or begins here.
	ClientTLS   *TLS `json:"client_tls,omitempty"`
	UpstreamTLS *TLS `json:"upstream_tls,omitempty"`
	// Identity is who the client is by its certificate.
	Identity *Identity `json:"identity,omitempty"`
}

// TLS is the TLS connection of one side of a flow. Its texts are empty until the handshake has succeeded.
type TLS struct {
	Version    string  `json:"version,omitempty"` // 1.2 or 1.3
	Cipher     string  `json:"cipher,omitempty"`  // as IANA names it
	ServerName string  `json:"server_name,omitempty"`
	Protocol   string  `json:"protocol,omitempty"` // that ALPN has chosen
	Resumed    bool    `json:"resumed,omitempty"`
	Handshake  float64 `json:"handshake,omitempty"` // how long it took
	Kernel     bool    `json:"kernel,omitempty"`    // the kernel encrypts and decrypts, and the connection outlives its worker
	Received   int64   `json:"received"`            // bytes of the socket, those of records and the handshake included, until the kernel has the connection
	Sent       int64   `json:"sent"`
}

// Identity is who a client is by its certificate, which was verified.
type Identity struct {
	Subject string `json:"subject"`
	Names   string `json:"names,omitempty"` // its URIs, DNS names and addresses of mail, separated by commas
	Serial  string `json:"serial"`          // in hexadecimal digits
}

// TCPInfo is the TCP state of a socket, from struct tcp_info in linux/tcp.h.
type TCPInfo struct {
	State        string  `json:"state"` // established, fin-wait-1, ...
	RTT          float64 `json:"rtt"`
	RTTVar       float64 `json:"rttvar"`
	MinRTT       float64 `json:"min_rtt"`
	Retransmits  int64   `json:"retransmits"` // segments, since the start of the connection
	Lost         int64   `json:"lost"`        // segments currently considered lost
	Cwnd         int64   `json:"cwnd"`        // segments
	MSS          int64   `json:"mss"`
	Unacked      int64   `json:"unacked"` // segments
	Unsent       int64   `json:"unsent"`  // bytes in the send queue (tcpi_notsent_bytes)
	PacingRate   int64   `json:"pacing_rate"`
	DeliveryRate int64   `json:"delivery_rate"`
	RecvSpace    int64   `json:"recv_space"`
	Congestion   string  `json:"congestion,omitempty"` // the name of the algorithm
}

// Killed is the answer to a kill.
type Killed struct {
	Killed int64 `json:"killed"`
}

// IsNetwork reports whether a word is the scheme of an address.
func IsNetwork(scheme string) bool { return new(relay.Network).UnmarshalText([]byte(scheme)) == nil }
