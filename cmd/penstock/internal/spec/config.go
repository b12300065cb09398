package spec

import (
	"net/netip"
	"time"
)

// Config is a whole configuration. Names are unique among listeners, among
// groups, and among the routes of one listener; every reference is resolved.
type Config struct {
	Source    string // the file's name, for messages; empty if there is none
	Text      []byte // the file; nil if there is none
	Engine    Engine
	Limits    Limits // of all listeners together; Source and Bandwidth are not used here
	Log       Log
	AccessLog AccessLog
	Admin     Admin
	Reload    Reload
	Drain     time.Duration // how long flows may go on after the first signal
	Listeners []*Listener   // in the file's order
	Groups    []*Group      // in the file's order
}

// Engine is what the daemon asks of the engine; a change needs a restart.
type Engine struct {
	Loops        int // 0: one per CPU
	Pipes        int // 0: the engine's default; negative: never splice
	NoGSO, NoGRO bool
	MaxFlows     int // datagram flows at most; 0: from the limit on descriptors
	MaxNewFlows  int // datagram flows that each loop begins a second; 0: the engine's default
}

// Log is the daemon's own log.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // auto, text, json
	Flows  string // which flows get a line in it: none, failed, all
}

// AccessLog has a line for each flow.
type AccessLog struct {
	To     string // "": none; stdout, stderr, an absolute path, or syslog:HOST:PORT, syslog:unix:///PATH
	Format string // "json", or a template with the fields of docs/operations.md
	Mode   uint32 // permissions of a file that is made
}

// Admin is where operators ask.
type Admin struct {
	Listen    Endpoint // zero Kind: nowhere
	Mode      uint32   // permissions of a Unix socket
	Token     string   // on TCP: what a client must show for everything
	ReadToken string   // on TCP: what a client must show to read only; empty: none can
}

// Reload says what a new configuration does.
type Reload struct {
	Watch bool // reload when the file changes
}

// Listener is one address, or one inherited socket, and what happens to its clients.
type Listener struct {
	Name      string
	Listen    Endpoint // zero Kind if Inherit is set
	Inherit   string   // the name of a socket that systemd passes (LISTEN_FDNAMES)
	Mode      uint32   // permissions of a Unix socket's path; 0: the umask's
	Backlog   int      // 0: the kernel's most
	Datagrams bool     // UDP or unixgram; of an inherited one what the file says

	Allow, Deny []netip.Prefix // Deny wins; Allow empty: everybody
	Limits      Limits
	ProxyFrom   []netip.Prefix // who must begin with a PROXY header; others must not
	Sniff       Sniff
	Timeouts    Timeouts
	TCP         Socket
	Transparent bool // IP_TRANSPARENT: take clients for addresses that are not this host's
	Interface   string

	Replies     int    // datagrams: end a flow after so many replies; 0: do not
	Unreachable string // datagrams: what an ICMP error does: next, end, ignore

	Routes []*Route // in order: the first that matches is taken
	To     *Group   // where a client goes that no route matches; nil: it is refused
	// Default is the route of those clients, so that every flow has a route; nil if To is.
	Default *Route
}

// Sniff bounds what is read of a client before it is routed: a PROXY header, a ClientHello.
type Sniff struct {
	TLS     bool // some route asks for a server name or ALPN
	Max     int  // bytes
	Timeout time.Duration
}

// Limits bound flows. 0 is no bound.
type Limits struct {
	Flows     int     // at once
	NewFlows  float64 // a second
	Burst     int     // of NewFlows; 0: a second's worth
	Source    SourceLimits
	Bandwidth int64 // bytes a second, of a flow, each way
}

// SourceLimits bound what one IPv4 address or one IPv6 /64 does.
type SourceLimits struct {
	Flows    int
	NewFlows float64
	Burst    int
}

// Timeouts of a flow; 0 is never, Connect apart.
type Timeouts struct {
	Connect    time.Duration
	FirstByte  time.Duration // from being connected until the upstream's first byte
	Idle       time.Duration
	HalfClosed time.Duration
	Life       time.Duration // of the whole flow
}

