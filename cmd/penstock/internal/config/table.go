package config

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// The table of keys, from the leaves to the file. Reader, defaults, messages,
// schema and reference are made of it; nothing else knows a key's name.

// file is the whole of it, before references are resolved.
type file struct {
	spec.Config
	tokens    tokens
	defaults  defaults
	listeners []*listener
}

// tokens are the files that hold them.
type tokens struct{ all, read string }

// listener is a spec.Listener, and what it says for its routes.
type listener struct {
	spec.Listener
	removed spec.Removed
}

// defaults is what listeners and groups inherit.
type defaults struct {
	listener listener
	group    spec.Group
}

var fileKeys = keysOf("file",
	section("defaults", defaultsKeys, "What listeners and groups do unless they say otherwise.", func(f *file) *defaults { return &f.defaults }),
	section("engine", engineKeys, "What the engine uses. A change needs a restart.", func(f *file) *spec.Engine { return &f.Engine }),
	section("limits", limitsKeys, "Bounds of all listeners together.", func(f *file) *spec.Limits { return &f.Limits }),
	section("log", logKeys, "The daemon's own log, on stderr.", func(f *file) *spec.Log { return &f.Log }),
	section("access-log", accessLogKeys, "A line for each flow that has ended.", func(f *file) *spec.AccessLog { return &f.AccessLog }),
	section("admin", adminKeys, "Where operators ask: API, metrics, dashboard.", func(f *file) *file { return f }),
	section("reload", reloadKeys, "When a new configuration is taken.", func(f *file) *spec.Reload { return &f.Reload }),
	field("drain", duration(0, "0"), "30s", "How long flows may go on after the first signal to stop; 0 cuts them at once.", func(f *file) *time.Duration { return &f.Drain }),
	apart(must(field("listeners", byName(listenerKeys.typ, func(l *listener, name string) { l.Name = name }), "", "Where clients come in, by name.",
		func(f *file) *[]*listener { return &f.listeners }))),
	apart(field("groups", byName(groupKeys.typ, func(g *spec.Group, name string) { g.Name = name }), "", "Sets of upstreams, by name.",
		func(f *file) *[]*spec.Group { return &f.Groups })),
)

var defaultsKeys = keysOf("defaults",
	section("timeouts", keysOf("defaults.timeouts", append(
		lift(groupTimeoutKeys.keys, func(d *defaults) *spec.GroupTimeouts { return &d.group.Timeouts }),
		lift(timeoutKeys.keys, func(d *defaults) *spec.Timeouts { return &d.listener.Timeouts })...)...),
		"Of listeners and groups.", func(d *defaults) *defaults { return d }),
	section("tcp", tcpKeys, "Options of TCP sockets, on both sides.", func(d *defaults) *spec.Socket { return &d.listener.TCP }),
	section("sniff", sniffKeys, "How much is read of a client before it is routed.", func(d *defaults) *spec.Sniff { return &d.listener.Sniff }),
	section("removed", removedKeys, "What happens to live flows of a route or member that a new configuration does not have.", func(d *defaults) *spec.Removed { return &d.listener.removed }),
	balanceKey(func(d *defaults) *spec.Group { return &d.group }),
	retriesKey(func(d *defaults) *spec.Group { return &d.group }),
	section("queue", queueKeys, "Where flows wait while every member is down or at its cap.", func(d *defaults) *spec.Queue { return &d.group.Queue }),
	slowStartKey(func(d *defaults) *spec.Group { return &d.group }),
	checkKey(func(d *defaults) *spec.Group { return &d.group }),
	ejectKey(func(d *defaults) *spec.Group { return &d.group }),
)

