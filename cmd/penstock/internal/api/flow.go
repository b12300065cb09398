package api

import (
	"time"

	"github.com/penstock/penstock/relay"
)

// Addr is where one side of a flow is. Its text is the URL of the configuration;
// empty if there is none yet.
type Addr = relay.Addr

// The states of a flow.
var FlowStates = []string{string(relay.StateSniffing), string(relay.StateQueued), string(relay.StateConnecting), string(relay.StateRelaying)}

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
	Upstream Addr      `json:"upstream"` // connected, or tried
	SNI      string    `json:"sni,omitempty"`
	Start    time.Time `json:"start"`
	Age      float64   `json:"age"`
	Idle     float64   `json:"idle"` // since a byte moved
	Up       Transfer  `json:"up"`
	Down     Transfer  `json:"down"`
	// Rate is bytes a second, both ways together, in the window of a listing that
	// is sorted by it.
	Rate float64 `json:"rate,omitempty"`
}

// Bytes is what went both ways.
func (f *Flow) Bytes() int64 { return f.Up.Bytes + f.Down.Bytes }

// Transfer is what one direction has moved.
type Transfer struct {
	Bytes            int64  `json:"bytes"`             // that the receiver's socket has taken
	Held             int64  `json:"held,omitempty"`    // read, but not yet taken by that socket
	Spliced          int64  `json:"spliced,omitempty"` // of Bytes, what never was in user-space memory
	Datagrams        int64  `json:"datagrams,omitempty"`
	DatagramsDropped int64  `json:"datagrams_dropped,omitempty"` // read, but not delivered
	Path             string `json:"path"`                        // none, copy, splice or gso
	Why              string `json:"why,omitempty"`               // why not a faster path
}

// Flows is a listing.
type Flows struct {
	Flows   []Flow `json:"flows"`
	Matched int64  `json:"matched"` // how many pass the filter; without a sort, and from a cursor on, of those behind the cursor
	Total   int64  `json:"total"`   // how many were looked at
	// Next is the cursor of the next page of a listing in the order of ids; empty: that was all.
	Next string `json:"next,omitempty"`
}

// FlowDetail is one flow with what the kernel knows of its sockets.
type FlowDetail struct {
	Flow
	ALPN        []string `json:"alpn,omitempty"`
	Loop        int      `json:"loop"`
	Local       Addr     `json:"local"` // where the client came to
	Peer        Addr     `json:"peer"`  // the other end of the client's socket: a proxy, or the client itself
	Attempts    int      `json:"attempts"`
	Connect     float64  `json:"connect"`              // until the upstream was connected; 0: not yet
	FirstByte   float64  `json:"first_byte,omitempty"` // from then on until the upstream's first byte; 0: not yet
	ClientTCP   *TCPInfo `json:"client_tcp,omitempty"`
	UpstreamTCP *TCPInfo `json:"upstream_tcp,omitempty"`
	IdleLimit   float64  `json:"idle_limit,omitempty"`
	LifeLimit   float64  `json:"life_limit,omitempty"`
	RateLimit   int64    `json:"rate_limit,omitempty"` // bytes a second, each way
	Queued      float64  `json:"queued,omitempty"`
}

// TCPInfo is of struct tcp_info, linux/tcp.h, and of the socket's queues.
type TCPInfo struct {
	State        string  `json:"state"` // established, fin-wait-1, ...
	RTT          float64 `json:"rtt"`
	RTTVar       float64 `json:"rttvar"`
	MinRTT       float64 `json:"min_rtt"`
	Retransmits  int64   `json:"retransmits"` // segments, since the start
	Lost         int64   `json:"lost"`        // segments held to be lost now
	Cwnd         int64   `json:"cwnd"`        // segments
	MSS          int64   `json:"mss"`
	Unacked      int64   `json:"unacked"` // segments
	Unsent       int64   `json:"unsent"`  // bytes that wait in the send queue (tcpi_notsent_bytes)
	PacingRate   int64   `json:"pacing_rate"`
	DeliveryRate int64   `json:"delivery_rate"`
	RecvSpace    int64   `json:"recv_space"`
	Congestion   string  `json:"congestion,omitempty"` // the algorithm's name
}

// Killed is the answer to a kill.
type Killed struct {
	Killed int64 `json:"killed"`
}
