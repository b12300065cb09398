package spec

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Config is a complete configuration. Names are unique among listeners, among groups, and among
// the routes of one listener; every reference is resolved.
type Config struct {
	Source     string // the file's name, for messages; empty if there is none
	Text       []byte // the configuration as one text that needs no other files and no variables; nil if there is none
	Written    []byte // Text with the variables as written: their values may be secrets
	Engine     Engine
	Limits     Limits // of all listeners together; Source and Bandwidth are not used here
	Log        Log
	AccessLog  AccessLog
	OTLP       OTLP
	Admin      Admin
	Reload     Reload
	Keeper     *Keeper // nil: the daemon runs without a keeper
	Node       Node    // from the command line: files may be shared by many relays
	Fleet      Fleet
	Sandbox    Sandbox
	Layers     []Layer       // the texts that came from a registry, in the order of the command line
	Drain      time.Duration // how long flows may continue after the first signal
	Registries []*Registry   // in the file's order
	Names      NameLimits    // of groups with a destination
	Lists      []*List       // in the file's order
	Listeners  []*Listener   // in the file's order
	Groups     []*Group      // in the file's order
}

// A Layer is one version of a text of a configuration that is kept in a registry.
type Layer struct {
	Path    string    `json:"path"` // as the command line has it, see [ParseRemote]
	Version string    `json:"version"`
	At      time.Time `json:"at"` // when the version was published, or if that is not known, when it was received
	Text    []byte    `json:"text"`
	Trial   bool      `json:"trial,omitempty"` // only some relays run it, and may be told to go back
}

// Node is who a relay is among others.
type Node struct {
	ID   string // unique in a fleet
	Zone string // empty: none
	// State is the folder for what later processes need while registries are away; empty: none.
	State string
}

// Fleet configures the part of a relay in a fleet, in which relays are operated together. It is comparable.
type Fleet struct {
	Registry Registry // an etcd; without a Kind: that which the configuration is from, if it is from one
	Key      string   // in it, without a slash at the end
	// DrainGrace is how long a relay that was ordered to drain accepts clients, so that a load balancer in
	// front has time to see that it is not ready.
	DrainGrace time.Duration
}

// DefaultDrainGrace is the default of Fleet.DrainGrace.
const DefaultDrainGrace = 5 * time.Second

// Keeper configures the keeper, the process that holds the sockets of flows and starts the worker.
type Keeper struct {
	KeepAfter       time.Duration // a flow is held once it has relayed for this long; 0: at once
	Watchdog        time.Duration // a worker whose loops do not answer for this long is killed; 0: never
	StartTimeout    time.Duration // a worker that is not ready after this long is killed
	HealthyAfter    time.Duration // a worker that has run for this long after an upgrade is good
	MaxRestartDelay time.Duration // bounds the growing delay between restarts
	Linger          time.Duration // how long a worker that has handed over goes on with the TLS of its flows; 0: they end
	MaxLingering    int           // how many such workers there may be
}

// MostLingering is the maximum of Keeper.MaxLingering.
const MostLingering = 15

// DefaultKeeper has the default values.
var DefaultKeeper = Keeper{KeepAfter: time.Second, Watchdog: 10 * time.Second, StartTimeout: 30 * time.Second, HealthyAfter: 10 * time.Second, MaxRestartDelay: 10 * time.Second, Linger: time.Hour, MaxLingering: 4}

// KeeperByDefault is the value of the key keeper in a configuration that does not have it: none, or
// {} for a keeper with the default values.
const KeeperByDefault = "none"

// Sandbox configures what the process that relays gives up before it reads anything from clients.
type Sandbox struct {
	Mode string // on, log or off; empty: off
	User string // whom it becomes if it was started as root: a name, or numbers UID:GID; empty: it stays root
}

// Engine configures the engine; changes need a restart.
type Engine struct {
	Loops        int // 0: one per CPU
	Pipes        int // 0: the engine's default; negative: never splice
	NoGSO, NoGRO bool
	MaxFlows     int   // maximum number of datagram flows; 0: derived from the descriptor limit
	MaxNewFlows  int   // new datagram flows per second and loop; 0: the engine's default
	Memory       int64 // bytes that the daemon may use, MemoryAuto or MemoryNone
}

// Values of Engine.Memory that are not a number of bytes.
const (
	MemoryAuto = 0 // the limits of the process's control groups
	MemoryNone = -1
)

// Log configures the daemon's own log.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // auto, text, json
	Flows  string // which flows get a line in it: none, failed, all
}

// AccessLog configures the log with a line per flow.
type AccessLog struct {
	To     string // stdout, stderr, an absolute path, a syslog URL, or ToOTLP; empty: no log
	Format string // "json", or a template with the fields of docs/observing.md
	Mode   uint32 // permissions of a file that is created; 0: the default
	OTLP   OTLP   // with ToOTLP: the collector
}

