package config

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// The table of keys, in files by subject: the keys below "limits" are in table_limits.go. The
// reader, defaults, messages, schema and reference derive from it; no other code knows the name
// of a key.

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
	removed spec.LiveFlows
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
	section("otlp", otlpKeys, "An OpenTelemetry collector, which gets metrics, and flows that have ended if access-log says so.", func(f *file) *spec.OTLP { return &f.OTLP }),
	section("admin", adminKeys, "The admin listener, which serves the API, metrics and the dashboard.", func(f *file) *file { return f }),
	section("reload", reloadKeys, "When the configuration is read again.", func(f *file) *spec.Reload { return &f.Reload }),
	comparedByKey(field("keeper", scalarOr(none[spec.Keeper](), pointer(keeperKeys.filled())), spec.KeeperByDefault, "A second, small process that holds the sockets of flows and starts the worker again when it dies, so that flows continue. {}: with the default values; none: one process.",
		func(f *file) **spec.Keeper { return &f.Keeper }), keeperKeys, func(f *file) *spec.Keeper { return f.Keeper }),
	section("sandbox", sandboxKeys, "What the process that relays gives up before it reads anything from clients. See docs/sandbox.md.", func(f *file) *spec.Sandbox { return &f.Sandbox }),
	field("drain", duration(0, "0"), "30s", "How long flows may continue after the first signal to stop. 0: end them at once.", func(f *file) *time.Duration { return &f.Drain }),
	field("registries", byName(registryKeys.typ, func(g *registry, name string) { g.Name = name }).shown(showRegistries), "", "Where members are found, besides DNS, by name: see discover.", func(f *file) *[]*registry { return &f.registries }),
	comparedByPart(field("lists", byName(listKeys.typ, func(l *spec.List, name string) { l.Name = name }), "", "Lists of networks that change without a reload, by name: list:NAME in allow, deny and from. See docs/lists.md.", func(f *file) *[]*spec.List { return &f.Lists })),
	section("names", namesKeys, "Bounds of what is looked up in DNS for groups with a destination, all of them together. See docs/egress.md.", func(f *file) *spec.NameLimits { return &f.Names }),
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
	section("removed", removedKeys, "What happens to open flows when a reload removes their route or member.", func(d *defaults) *spec.LiveFlows { return &d.listener.removed }),
	balanceKey(func(d *defaults) *spec.Group { return &d.group }),
	retriesKey(func(d *defaults) *spec.Group { return &d.group }),
	section("queue", queueKeys, "Where flows wait while every member is down or at its max-flows.", func(d *defaults) *spec.Queue { return &d.group.Queue }),
	slowStartKey(func(d *defaults) *spec.Group { return &d.group }),
	checkKey(func(d *defaults) *spec.Group { return &d.group }),
	ejectKey(func(d *defaults) *spec.Group { return &d.group }),
	downKey(func(d *defaults) *spec.Group { return &d.group }),
	upKey(func(d *defaults) *spec.Group { return &d.group }),
	rebalanceKey(func(d *defaults) *spec.Group { return &d.group }),
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

var namesKeys = keysOf("names",
	field("kept", whole[int](1, 1<<20), "8192", "Maximum number of names that are kept with their addresses. Those asked for longest ago go first.", func(n *spec.NameLimits) *int { return &n.Names }),
	field("failures", whole[int](1, 1<<20), "2048", "Maximum number of names that are kept which have no address, or could not be looked up.", func(n *spec.NameLimits) *int { return &n.Failures }),
	field("min-age", duration(time.Millisecond, ""), "1s", "How long addresses are kept at least, even if the answer says less.", func(n *spec.NameLimits) *time.Duration { return &n.MinAge }),
	field("max-age", duration(time.Millisecond, ""), "1h", "How long addresses are kept at most, even if the answer says more.", func(n *spec.NameLimits) *time.Duration { return &n.MaxAge }),
	field("lookups", whole[int](1, 1<<16), "64", "Maximum number of names that are looked up at the same time.", func(n *spec.NameLimits) *int { return &n.Lookups }),
	field("queue", whole[int](0, 1<<20), "1024", "Maximum number of names that wait to be looked up. A client that asks for one too many is refused (name-limit).", func(n *spec.NameLimits) *int { return &n.Queue }),
	field("per-source", whole[int](1, 1<<20), "32", "Maximum number of names that are looked up, or wait for that, because of one IPv4 address or IPv6 /64.", func(n *spec.NameLimits) *int { return &n.PerSource }),
	field("timeout", duration(time.Millisecond, ""), "10s", "How long one lookup may take. A flow waits for it as long as timeout of its destination says.", func(n *spec.NameLimits) *time.Duration { return &n.Timeout }),
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
	field("linger", duration(0, "0"), "1h", "How long a worker that has handed over goes on to encrypt and decrypt for its flows whose TLS ends or begins here, which are the next worker's otherwise. What is open then is reset. 0: they are reset when it hands over.", func(k *spec.Keeper) *time.Duration { return &k.Linger }),
	field("max-lingering", count(spec.MostLingering), "4", "Maximum number of workers that linger. If there are more, the oldest one ends, with its flows. 0: none lingers.", func(k *spec.Keeper) *int { return &k.MaxLingering }),
)

var sandboxKeys = keysOf("sandbox",
	field("mode", oneOf("on", "log", "off"), "on", "on: give up what the configuration does not need, as far as the kernel can. log: nothing is refused, and the kernel logs system calls that would be. off: give up nothing.", func(s *spec.Sandbox) *string { return &s.Mode }),
	field("user", texts("user", "the name of a user, or UID:GID", `^([a-z_][a-z0-9_-]{0,31}|[0-9]{1,9}:[0-9]{1,9})$`, keepText), "", "Whom the process becomes if it was started as root. Default: it stays root, without root's capabilities.", func(s *spec.Sandbox) *string { return &s.User }),
)