// Socket is what is set on TCP sockets. tcp(7) names them.
type Socket struct {
	Nagle             bool          // leave TCP_NODELAY off
	KeepAlive         time.Duration // 0: no probes
	KeepAliveInterval time.Duration // 0: the kernel's
	KeepAliveCount    int           // 0: the kernel's
	UserTimeout       time.Duration // 0: the kernel's
	FastOpen          int           // a listener's queue of TCP fast open, or 1 for an upstream; 0: off
	MPTCP             bool
	Congestion        string // a name of net.ipv4.tcp_available_congestion_control; empty: the default
	RecvBuffer        int    // bytes; 0: the kernel tunes it
	SendBuffer        int
}

// Route says which clients go to which group. Every condition that is there must hold.
type Route struct {
	Name    string
	From    []netip.Prefix // the client's address
	SNI     []string       // lower-case names of a TLS ClientHello; a leading "*." stands for one or more labels
	ALPN    []string       // any of them is enough
	To      *Group
	Removed Removed
	// Timeouts of the route's flows: the listener's, and what the route says itself.
	Timeouts  Timeouts
	Bandwidth int64 // bytes a second, of a flow, each way; 0: no bound
}

// Removed says what happens to live flows whose route, or whose member, a new
// configuration no longer has.
type Removed struct {
	What  string // keep, drain, close
	After time.Duration
	// Jitter spreads the ends of drained flows over so long before the deadline.
	Jitter time.Duration
}

// Group is a set of upstreams.
type Group struct {
	Name     string
	Balance  string // round-robin, least-connections, p2c, maglev, random, first
	Hash     string // of maglev: source, 4-tuple
	Members  []Member
	Discover []Discover
	Lookups  Lookups

	Timeouts  GroupTimeouts
	Retries   int // further members to try after a failed connect
	Queue     Queue
	SlowStart time.Duration // after a member comes up; 0: none
	Check     *Check        // nil: none
	Eject     *Eject        // nil: none
	Panic     float64       // below this share of members that are well all take flows, 0 to 1; 0: never
	Dial      Dial
}

// GroupTimeouts are what a group says about connecting.
type GroupTimeouts struct {
	Connect time.Duration // of one attempt
	Retries time.Duration // of all attempts; 0: no bound of their own
}

// Member is one upstream that the file names.
type Member struct {
	Name     string // by default the endpoint's URL
	To       Endpoint
	Weight   int // 1 to 256
	Backup   bool
	MaxFlows int  // at once; 0: no bound
	Drained  bool // takes no new flow
}

// Discover makes members of what DNS says.
type Discover struct {
	Network  Kind   // TCP or UDP
	Host     string // for A and AAAA
	Port     uint16 // for A and AAAA
	Service  string // for SRV: _name._proto.domain; then Host and Port are not used
	Every    time.Duration
	Lookups  Lookups // the group's
	Weight   int     // of each member; of SRV the record's if 0
	MaxFlows int
}

// Lookups say what becomes of the names of a group, those of its members too.
type Lookups struct {
	// Keep is how long members stay after DNS has said that their name does not exist or
	// has no address; 0: for ever. While the resolver is silent or fails they stay anyway.
	Keep       time.Duration
	MaxMembers int // of one name; 0: 4096
}

// Queue is where flows wait while every member is down or at its cap.
type Queue struct {
	Size    int // 0: nobody waits
	Timeout time.Duration
}

// Check asks members actively whether they are well.
type Check struct {
	Kind     string // tcp, send-expect, http, udp
	Every    time.Duration
	Jitter   float64 // share of Every, 0 to 1
	Timeout  time.Duration
	Rise     int
	Fall     int
	Port     uint16 // instead of the member's; 0: the member's
	Send     []byte // of send-expect and udp
	Expect   []byte // what the answer must contain; empty: any answer
	Method   string // of http
	Path     string
	Host     string
	Statuses [][2]int // of http: ranges that are well
}

// Eject takes members out whose flows fail.
type Eject struct {
	Failures int           // in a row
	For      time.Duration // the first time; doubled each time, until Max
	Max      time.Duration
	Share    float64 // of the group's members that may be out at most, 0 to 1
}

// Dial is how the daemon connects to a group's members.
type Dial struct {
	Proxy       int   // PROXY protocol: 0, 1 or 2
	ProxyTLVs   []TLV // of version 2
	ProxySNI    bool  // add the sniffed server name and ALPN
	Source      []netip.Addr
	Transparent bool // connect from the client's address
	Interface   string
	Mark        uint32
	DSCP        uint8
	TCP         Socket
}

// TLV is a type-length-value of PROXY protocol version 2.
type TLV struct {
	Type  uint8
	Value []byte
}
