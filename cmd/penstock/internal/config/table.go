package config

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// The table of keys. The reader, defaults, messages, schema and reference derive from it; no
// other code knows the name of a key.

// file is a whole configuration before its references are resolved.
type file struct {
	spec.Config
	tokens     tokens
	defaults   defaults
	listeners  []*listener
	registries []*registry
	include    []string // always empty: included files are joined before the keys are read
}

// tokens are the paths of the token files.
type tokens struct{ all, read string }

// listener is a spec.Listener with the value of removed, which its routes inherit.
type listener struct {
	spec.Listener
	removed spec.Removed
}

// defaults holds what listeners and groups inherit.
type defaults struct {
	listener listener
	group    spec.Group
}

var fileKeys = keysOf("file",
	field("include", list(text("path", 4096)), "", "Further files of the configuration: files, folders, or patterns such as conf.d/*.yaml. A relative path starts at the folder of the file that has it.", func(f *file) *[]string { return &f.include }),
	section("defaults", defaultsKeys, "Values that listeners and groups have unless they set their own.", func(f *file) *defaults { return &f.defaults }),
	section("engine", engineKeys, "Resources of the engine. A change takes effect on the next start.", func(f *file) *spec.Engine { return &f.Engine }),
	section("limits", limitsKeys, "Limits of all listeners together.", func(f *file) *spec.Limits { return &f.Limits }),
	section("log", logKeys, "The daemon's own log, written to stderr.", func(f *file) *spec.Log { return &f.Log }),
	section("access-log", accessLogKeys, "One line for each flow that has ended.", func(f *file) *spec.AccessLog { return &f.AccessLog }),
	section("admin", adminKeys, "The admin listener, which serves the API, metrics and the dashboard.", func(f *file) *file { return f }),
	section("reload", reloadKeys, "When the configuration is read again.", func(f *file) *spec.Reload { return &f.Reload }),
	comparedByKey(field("keeper", scalarOr(none[spec.Keeper](), pointer(keeperKeys.filled())), spec.KeeperByDefault, "A second, small process that holds the sockets of flows and starts the worker again when it dies, so that flows continue. {}: with the default values; none: one process.",
		func(f *file) **spec.Keeper { return &f.Keeper }), keeperKeys, func(f *file) *spec.Keeper { return f.Keeper }),
	section("sandbox", sandboxKeys, "What the process that relays gives up before it reads anything from clients. See docs/sandbox.md.", func(f *file) *spec.Sandbox { return &f.Sandbox }),
	field("drain", duration(0, "0"), "30s", "How long flows may continue after the first signal to stop. 0: end them at once.", func(f *file) *time.Duration { return &f.Drain }),
	field("registries", byName(registryKeys.typ, func(g *registry, name string) { g.Name = name }).shown(showRegistries), "", "Where members are found, besides DNS, by name: see discover.", func(f *file) *[]*registry { return &f.registries }),
	section("fleet", fleetKeys, "Relays that are operated together: where this one reports and gets orders. See docs/fleet.md.", func(f *file) *spec.Fleet { return &f.Fleet }),
	comparedByPart(required(field("listeners", byName(listenerKeys.typ, func(l *listener, name string) { l.Name = name }), "", "Where clients connect, by name.",
		func(f *file) *[]*listener { return &f.listeners }))),
	comparedByPart(field("groups", byName(groupKeys.typ, func(g *spec.Group, name string) { g.Name = name }), "", "Sets of upstreams, by name.",
		func(f *file) *[]*spec.Group { return &f.Groups })),
)