var engineKeys = keysOf("engine",
	field("loops", count(256), "0", "Event loops; 0: one per CPU.", func(e *spec.Engine) *int { return &e.Loops }),
	field("pipes", whole[int](-1, 1<<18), "0", "Pipes that splicing may use; 0: the engine's default, -1: never splice.", func(e *spec.Engine) *int { return &e.Pipes }),
	field("gso", truth(false), "true", "Send datagrams in runs that the kernel cuts (UDP_SEGMENT).", func(e *spec.Engine) *bool { return &e.NoGSO }),
	field("gro", truth(false), "true", "Receive datagrams in runs that the kernel joins (UDP_GRO).", func(e *spec.Engine) *bool { return &e.NoGRO }),
	field("max-flows", count(many), "0", "Datagram flows at most; the least useful gives way. 0: from the limit on descriptors.", func(e *spec.Engine) *int { return &e.MaxFlows }),
	field("max-new-flows", count(many), "0", "Datagram flows that each loop begins a second at most; 0: the engine's default.", func(e *spec.Engine) *int { return &e.MaxNewFlows }),
)

var limitsKeys = keysOf("limits",
	field("flows", count(many), "0", "Flows at once; 0: no bound.", func(l *spec.Limits) *int { return &l.Flows }),
	field("new-flows", rate, "0", "New flows in a time; 0: no bound.", func(l *spec.Limits) *float64 { return &l.NewFlows }),
	field("burst", count(many), "0", "New flows that may come at once; 0: a second's worth.", func(l *spec.Limits) *int { return &l.Burst }),
)

var listenerLimitsKeys = keysOf("listener.limits", append(limitsKeys.keys[:len(limitsKeys.keys):len(limitsKeys.keys)],
	field("bandwidth", bandwidth, "0", "Of one flow, each way; 0: no bound.", func(l *spec.Limits) *int64 { return &l.Bandwidth }),
	section("source", sourceLimitsKeys, "Bounds of one IPv4 address or one IPv6 /64.", func(l *spec.Limits) *spec.SourceLimits { return &l.Source }),
)...)

var sourceLimitsKeys = keysOf("listener.limits.source",
	field("flows", count(many), "0", "Flows at once; 0: no bound.", func(l *spec.SourceLimits) *int { return &l.Flows }),
	field("new-flows", rate, "0", "New flows in a time; 0: no bound.", func(l *spec.SourceLimits) *float64 { return &l.NewFlows }),
	field("burst", count(many), "0", "New flows that may come at once; 0: a second's worth.", func(l *spec.SourceLimits) *int { return &l.Burst }),
)

var logKeys = keysOf("log",
	field("level", oneOf("debug", "info", "warn", "error"), "info", "The least that is told.", func(l *spec.Log) *string { return &l.Level }),
	field("format", oneOf("auto", "text", "json"), "auto", "auto is text on a terminal and JSON otherwise.", func(l *spec.Log) *string { return &l.Format }),
	field("flows", oneOf("none", "failed", "all"), "failed", "Which flows get a line in it when they end.", func(l *spec.Log) *string { return &l.Flows }),
)

var accessLogKeys = keysOf("access-log",
	must(field("to", logTarget, "", "Where lines go. A file is opened again on SIGUSR1.", func(a *spec.AccessLog) *string { return &a.To })),
	field("format", text("format", 4096), "json", "json, or a template with the fields of docs/operations.md.", func(a *spec.AccessLog) *string { return &a.Format }),
	field("mode", mode, `"0640"`, "Permissions of a file that is made.", func(a *spec.AccessLog) *uint32 { return &a.Mode }),
)

var adminKeys = keysOf("admin",
	must(field("listen", listenEndpoint, "", "A Unix or TCP address. TCP needs token-file, and should be a loopback address.", func(f *file) *spec.Endpoint { return &f.Admin.Listen })),
	field("mode", mode, `"0600"`, "Permissions of the Unix socket.", func(f *file) *uint32 { return &f.Admin.Mode }),
	field("token-file", text("path", 4096), "", "The file with the token that clients of a TCP address show for everything. A relative path begins at the configuration's folder.",
		func(f *file) *string { return &f.tokens.all }),
	field("read-token-file", text("path", 4096), "", "The file with the token for reading only.", func(f *file) *string { return &f.tokens.read }),
)

var reloadKeys = keysOf("reload",
	field("watch", truth(true), "false", "Reload when the file changes, not on SIGHUP and by the API alone.", func(r *spec.Reload) *bool { return &r.Watch }),
)