// Admin configures the admin listener.
type Admin struct {
	Listen    []Endpoint // none: no admin listener
	Mode      uint32     // permissions of Unix sockets
	Token     string     // on TCP: required for everything
	ReadToken string     // on TCP: sufficient for reading; empty: there is none
	// TokenFiles are the files of both, with absolute paths.
	TokenFiles [2]string
}

// Commands returns the address for commands on this host: the first Unix socket, which needs no token, or else the first
// address. It reports whether there is one.
func (a *Admin) Commands() (Endpoint, bool) {
	if len(a.Listen) == 0 {
		return Endpoint{}, false
	}
	return a.Listen[max(slices.IndexFunc(a.Listen, func(e Endpoint) bool { return e.Kind == Unix }), 0)], true
}

// Reload configures reloads.
type Reload struct {
	Watch bool // reload when the file changes
}

// Amplification limits replies to clients to Ratio times the bytes that came from them; 0 means no limit.
type Amplification struct {
	Ratio  int
	Always bool // also to clients that are verified
}

// A Listener is one address, or one inherited socket, and what happens to its clients.
type Listener struct {
	Name      string
	Listen    Endpoint // zero Kind if Inherit is set
	Inherit   string   // the name of a socket that systemd passes (LISTEN_FDNAMES)
	Mode      uint32   // permissions of a Unix socket's path; 0: the umask's
	Backlog   int      // 0: the kernel's maximum
	Datagrams bool     // UDP or unixgram; of an inherited one what the file says

	Allow, Deny []Network // Deny wins; Allow empty: everybody
	Limits      Limits
	ProxyFrom   []Network // peers that must send a PROXY header; others must not
	ProxyFirst  bool      // of datagrams from them, only the first of a flow has the header; if not, each has
	Sniff       Sniff
	Timeouts    Timeouts
	TCP         Socket
	TLS         *ServerTLS // nil: TLS is not terminated
	StartTLS    StartTLS
	Transparent bool // IP_TRANSPARENT: accept connections to addresses that are not this host's
	Interface   string

	Replies       int // datagrams: end a flow after this many replies; 0 means never
	Amplification Amplification
	Unreachable   string // datagrams: what an ICMP error does: next, end, ignore
	TOS           string // UDP: what datagrams keep of the TOS byte with which they arrive: none, ecn, copy

	Routes  []*Route // in order: the first that matches is taken
	To      []Part   // where a client goes that no route matches; nil: it is refused
	SplitBy string   // as Route.SplitBy
	// Default is the route to To, so that every flow has a route; nil if To is.
	Default *Route
}

// AllRoutes returns the listener's routes, its default last.
func (l *Listener) AllRoutes() []*Route {
	if l.Default == nil {
		return l.Routes
	}
	return append(slices.Clip(l.Routes), l.Default)
}

// Sniff limits what is read from a client before it is routed: a PROXY header, a ClientHello.
type Sniff struct {
	TLS     bool // some route depends on a server name or ALPN
	First   bool // some route depends on other first bytes
	JA4     bool // the fingerprint of a ClientHello that is read is recorded
	Max     int  // bytes
	Timeout time.Duration
}

// Limits of flows. 0 means no limit.
type Limits struct {
	Flows     int     // at once
	NewFlows  float64 // per second
	Burst     int     // of NewFlows; 0: a second's worth
	Source    SourceLimits
	Client    SourceLimits // of who has a certificate
	Bandwidth int64        // bytes per second, of a flow, in each direction
}

// SourceLimits limits one IPv4 address or one IPv6 /64, or one client by its certificate.
type SourceLimits struct {
	Flows    int
	NewFlows float64
	Burst    int
}

// Timeouts of a flow; 0 is never, except for Connect.
type Timeouts struct {
	Connect    time.Duration
	FirstByte  time.Duration // from being connected until the upstream's first byte
	Idle       time.Duration
	HalfClosed time.Duration
	Life       time.Duration // of the whole flow
	LifeJitter time.Duration // Life is up to this much shorter, another time for each flow
}

// Socket options of TCP sockets; see tcp(7).
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