var defaultsKeys = keysOf("defaults",
	section("timeouts", keysOf("defaults.timeouts", append(
		embed(groupTimeoutKeys.keys, func(d *defaults) *spec.GroupTimeouts { return &d.group.Timeouts }),
		embed(timeoutKeys.keys, func(d *defaults) *spec.Timeouts { return &d.listener.Timeouts })...)...),
		"Timeouts of listeners and groups.", func(d *defaults) *defaults { return d }),
	section("tcp", tcpKeys, "Options of TCP sockets, towards clients and upstreams.", func(d *defaults) *spec.Socket { return &d.listener.TCP }),
	section("sniff", sniffKeys, "How much a client may send before it is routed, where its first bytes matter.", func(d *defaults) *spec.Sniff { return &d.listener.Sniff }),
	section("removed", removedKeys, "What happens to open flows when a reload removes their route or member.", func(d *defaults) *spec.Removed { return &d.listener.removed }),
	balanceKey(func(d *defaults) *spec.Group { return &d.group }),
	retriesKey(func(d *defaults) *spec.Group { return &d.group }),
	section("queue", queueKeys, "Where flows wait while every member is down or at its max-flows.", func(d *defaults) *spec.Queue { return &d.group.Queue }),
	slowStartKey(func(d *defaults) *spec.Group { return &d.group }),
	checkKey(func(d *defaults) *spec.Group { return &d.group }),
	ejectKey(func(d *defaults) *spec.Group { return &d.group }),
)

var engineKeys = keysOf("engine",
	field("loops", count(256), "0", "Number of event loops. 0: one per CPU.", func(e *spec.Engine) *int { return &e.Loops }),
	field("pipes", whole[int](-1, 1<<18), "0", "Maximum number of pipes for splicing. 0: the engine's default; -1: never splice.", func(e *spec.Engine) *int { return &e.Pipes }),
	field("gso", boolean(false), "true", "Send datagrams in runs that the kernel splits (UDP_SEGMENT).", func(e *spec.Engine) *bool { return &e.NoGSO }),
	field("gro", boolean(false), "true", "Receive datagrams in runs that the kernel has merged (UDP_GRO).", func(e *spec.Engine) *bool { return &e.NoGRO }),
	field("max-flows", count(maxCount), "0", "Maximum number of datagram flows. Above it, a new flow replaces the least useful one. 0: derived from the descriptor limit.", func(e *spec.Engine) *int { return &e.MaxFlows }),
	field("max-new-flows", count(maxCount), "0", "Maximum number of datagram flows that each loop starts per second. 0: the engine's default.", func(e *spec.Engine) *int { return &e.MaxNewFlows }),
	field("memory", memoryType, "auto", "Memory that the daemon may use, with what the kernel holds for its sockets and pipes. As it runs short, the daemon stops taking new flows and then ends flows that are stalled or idle, never busy ones: docs/running.md, Overload. auto: the limit of the control group, if it has one; none: no limit.", func(e *spec.Engine) *int64 { return &e.Memory }),
)

var limitsKeys = keysOf("limits",
	field("flows", count(maxCount), "0", "Maximum number of open flows. 0: no limit.", func(l *spec.Limits) *int { return &l.Flows }),
	field("new-flows", rate, "0", "Maximum rate of new flows. 0: no limit.", func(l *spec.Limits) *float64 { return &l.NewFlows }),
	field("burst", count(maxCount), "0", "Maximum number of new flows at one moment, where new-flows limits their rate. 0: one second's worth.", func(l *spec.Limits) *int { return &l.Burst }),
)

var listenerLimitsKeys = keysOf("listener.limits", append(limitsKeys.keys[:len(limitsKeys.keys):len(limitsKeys.keys)],
	field("bandwidth", bandwidth, "0", "Maximum bandwidth of one flow in each direction. 0: no limit.", func(l *spec.Limits) *int64 { return &l.Bandwidth }),
	section("source", sourceLimitsKeys, "Limits of one client: an IPv4 address or an IPv6 /64.", func(l *spec.Limits) *spec.SourceLimits { return &l.Source }),
	section("client", clientLimitsKeys, "Limits of one client by its certificate, wherever it comes from: all certificates with the same issuer, subject and names are one. They hold from the handshake on, beside those of its source.", func(l *spec.Limits) *spec.SourceLimits { return &l.Client }),
)...)

var sourceLimitsKeys = keysOf("listener.limits.source",
	field("flows", count(maxCount), "0", "Maximum number of open flows. 0: no limit.", func(l *spec.SourceLimits) *int { return &l.Flows }),
	field("new-flows", rate, "0", "Maximum rate of new flows. 0: no limit.", func(l *spec.SourceLimits) *float64 { return &l.NewFlows }),
	field("burst", count(maxCount), "0", "Maximum number of new flows at one moment, where new-flows limits their rate. 0: one second's worth.", func(l *spec.SourceLimits) *int { return &l.Burst }),
)