// What listeners, routes and groups share.

var timeoutKeys = keysOf("timeouts",
	field("first-byte", duration(time.Millisecond, "never"), "never", "From being connected until the upstream's first byte.", func(t *spec.Timeouts) *time.Duration { return &t.FirstByte }),
	field("idle", duration(time.Millisecond, "never"), "never", "A flow that moves nothing ends after it. Of datagram listeners 60s by default.", func(t *spec.Timeouts) *time.Duration { return &t.Idle }),
	field("half-closed", duration(time.Millisecond, "never"), "60s", "One side has ended, and the other moves nothing.", func(t *spec.Timeouts) *time.Duration { return &t.HalfClosed }),
	field("life", duration(time.Millisecond, "never"), "never", "Of the whole flow.", func(t *spec.Timeouts) *time.Duration { return &t.Life }),
)

var groupTimeoutKeys = keysOf("group.timeouts",
	field("connect", duration(time.Millisecond, ""), "5s", "Of one attempt to connect.", func(t *spec.GroupTimeouts) *time.Duration { return &t.Connect }),
	field("retries", duration(time.Millisecond, "never"), "never", "Of all attempts together; never: no bound of their own.", func(t *spec.GroupTimeouts) *time.Duration { return &t.Retries }),
)

var tcpKeys = keysOf("tcp",
	field("nagle", truth(true), "false", "Let TCP wait for more before it sends a small segment.", func(s *spec.Socket) *bool { return &s.Nagle }),
	field("keepalive", duration(time.Second, "never"), "2m", "Probe a peer that has been silent for so long.", func(s *spec.Socket) *time.Duration { return &s.KeepAlive }),
	field("keepalive-interval", duration(time.Second, "0"), "0", "Between probes; 0: the kernel's.", func(s *spec.Socket) *time.Duration { return &s.KeepAliveInterval }),
	field("keepalive-count", count(127), "0", "Probes without an answer that end the connection; 0: the kernel's.", func(s *spec.Socket) *int { return &s.KeepAliveCount }),
	field("user-timeout", duration(time.Millisecond, "0"), "0", "End a connection whose data stays unacknowledged for so long; 0: the kernel's.", func(s *spec.Socket) *time.Duration { return &s.UserTimeout }),
	field("fast-open", count(65535), "0", "A listener's queue of TCP fast open; towards upstreams anything above 0 turns it on.", func(s *spec.Socket) *int { return &s.FastOpen }),
	field("mptcp", truth(true), "false", "Multipath TCP, where kernel and peer have it.", func(s *spec.Socket) *bool { return &s.MPTCP }),
	field("congestion", congestion, "", "A congestion control of net.ipv4.tcp_available_congestion_control; by default the kernel's.", func(s *spec.Socket) *string { return &s.Congestion }),
	field("recv-buffer", size(0, many), "0", "SO_RCVBUF; 0: the kernel tunes it.", func(s *spec.Socket) *int { return &s.RecvBuffer }),
	field("send-buffer", size(0, many), "0", "SO_SNDBUF; 0: the kernel tunes it.", func(s *spec.Socket) *int { return &s.SendBuffer }),
)

var sniffKeys = keysOf("sniff",
	field("max", size(512, 1<<20), "64KiB", "Bytes that are read at most of a PROXY header and a ClientHello.", func(s *spec.Sniff) *int { return &s.Max }),
	field("timeout", duration(time.Millisecond, ""), "5s", "How long a client may take for them.", func(s *spec.Sniff) *time.Duration { return &s.Timeout }),
)

var removedKeys = keysOf("removed",
	field("live-flows", oneOf("keep", "drain", "close"), "keep", "Let them go on, let them go on until a deadline, or end them at once.", func(r *spec.Removed) *string { return &r.What }),
	field("after", duration(0, "0"), "30s", "The deadline of drain.", func(r *spec.Removed) *time.Duration { return &r.After }),
	field("jitter", duration(0, "0"), "0", "Spread the ends over so long before the deadline.", func(r *spec.Removed) *time.Duration { return &r.Jitter }),
)