// A Route says which clients go to which group. All conditions that are set must hold.
type Route struct {
	Name string
	From []Network // the client's address
	SNI  []string  // lower-case names of a TLS ClientHello; a leading "*." matches one or more labels
	ALPN []string  // one of them suffices: of what the client offers, or where its TLS is terminated, of what was agreed on
	// ClientNames are names in a client's certificate, of which one suffices: those with "://" are URIs, those with "@" addresses
	// of mail, others DNS names or the common name. A leading "*." matches one or more labels, a "/*" at the end whatever follows.
	ClientNames []string
	// What the client's first bytes must be, before any TLS ends here.
	Protocols []string      // one of Protocols suffices
	Prefixes  [][]byte      // one of them suffices
	Hosts     []string      // as SNI, of a request of HTTP/1
	Silence   time.Duration // the client sends nothing for this long; 0: no condition

	PassTLS bool // leave TLS to the upstream, where the listener terminates it
	To      []Part
	SplitBy string // what chooses one of several parts: SplitRandom or empty, or what is hashed: source, sni, or tlv:0xNN (see HashTLV)
	Removed LiveFlows
	// Timeouts of the route's flows: the listener's, overridden by the route's own.
	Timeouts  Timeouts
	Bandwidth int64 // bytes per second, of a flow, in each direction; 0: no limit
}

// AsksFirst reports whether the route has conditions on the client's first bytes besides those of TLS.
func (r *Route) AsksFirst() bool {
	return len(r.Protocols)+len(r.Prefixes)+len(r.Hosts) > 0 || r.Silence > 0
}

// PrefixTexts returns the prefixes as quoted strings of Go.
func (r *Route) PrefixTexts() (all []string) {
	for _, p := range r.Prefixes {
		all = append(all, strconv.Quote(string(p)))
	}
	return all
}

// LiveFlows says what happens to open flows on an occasion: their route or member is no longer in the configuration, their member goes down, or
// they are on a backup, and a primary is up again.
type LiveFlows struct {
	What  string // keep, drain, close; empty: keep
	After time.Duration
	// Jitter spreads the ends of drained flows over this time before the deadline.
	Jitter time.Duration
}

// Keeps reports whether flows continue.
func (l *LiveFlows) Keeps() bool { return l.What == "" || l.What == "keep" }

// Group is a set of upstreams.
type Group struct {
	Name     string
	Balance  string // one of Balancers
	Hash     string // what a balancer hashes: source, 4-tuple, sni, or tlv:0xNN (see HashTLV)
	Members  []Member
	Discover []Discover
	// Destination says where flows go instead of members; nil: to members.
	Destination *Destination
	Lookups     Lookups
	// Zone says what the zones of members are used for: ZonePrefer or ZoneWeighted; otherwise nothing.
	Zone string

	Timeouts  GroupTimeouts
	Retries   int // further members to try after a failed connect
	Queue     Queue
	SlowStart time.Duration // after a member comes up; 0: none
	Check     *Check        // nil: none
	Agent     *Agent        // nil: none
	Eject     *Eject        // nil: none
	Down      LiveFlows     // of a member that goes down or is ejected
	Up        LiveFlows     // of backups, when a primary is up again
	Rebalance *Rebalance    // nil: flows stay where they are
	Panic     float64       // when a smaller share of members is up, all get flows; 0 to 1, 0: never
	Dial      Dial
	TLS       *ClientTLS // flows originate TLS to the members; nil: they do not
	QUIC      *QUIC      // of datagram flows; nil: nothing is known of what the members speak
}

// Rebalance ends flows of the members that have most when another one has begun to accept flows.
type Rebalance struct {
	Share     float64       // of the group's flows that may end in a minute
	Idle      time.Duration // flows that have moved data more recently stay
	Tolerance float64       // a member may have this share more flows than its part
}

// Spreads reports whether a client that comes back may get any member of the group: it is not chosen by what the client is, or by its zone.
func Spreads(g *Group) bool {
	return g.Hash == "" && g.Balance != "first" && g.Zone != ZonePrefer && g.Zone != ZoneWeighted
}

// DiscoversIn reports whether the group finds members in a registry of a kind.
func (g *Group) DiscoversIn(kind string) bool {
	for i := range g.Discover {
		if g.Discover[i].Registry.Kind == kind {
			return true
		}
	}
	return false
}

// HashTLV returns the type of the TLV of a PROXY header in a value of Group.Hash or Route.SplitBy, and reports
// whether there is one.
func HashTLV(hash string) (kind uint8, ok bool) {
	digits, ok := strings.CutPrefix(hash, "tlv:")
	n, err := strconv.ParseUint(digits, 0, 8)
	return uint8(n), ok && err == nil
}

// Values of Group.Zone.
const (
	ZonePrefer   = "prefer"   // members of the relay's own zone get more flows than others
	ZoneWeighted = "weighted" // the members of an xDS locality together get flows by its weight
)

// GroupTimeouts are a group's timeouts for connecting.
type GroupTimeouts struct {
	Connect time.Duration // of one attempt
	Retries time.Duration // of all attempts; 0: no limit
}

// EndpointsOf returns where connections to a member are made to: its own, and that of its check if this has another port.
func (g *Group) EndpointsOf(m *Member) []Endpoint {
	all := []Endpoint{m.To}
	if m.CheckPort != 0 && g.Check != nil && !g.Check.Datagrams() {
		all = append(all, Endpoint{Kind: TCP, Host: m.To.Host, Port: m.CheckPort})
	}
	return all
}