var clientLimitsKeys = keysOf("listener.limits.client", sourceLimitsKeys.keys...)

var logKeys = keysOf("log",
	field("level", oneOf("debug", "info", "warn", "error"), "info", "The lowest level that is written.", func(l *spec.Log) *string { return &l.Level }),
	field("format", oneOf("auto", "text", "json"), "auto", "auto: text on a terminal, JSON otherwise.", func(l *spec.Log) *string { return &l.Format }),
	field("flows", oneOf("none", "failed", "all"), "failed", "Which flows are logged when they end.", func(l *spec.Log) *string { return &l.Flows }),
)

var accessLogKeys = keysOf("access-log",
	required(field("to", logTarget, "", "Where lines are written. A file is reopened on SIGUSR1.", func(a *spec.AccessLog) *string { return &a.To })),
	field("format", text("format", 4096), "json", "json, or a template of the fields in docs/observing.md.", func(a *spec.AccessLog) *string { return &a.Format }),
	field("mode", mode, `"0640"`, "Permissions of a newly created file.", func(a *spec.AccessLog) *uint32 { return &a.Mode }),
)

var adminKeys = keysOf("admin",
	required(field("listen", nonEmptyList(listenEndpoint), "", "Unix and TCP addresses, on all of which the same is served: for instance a Unix socket for the commands, and a port for Prometheus. TCP requires token-file, and a loopback address.", func(f *file) *[]spec.Endpoint { return &f.Admin.Listen })),
	field("mode", mode, `"0600"`, "Permissions of Unix sockets.", func(f *file) *uint32 { return &f.Admin.Mode }),
	field("token-file", filePath, "", "File with the token that grants full access over TCP.",
		func(f *file) *string { return &f.tokens.all }),
	field("read-token-file", filePath, "", "File with the token that grants read-only access over TCP.", func(f *file) *string { return &f.tokens.read }),
)

var reloadKeys = keysOf("reload",
	field("watch", boolean(true), "false", "Reload when the configuration changes on disk, not only on SIGHUP or by the API.", func(r *spec.Reload) *bool { return &r.Watch }),
)

var keeperKeys = keysOf("keeper",
	field("keep-after", duration(0, "0"), "1s", "Hold a flow once it has relayed for this long; shorter flows cost nothing, and end with the worker. 0: at once.", func(k *spec.Keeper) *time.Duration { return &k.KeepAfter }),
	field("watchdog", duration(100*time.Millisecond, "never"), "10s", "Kill a worker whose event loops have not answered for this long, and start it again. never, or 0: a worker that hangs stays.", func(k *spec.Keeper) *time.Duration { return &k.Watchdog }),
	field("start-timeout", duration(100*time.Millisecond, ""), "30s", "How long a worker may take to start. Of an upgrade that takes longer nothing remains: the old binary continues.", func(k *spec.Keeper) *time.Duration { return &k.StartTimeout }),
	field("healthy-after", duration(0, "0"), "10s", "How long the worker of an upgrade must run: if it dies earlier, the old binary continues.", func(k *spec.Keeper) *time.Duration { return &k.HealthyAfter }),
	field("max-restart-delay", duration(100*time.Millisecond, ""), "10s", "A worker is started again at once, and after repeated failures with growing delays up to this one.", func(k *spec.Keeper) *time.Duration { return &k.MaxRestartDelay }),
)

var sandboxKeys = keysOf("sandbox",
	field("mode", oneOf("on", "log", "off"), "on", "on: give up what the configuration does not need, as far as the kernel can. log: nothing is refused, and the kernel logs system calls that would be. off: give up nothing.", func(s *spec.Sandbox) *string { return &s.Mode }),
	field("user", texts("user", "the name of a user, or UID:GID", `^([a-z_][a-z0-9_-]{0,31}|[0-9]{1,9}:[0-9]{1,9})$`, keepText), "", "Whom the process becomes if it was started as root. Default: it stays root, without root's capabilities.", func(s *spec.Sandbox) *string { return &s.User }),
)

// Sections that listeners, routes and groups share.

