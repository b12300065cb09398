package sandboxneeds

import (
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A row declares what something needs: a key of the configuration, or what else a process is started with.
type row struct {
	key   string // SECTION.KEY, as in docs/configuration.md; or what else it is, without a dot
	when  When   // of a key
	needs []Kind // what it may need

	// These add what it needs. What there are none of, it does not depend on.
	config   func(*adder, *spec.Config)
	registry func(*adder, *spec.Registry)
	listener func(*adder, *spec.Listener)
	group    func(*adder, *spec.Group)
}

// When says when a change of a key takes effect.
type When uint8

// The times.
const (
	Now         When = iota
	ByKeeper         // now; the keeper is told
	NextWorker       // when another worker takes over, which a reload causes; without a keeper as NextService
	NextService      // at the next start of the service
)

var whenNames = [...]string{"now", "now, by the keeper", "another worker takes over", "next start of the service"}

// String returns the words of the documentation.
func (w When) String() string { return whenNames[w] }

// WhenChanged returns when a change of a key takes effect: SECTION.KEY, or the key alone if it is in no section.
func WhenChanged(key string) When {
	if !strings.Contains(key, ".") {
		key = "file." + key
	}
	for i := range rows {
		if rows[i].key == key {
			return rows[i].when
		}
	}
	return Now
}

// rows are those that need something, or whose changes do not take effect at once. All other keys are in harmless.
var rows = slices.Concat([]row{
	{key: "the system's own files", needs: []Kind{Read, Write}, config: system},
	{key: "the configuration", needs: []Kind{Read, Connect, AnyPort, Rebind}, config: source},
	{key: "--state", needs: []Kind{Write}, config: func(a *adder, c *spec.Config) {
		if state, err := a.in.Abs(c.Node.State); err == nil && c.Node.State != "" {
			a.tree(Write, state)
		}
	}},
	{key: "NOTIFY_SOCKET", needs: []Kind{Unix, Abstract}, config: func(a *adder, _ *spec.Config) {
		if a.in.Notify != "" {
			a.endpoint(Manager, spec.Endpoint{Kind: spec.Unixgram, Path: a.in.Notify})
		}
	}},
	{key: "a later reload", needs: []Kind{AnyBind, AnyPort, Unix, Rebind}, config: func(a *adder, _ *spec.Config) {
		if a.in.Reloads {
			a.add(AnyBind) // a new listener is the most frequent change, and should not cost a pause
		}
		if a.in.Reloads && a.in.Alone {
			a.add(AnyPort)
			a.add(Unix)
			a.add(Rebind)
		}
	}},
	{key: "fs.pipe-user-pages-soft", needs: []Kind{Resource}, config: func(a *adder, _ *spec.Config) {
		if a.in.PipesLimited {
			a.add(Resource)
		}
	}},
	{key: "members at run time", needs: []Kind{Connect, Unix, Abstract}, config: func(a *adder, _ *spec.Config) {
		for group, list := range a.in.Members {
			b := a.naming("groups." + group + ", at run time")
			b.later = true
			for _, to := range list {
				b.endpoint(Upstream, to)
			}
		}
	}},

	{key: "file.keeper", when: NextService},
	{key: "keeper.keep-after", when: NextWorker},
	{key: "keeper.watchdog", when: ByKeeper},
	{key: "keeper.start-timeout", when: ByKeeper},
	{key: "keeper.healthy-after", when: ByKeeper},
	{key: "keeper.max-restart-delay", when: ByKeeper},
	{key: "engine.loops", when: NextWorker},
	{key: "engine.pipes", when: NextWorker},
	{key: "engine.gso", when: NextWorker},
	{key: "engine.gro", when: NextWorker},
	{key: "engine.max-flows", when: NextWorker},
	{key: "engine.max-new-flows", when: NextWorker},
	{key: "engine.memory", when: NextWorker},
	{key: "sandbox.mode", when: NextWorker},
	{key: "sandbox.user", when: NextWorker},
	{key: "log.format", when: NextWorker},

	{key: "access-log.to", needs: []Kind{Write, Connect, Unix, Abstract}, config: func(a *adder, c *spec.Config) {
		to := c.AccessLog.To
		server, syslog := strings.CutPrefix(to, "syslog:")
		switch {
		case strings.HasPrefix(to, "/"):
			a.folder(Write, to)
		case syslog && !strings.Contains(server, "://") && !strings.HasPrefix(server, "unix"):
			server = "udp://" + server
			fallthrough
		case syslog:
			if e, err := spec.ParseUpstream(server); err == nil {
				a.endpoint(LogServer, e)
			}
		}
	}},
	{key: "otlp.to", needs: []Kind{Connect}, config: func(a *adder, c *spec.Config) { a.webServer(c.OTLP.To) }},
	{key: "otlp.token-file", needs: []Kind{Read}, config: func(a *adder, c *spec.Config) { a.folder(Read, c.OTLP.TokenFile) }},
	{key: "otlp.ca", needs: []Kind{Read}, config: func(a *adder, c *spec.Config) { a.folder(Read, c.OTLP.CA) }},
	{key: "admin.listen", when: NextWorker, needs: []Kind{Write, Bind, LowPort}, config: func(a *adder, c *spec.Config) {
		for _, e := range c.Admin.Listen {
			if e.Kind != spec.TCP || e.Port != 0 {
				a.endpoint(Admin, e)
			}
		}
	}},
	{key: "admin.mode", when: NextWorker},
	{key: "admin.token-file", when: NextWorker, needs: []Kind{Read}, config: token(0)},
	{key: "admin.read-token-file", when: NextWorker, needs: []Kind{Read}, config: token(1)},
	{key: "fleet.etcd", needs: []Kind{Read, Connect, AnyPort, Rebind}, config: func(a *adder, c *spec.Config) {
		if r := &c.Fleet.Registry; r.Kind != "" {
			a.naming("fleet").registry(r)
			a.rebinds(c.Listeners...)
		}
	}},

	{key: "registry.etcd", needs: []Kind{Connect, AnyPort}, registry: servers("etcd")},
	{key: "registry.consul", needs: []Kind{Connect, AnyPort}, registry: servers("consul")},
	{key: "registry.nomad", needs: []Kind{Connect, AnyPort}, registry: servers("nomad")},
	{key: "registry.docker", needs: []Kind{Connect, AnyPort, Unix}, registry: servers("docker")},
	{key: "registry.http", needs: []Kind{Connect, AnyPort}, registry: servers("http")},
	{key: "registry.kubernetes", needs: []Kind{Read, Connect, AnyPort}, registry: servers("kubernetes")},
	{key: "registry.xds", needs: []Kind{Connect, AnyPort}, registry: servers("xds")},
	{key: "registry.token-file", needs: []Kind{Read}, registry: registryFile(func(r *spec.Registry) string { return r.TokenFile })},
	{key: "registry.user-file", needs: []Kind{Read}, registry: registryFile(func(r *spec.Registry) string { return r.UserFile })},
	{key: "registry.tls.ca", needs: []Kind{Read}, registry: registryFile(func(r *spec.Registry) string { return r.CA })},
	{key: "registry.tls.certificate", needs: []Kind{Read}, registry: registryFile(func(r *spec.Registry) string { return r.Cert })},
	{key: "registry.tls.key", needs: []Kind{Read}, registry: registryFile(func(r *spec.Registry) string { return r.Key })},

	{key: "list.file", needs: []Kind{Read}, config: lists(func(a *adder, l *spec.List) { a.folder(Read, l.File) })},
	{key: "list.url", needs: []Kind{Connect}, config: lists(func(a *adder, l *spec.List) { a.webServer(l.URL) })},
	{key: "list.etcd", needs: []Kind{Read, Connect, AnyPort}, config: lists(func(a *adder, l *spec.List) {
		if l.Etcd != "" {
			a.registry(&l.Registry)
		}
	})},
	{key: "list.crowdsec", needs: []Kind{Connect}, config: lists(func(a *adder, l *spec.List) { a.webServer(l.CrowdSec) })},
	{key: "list.token-file", needs: []Kind{Read}, config: lists(func(a *adder, l *spec.List) { a.folder(Read, l.KeyFile) })},
	{key: "list.lines"},
	{key: "list.ca", needs: []Kind{Read}, config: lists(func(a *adder, l *spec.List) { a.folder(Read, l.CA) })},

	{key: "listener.listen", needs: []Kind{Bind, LowPort, Rebind, Write, Unix, Abstract, Connect}, listener: func(a *adder, l *spec.Listener) {
		if l.Inherit == "" {
			a.endpoint(Listener, l.Listen)
			if l.Listen.Kind == spec.UDP {
				a.rebinds(l) // by flows, when it closes
			}
		}
	}},
	{key: "listener.inherit", needs: []Kind{Abstract}, listener: func(a *adder, l *spec.Listener) {
		if l.Inherit != "" && a.in.Inherited != nil {
			a.endpoint(Inherited, spec.Endpoint{Kind: a.in.Inherited(l.Inherit)})
		}
	}},
	{key: "listener.mode", needs: []Kind{Modes}, listener: func(a *adder, l *spec.Listener) {
		if l.Mode != 0 && l.Inherit == "" && strings.HasPrefix(l.Listen.Path, "/") {
			a.add(Modes)
		}
	}},
	{key: "listener.transparent", needs: []Kind{NetAdmin}, listener: func(a *adder, l *spec.Listener) { a.addIf(l.Transparent, NetAdmin) }},
	{key: "tcp.mptcp", needs: []Kind{Multipath},
		listener: func(a *adder, l *spec.Listener) { a.addIf(l.TCP.MPTCP, Multipath) },
		group:    func(a *adder, g *spec.Group) { a.addIf(g.Dial.TCP.MPTCP, Multipath) }},
	{key: "listener.tls.certificate.certificate", needs: []Kind{Read}, listener: certificate(func(c *spec.Certificate) string { return c.Chain })},
	{key: "listener.tls.certificate.key", needs: []Kind{Read}, listener: certificate(func(c *spec.Certificate) string { return c.Key })},
	{key: "listener.tls.certificate.ocsp", needs: []Kind{Read}, listener: certificate(func(c *spec.Certificate) string { return c.OCSP })},
	{key: "listener.tls.certificate.folder", needs: []Kind{Read}, listener: certificateFolders},
	{key: "listener.tls.tickets.keys", needs: []Kind{Read}, listener: func(a *adder, l *spec.Listener) {
		if l.TLS != nil {
			a.folder(Read, l.TLS.Tickets.Keys)
		}
	}},
	{key: "listener.tls.clients.ca", needs: []Kind{Read}, listener: clients(func(c *spec.ClientCertificates) string { return c.CA })},
	{key: "listener.tls.clients.crl", needs: []Kind{Read}, listener: clients(func(c *spec.ClientCertificates) string { return c.CRL })},

	{key: "member.to", needs: []Kind{Connect, Unix, Abstract}, group: func(a *adder, g *spec.Group) {
		for i := range g.Members {
			a.endpoint(Upstream, g.Members[i].To)
		}
	}},
	{key: "member.check-port", needs: []Kind{Connect}, group: func(a *adder, g *spec.Group) {
		for i := range g.Members {
			if port := g.Members[i].CheckPort; port != 0 && g.Check != nil && !g.Check.Datagrams() {
				a.endpoint(Check, spec.Endpoint{Kind: spec.TCP, Port: port})
			}
		}
	}},
	{key: "agent.port", needs: []Kind{Connect}, group: func(a *adder, g *spec.Group) {
		if g.Agent != nil {
			a.endpoint(Check, spec.Endpoint{Kind: spec.TCP, Port: g.Agent.Port})
		}
	}},
	{key: "member.agent-port", needs: []Kind{Connect}, group: func(a *adder, g *spec.Group) {
		for i := range g.Members {
			if port := g.Members[i].AgentPort; port != 0 && g.Agent != nil {
				a.endpoint(Check, spec.Endpoint{Kind: spec.TCP, Port: port})
			}
		}
	}},
	{key: "discover.dns", needs: []Kind{Connect}, group: discovered("", func(d *spec.Discover) bool { return d.Service == "" })},
	{key: "discover.srv", needs: []Kind{Connect, AnyPort}, group: discovered("", func(d *spec.Discover) bool { return d.Service != "" })},
	{key: "discover.etcd", needs: []Kind{AnyPort}, group: discovered("etcd", nil)},
	{key: "discover.consul", needs: []Kind{AnyPort}, group: discovered("consul", nil)},
	{key: "discover.nomad", needs: []Kind{AnyPort}, group: discovered("nomad", nil)},
	{key: "discover.docker", needs: []Kind{AnyPort}, group: discovered("docker", nil)},
	{key: "discover.http", needs: []Kind{AnyPort}, group: discovered("http", nil)},
	{key: "discover.kubernetes", needs: []Kind{AnyPort}, group: discovered("kubernetes", nil)},
	{key: "discover.xds", needs: []Kind{AnyPort}, group: discovered("xds", nil)},
	{key: "group.destination.port", needs: []Kind{Connect, AnyPort}, group: func(a *adder, g *spec.Group) {
		switch d := g.Destination; {
		case d == nil:
		case d.Port == 0:
			a.add(AnyPort)
		default:
			a.port(Connect, d.Port) // at any address
		}
	}},
	{key: "group.destination.allow", needs: []Kind{Connect}, group: func(a *adder, g *spec.Group) {
		if d := g.Destination; d != nil && len(d.Allow) > 0 {
			a.naming("names").port(Connect, 53)
		}
	}},
	{key: "group.source", needs: []Kind{Bind, NetAdmin}, group: func(a *adder, g *spec.Group) {
		a.addIf(len(g.Dial.Source) > 0, Bind)
		a.addIf(g.Dial.Transparent, NetAdmin)
	}},
	{key: "group.interface", needs: []Kind{NetRaw}, group: func(a *adder, g *spec.Group) {
		a.addIf(g.Dial.Interface != "" && a.in.DeviceNeedsRaw, NetRaw)
	}},
	{key: "group.mark", needs: []Kind{NetAdmin}, group: func(a *adder, g *spec.Group) { a.addIf(g.Dial.Mark != 0, NetAdmin) }},
	{key: "group.tls.ca", needs: []Kind{Read}, group: clientFile(func(t *spec.ClientTLS) string { return t.CA })},
	{key: "group.tls.certificate", needs: []Kind{Read}, group: clientFile(func(t *spec.ClientTLS) string { return t.Cert })},
	{key: "group.tls.key", needs: []Kind{Read}, group: clientFile(func(t *spec.ClientTLS) string { return t.Key })},
}, checkRows("tcp"), checkRows("send-expect"), checkRows("http"), checkRows("postgres"), checkRows("mysql"), []row{checkTLS("quic")})

// harmless are the other keys, by section: they need nothing, and changes take effect at once.
const harmless = `
access-log: format mode
agent: every timeout send
check: tcp send-expect http postgres mysql udp quic
check.http: every every-down jitter timeout rise fall shared method path host statuses body body-matches
check.mysql: every every-down jitter timeout rise fall shared user
check.postgres: every every-down jitter timeout rise fall shared user database
check.quic: every every-down jitter timeout rise fall shared source port
check.send-expect: every every-down jitter timeout rise fall shared send expect then
check.send-expect.then: send expect
check.tcp: every every-down jitter timeout rise fall shared
check.udp: every every-down jitter timeout rise fall shared source port send expect
defaults: timeouts tcp sniff removed balance retries queue slow-start check eject down up rebalance
defaults.timeouts: connect retries first-byte idle half-closed life life-jitter
discover: registry port port-name tags datacenter stale namespace partition peer family docker-network published network every weight max-flows
eject: failures for max share
file: include defaults engine limits log access-log admin reload sandbox drain registries lists names otlp fleet listeners groups
fleet: registry drain-grace
group: balance hash members discover destination zone lookups timeouts retries queue slow-start check agent eject down up rebalance panic proxy-protocol dscp tcp tls quic
group.proxy-protocol: version datagrams tlvs forward names tls certificate
group.destination: by networks timeout
group.quic: ids learn
group.quic.ids: config server-id nonce key
group.timeouts: connect retries
group.tls: server-name verify min-version alpn starttls kernel
keeper: linger max-lingering
limits: flows new-flows burst
names: kept failures min-age max-age lookups queue per-source timeout
listener: datagrams backlog allow deny limits proxy-protocol sniff timeouts tcp tls starttls interface amplification replies unreachable tos removed routes to split-by
listener.amplification: ratio always
listener.limits: flows new-flows burst bandwidth source client
listener.limits.client: flows new-flows burst
listener.limits.source: flows new-flows burst
listener.proxy-protocol: from datagrams
listener.starttls: protocol clear
listener.tls: certificates unknown-names min-version alpn tickets clients handshake-timeout kernel
listener.tls.clients: verify
list: registry every
log: level flows
lookups: keep max-members vanish
otlp: instance every
member: name weight backup max-flows drained check-address agent-address agent-send quic-server-id
part: group refuse weight
queue: size timeout
registry: context tls
registry.tls: name
rebalance: share idle tolerance
reload: watch
removed: live-flows after jitter
route: name from sni alpn client-names protocol prefix host silence tls to split-by removed timeouts bandwidth
sniff: max timeout ja4
tcp: nagle keepalive keepalive-interval keepalive-count user-timeout fast-open congestion recv-buffer send-buffer
timeouts: first-byte idle half-closed life life-jitter
`

// name returns what the row's needs of an object are for.
func (r *row) name(object string) string {
	section, rest, _ := strings.Cut(r.key, ".")
	switch {
	case object == "":
		return strings.TrimPrefix(r.key, "file.")
	case section == "member":
		return object + ".members"
	case section == "listener", section == "group", section == "registry":
		return object + "." + rest
	}
	return object + "." + r.key
}