// A Member is one upstream of the configuration.
type Member struct {
	Name         string // by default the endpoint's URL
	To           Endpoint
	Weight       int // 1 to 256
	Backup       bool
	MaxFlows     int        // open flows; 0: no limit
	Drained      bool       // gets no new flows
	CheckPort    uint16     // to check instead of its own; 0: as the group's check says
	CheckAddress netip.Addr // to check instead of its own; zero: its own
	AgentPort    uint16     // of its agent; 0: as the group's agent says
	AgentAddress netip.Addr // of its agent; zero: its own
	AgentSend    string     // to its agent; empty: as the group's agent says
	QUICServerID string     // its ID in the connection IDs of QUIC; empty: it has none
}

// Queue configures the queue of flows while every member is down or at its limit.
type Queue struct {
	Size    int // 0: no queue
	Timeout time.Duration
}

// Check configures active health checks of members.
type Check struct {
	Kind      string // tcp, send-expect, http, postgres, mysql, udp, quic
	Every     time.Duration
	EveryDown time.Duration // while the member is down; 0: Every
	Jitter    float64       // share of Every, 0 to 1
	Timeout   time.Duration
	Rise      int
	Fall      int
	Port      uint16     // instead of the member's; 0: the member's. A member's own CheckPort takes precedence
	Source    netip.Addr // to connect from; zero: the group's
	Shared    int        // how many relays of a fleet check a member for all; 0: each one for itself
	Send      []byte     // of send-expect and udp
	Expect    []byte     // what the answer must contain; empty: any answer
	Then      []Exchange // of send-expect: what follows, one after the other
	User      string     // of postgres and mysql
	Database  string     // of postgres; empty: User's
	Method    string     // of http
	Path      string
	Host      string
	Statuses  [][2]int   // for http: ranges that pass
	Body      string     // of http: what the body of the answer must contain; empty: anything
	BodyRE    string     // of http: a regular expression that the body must match; empty: anything
	TLS       *ClientTLS // nil: that of the group
	NoTLS     bool       // no TLS, whatever the group has
}

// Datagrams reports whether the check sends datagrams.
func (c *Check) Datagrams() bool { return c.Kind == "udp" || c.Kind == "quic" }

// Agent configures how the members' agents are asked: programs that say in a line what is to become of their members.
type Agent struct {
	Port    uint16 // a member's own AgentPort takes precedence
	Every   time.Duration
	Timeout time.Duration
	Send    []byte // first; empty: nothing
}

// An Exchange is a step of a check. A step that sends something waits for an answer: what had come before does not count. One that sends
// nothing goes on behind what the step before it has found.
type Exchange struct {
	Send   []byte // empty: nothing
	Expect []byte // what the answer must contain; empty: any answer
}

// Eject configures the ejection of members whose flows fail.
type Eject struct {
	Failures int           // in a row
	For      time.Duration // the first time; doubled each time, until Max
	Max      time.Duration
	Share    float64 // of the group's members that may be ejected at the same time, 0 to 1
}

// Dial configures connections to a group's members.
type Dial struct {
	Proxy      int   // PROXY protocol: 0, 1 or 2
	ProxyTLVs  []TLV // of version 2
	ProxySNI   bool  // add the sniffed server name and ALPN
	ProxyFirst bool  // only the first datagram of a flow has the header; if not, each has
	// ProxyTLS adds what is known of a client's TLS that was terminated, and ProxyCertificate the client's certificate.
	ProxyTLS, ProxyCertificate bool
	// ForwardTLVs are the types of TLVs that are passed on from the client's PROXY header;
	// ForwardAllTLVs passes on all.
	ForwardTLVs    []uint8
	ForwardAllTLVs bool
	Source         []netip.Addr
	Transparent    bool // connect from the client's address
	Interface      string
	Mark           uint32
	DSCP           uint8
	TCP            Socket
}

// A TLV is a type-length-value field of PROXY protocol version 2.
type TLV struct {
	Type  uint8
	Value []byte
}

// Protocols are the names of those that a route can ask for: clients say by their first bytes which one they speak. Package firstbytes
// reads them.
var Protocols = [...]string{ProtocolTLS, "ssh", ProtocolHTTP, "http2", "postgres", "rdp", "mqtt", "amqp", "socks5", "xmpp", "openvpn"}

// NumProtocols is the number of Protocols.
const NumProtocols = len(Protocols)

// Some of Protocols.
const (
	ProtocolTLS  = "tls"
	ProtocolHTTP = "http"
)

// MaxPrefix is the most bytes that one of Route.Prefixes may have.
const MaxPrefix = 256