var timeoutKeys = keysOf("timeouts",
	field("first-byte", duration(time.Millisecond, "never"), "never", "Maximum time from the connection to the upstream until its first byte.", func(t *spec.Timeouts) *time.Duration { return &t.FirstByte }),
	field("idle", duration(time.Millisecond, "never"), "never", "End a flow that has moved no data for this long. Datagram listeners: 60s by default.", func(t *spec.Timeouts) *time.Duration { return &t.Idle }),
	field("half-closed", duration(time.Millisecond, "never"), "60s", "End a flow when one side has closed and the other has moved no data for this long.", func(t *spec.Timeouts) *time.Duration { return &t.HalfClosed }),
	field("life", duration(time.Millisecond, "never"), "never", "Maximum duration of a flow.", func(t *spec.Timeouts) *time.Duration { return &t.Life }),
)

var groupTimeoutKeys = keysOf("group.timeouts",
	field("connect", duration(time.Millisecond, ""), "5s", "Maximum time of one attempt to connect.", func(t *spec.GroupTimeouts) *time.Duration { return &t.Connect }),
	field("retries", duration(time.Millisecond, "never"), "never", "Maximum time of all attempts together. never: no further limit.", func(t *spec.GroupTimeouts) *time.Duration { return &t.Retries }),
)

var tcpKeys = keysOf("tcp",
	field("nagle", boolean(true), "false", "Let TCP delay small segments to merge them (TCP_NODELAY off).", func(s *spec.Socket) *bool { return &s.Nagle }),
	field("keepalive", duration(time.Second, "never"), "2m", "Probe a peer that has been silent for this long.", func(s *spec.Socket) *time.Duration { return &s.KeepAlive }),
	field("keepalive-interval", duration(time.Second, "0"), "0", "Time between probes. 0: the kernel's default.", func(s *spec.Socket) *time.Duration { return &s.KeepAliveInterval }),
	field("keepalive-count", count(127), "0", "Number of unanswered probes that ends the connection. 0: the kernel's default.", func(s *spec.Socket) *int { return &s.KeepAliveCount }),
	field("user-timeout", duration(time.Millisecond, "0"), "0", "End a connection whose data stays unacknowledged for this long. 0: the kernel's default.", func(s *spec.Socket) *time.Duration { return &s.UserTimeout }),
	field("fast-open", count(65535), "0", "Listeners: the length of the TCP Fast Open queue. Upstreams: any number above 0 enables TCP Fast Open.", func(s *spec.Socket) *int { return &s.FastOpen }),
	field("mptcp", boolean(true), "false", "Use Multipath TCP where the kernel and the peer support it.", func(s *spec.Socket) *bool { return &s.MPTCP }),
	field("congestion", congestion, "", "Congestion control algorithm, one of net.ipv4.tcp_available_congestion_control. Default: the kernel's.", func(s *spec.Socket) *string { return &s.Congestion }),
	field("recv-buffer", size(0, maxCount), "0", "SO_RCVBUF. 0: the kernel tunes it.", func(s *spec.Socket) *int { return &s.RecvBuffer }),
	field("send-buffer", size(0, maxCount), "0", "SO_SNDBUF. 0: the kernel tunes it.", func(s *spec.Socket) *int { return &s.SendBuffer }),
)

var sniffKeys = keysOf("sniff",
	field("max", size(512, 1<<20), "64KiB", "Maximum size of a PROXY header and a ClientHello together, or of the datagrams of a QUIC client until its ClientHello is complete.", func(s *spec.Sniff) *int { return &s.Max }),
	field("timeout", duration(time.Millisecond, ""), "5s", "How long a client may take to send them.", func(s *spec.Sniff) *time.Duration { return &s.Timeout }),
)

var removedKeys = keysOf("removed",
	field("live-flows", oneOf("keep", "drain", "close"), "keep", "keep: they continue. drain: they continue until a deadline. close: they end at once.", func(r *spec.Removed) *string { return &r.What }),
	field("after", duration(0, "0"), "30s", "drain: how long flows may continue.", func(r *spec.Removed) *time.Duration { return &r.After }),
	field("jitter", duration(0, "0"), "0", "drain: spread the ends of flows over this long before the deadline.", func(r *spec.Removed) *time.Duration { return &r.Jitter }),
)
