package convert

import (
	"strings"
	"time"
)

// proxy is what a frontend, backend or listen of HAProxy says, with its defaults.
type proxy struct {
	at
	kind, name string
	http       bool
	off        bool // disabled

	// The side of clients.
	binds      []bind
	maxconn    int
	backlog    int
	rate       int
	acls       map[string][]test
	uses       []use
	fallback   string       // default_backend
	access     []accessRule // of tcp-request connection, which come first
	later      []accessRule // of tcp-request session and content
	only       []accessRule // rules that refuse everybody else
	exempt     bool         // there is a content accept for some clients
	proxied    []string     // ranges of expect-proxy
	inspect    time.Duration
	keepalive  map[string]string // by key of tcp
	upstreamKA map[string]string
	log        bool

	// The side of servers.
	balance   string
	hash      string
	servers   []server
	defaults  server // default-server
	retries   int
	redisp    bool
	allBackup bool
	check     check
	source    string
	device    string

	timeouts map[string]time.Duration
}

// use is a use_backend.
type use struct {
	at
	to    string
	conds []condition // one of them must hold
}

// haproxyTime are HAProxy's units.
var haproxyTime = map[string]time.Duration{
	"us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

// time reads a time of HAProxy, in milliseconds without a unit.
func (p *plan) time(l line, s string) (time.Duration, bool) {
	d, ok := timeOf(s, haproxyTime, time.Millisecond)
	if !ok {
		p.note(l.at, "%s is not a time", quote(s))
	}
	return d, ok
}

// haproxy converts a configuration of HAProxy.
func haproxy(p *plan, files []File) *Error {
	sections, err := haproxySections(p, files)
	if err != nil {
		return err
	}
	h := &haproxyPlan{plan: p, backends: map[string]*proxy{}}
	for _, s := range sections {
		switch s.kind {
		case "global":
			h.global(s)
		case "defaults":
		case "frontend", "backend", "listen":
			x := h.proxy(s)
			if len(h.all) >= maxThings {
				p.note(s.at, "left out: more than %d sections", maxThings)
				break
			}
			h.all = append(h.all, x)
			if s.kind != "frontend" {
				if h.backends[x.name] != nil {
					p.note(s.at, "there is a backend %s already", quote(x.name))
					break
				}
				h.backends[x.name] = x
			}
		case "resolvers":
			p.note(s.at, "section resolvers: names are looked up with the host's resolver (/etc/resolv.conf), as often as the answers' TTL or discover's every says")
		default:
			p.note(s.at, "section %s: no counterpart%s", s.kind, hintOf(sectionHints, s.kind))
		}
	}
	for _, x := range h.all {
		h.listeners(x)
	}
	if h.logTo != "" {
		p.top.sub("access-log", "to", h.logTo)
		p.top.set("access-log", p.top.get("access-log"), "A JSON object per flow; format has templates (docs/operations.md).")
	}
	return nil
}

var sectionHints = map[string]string{
	"peers":   "; stick-tables are not shared: balance maglev keeps a client at its member in every relay alike",
	"mailers": "; the alerts in docs/prometheus fire on the same events",
	"program": "; use the service manager",
	"ring":    "; access-log sends to syslog itself",
}

func hintOf(hints map[string]string, word string) string { return hints[word] }

// haproxyPlan is a plan with what only HAProxy's needs.
type haproxyPlan struct {
	*plan
	all      []*proxy
	backends map[string]*proxy
	logTo    string // where the first log line goes
	spread   int    // spread-checks, in percent
	rcv, snd [2]int // tune.rcvbuf and sndbuf of clients and servers
	tls      tlsPaths
}

// proxy reads one section.
func (h *haproxyPlan) proxy(s *section) *proxy {
	x := &proxy{at: s.at, kind: s.kind, name: s.name, acls: map[string][]test{}, timeouts: map[string]time.Duration{},
		keepalive: map[string]string{}, upstreamKA: map[string]string{}, retries: -1}
	for _, l := range s.lines { // the mode decides how the others are read
		if l.words[0] == "mode" && len(l.words) > 1 {
			x.http = l.words[1] != "tcp"
		}
	}
	if x.http {
		return x
	}
	for _, l := range s.lines {
		h.proxyLine(x, l)
	}
	return x
}

// proxyLine reads one line of a section.
func (h *haproxyPlan) proxyLine(x *proxy, l line) {
	word, args := l.words[0], l.words[1:]
	arg := ""
	if len(args) > 0 {
		arg = args[0]
	}
	number := func(to *int) {
		if n, ok := count(arg); ok {
			*to = n
		} else {
			h.note(l.at, "%s %s: not a number", word, quote(arg))
		}
	}
	switch word {
	case "mode", "description", "id", "guid", "enabled", "nbproc", "bind-process", "log-tag", "log-steps", "grace", "max-session-srv-conns", "unique-id-format", "unique-id-header",
		"load-server-state-from-file", "server-state-file-name":
		// They change nothing here.
	case "disabled":
		x.off = true
	case "bind":
		h.bind(x, l)
	case "maxconn":
		number(&x.maxconn)
	case "backlog":
		number(&x.backlog)
	case "retries":
		number(&x.retries)
	case "rate-limit":
		if arg == "sessions" && len(args) == 2 {
			if n, ok := count(args[1]); ok {
				x.rate = n
				break
			}
		}
		h.note(l.at, "%s: no counterpart", strings.Join(l.words, " "))
	case "timeout":
		h.timeout(x, l)
	case "option":
		h.option(x, l)
	case "log":
		h.log(x, l)
	case "balance":
		h.balance(x, l)
	case "hash-type":
		if arg != "consistent" {
			h.note(l.at, "hash-type %s: maglev is always consistent: few clients change their member when members change", arg)
		}
	case "source":
		h.source(x, l)
	case "server", "default-server", "server-template":
		h.server(x, l)
	case "acl":
		h.acl(x, l)
	case "use_backend":
		h.use(x, l)
	case "default_backend":
		x.fallback = arg
	case "tcp-request":
		h.tcpRequest(x, l)
	case "tcp-check":
		h.tcpCheck(x, l)
	case "http-check":
		h.httpCheck(x, l)
	case "clitcpka-idle", "clitcpka-intvl", "clitcpka-cnt", "srvtcpka-idle", "srvtcpka-intvl", "srvtcpka-cnt":
		h.keepalive(x, l)
	default:
		switch {
		case httpWords[word] || strings.HasPrefix(word, "http-") || word == "stats":
			// Only mode http reads it; HAProxy itself ignores it here.
		default:
			h.note(l.at, "%s: no counterpart%s", word, hintOf(proxyHints, word))
		}
	}
}

// httpWords concern mode http only.
var httpWords = map[string]bool{
	"errorfile": true, "errorfiles": true, "errorloc": true, "errorloc302": true, "errorloc303": true, "cookie": true, "compression": true,
	"appsession": true, "capture": true, "monitor-uri": true, "redirect": true, "reqadd": true, "rspadd": true, "http-reuse": true, "max-keep-alive-queue": true,
	"retry-on": true, "rspdel": true, "reqdel": true, "ignore-persist": true, "force-persist": true,
}

var proxyHints = map[string]string{
	"stick-table":      "; limits.source of a listener bounds flows and new flows of one client",
	"stick":            "; balance: maglev keeps a client at its member",
	"persist":          "; balance: maglev keeps a client at its member",
	"use-server":       "; a route to a group with that member alone does the same",
	"monitor-net":      "; ready and alive are answered by the admin listener",
	"monitor":          "; ready and alive are answered by the admin listener",
	"log-format":       "; access-log has a format of its own (docs/operations.md)",
	"log-format-sd":    "; access-log has a format of its own (docs/operations.md)",
	"error-log-format": "; access-log has a format of its own (docs/operations.md)",
	"email-alert":      "; the alerts in docs/prometheus fire on the same events",
	"dispatch":         "; use a server line",
	"external-check":   "; use check: {send-expect: ...} or {http: ...}",
	"fullconn":         "; a member's max-flows is a fixed number",
	"tcp-response":     "",
	"filter":           "",
	"declare":          "",
}

func (h *haproxyPlan) timeout(x *proxy, l line) {
	if len(l.words) < 3 {
		h.note(l.at, "timeout without a time")
		return
	}
	name := l.words[1]
	switch name {
	case "connect", "client", "server", "tunnel", "client-fin", "server-fin", "queue", "check":
		if d, ok := h.time(l, l.words[2]); ok {
			x.timeouts[name] = d
		}
	case "client-hs":
		if d, ok := h.time(l, l.words[2]); ok {
			x.timeouts[name] = d
		}
	case "http-request", "http-keep-alive", "tarpit":
		// Only mode http knows them.
	default:
		h.note(l.at, "timeout %s: no counterpart", name)
	}
}

func (h *haproxyPlan) option(x *proxy, l line) {
	if len(l.words) < 2 {
		return
	}
	name, on := l.words[1], !l.no
	switch name {
	case "redispatch":
		x.redisp = on
	case "allbackups":
		x.allBackup = on
	case "tcplog":
		x.log = on
	case "clitcpka", "tcpka":
		x.keepalive["on"] = map[bool]string{true: "on"}[on]
		if name == "tcpka" {
			x.upstreamKA["on"] = x.keepalive["on"]
		}
	case "srvtcpka":
		x.upstreamKA["on"] = map[bool]string{true: "on"}[on]
	case "tcp-check", "httpchk", "redis-check", "smtpchk", "mysql-check", "pgsql-check", "ldap-check", "ssl-hello-chk", "spop-check", "external-check":
		if on {
			h.checkOption(x, l)
		} else if x.check.kind == name {
			x.check = check{}
		}
	case "splice-auto", "splice-request", "splice-response", "tcp-smart-accept", "tcp-smart-connect", "dontlognull", "log-health-checks", "log-separate-errors",
		"socket-stats", "contstats", "abortonclose", "independent-streams", "srvtcpka-idle":
		// What they ask for is always so here, or changes no byte.
	case "httplog", "http-server-close", "httpclose", "forwardfor", "http-keep-alive", "originalto", "http-buffer-request", "prefer-last-server", "http-use-htx",
		"accept-invalid-http-request", "accept-invalid-http-response", "http-no-delay", "http-pretend-keepalive", "http-tunnel", "forceclose", "checkcache", "disable-h2-upgrade", "h1-case-adjust-bogus-client", "h1-case-adjust-bogus-server", "http-ignore-probes", "http-restrict-req-hdr-names", "http-use-proxy-header", "nolinger", "idle-close-on-response":
		if name == "nolinger" && on {
			h.note(l.at, "option nolinger: no counterpart; a flow that ends in order is not reset")
		}
	default:
		if on {
			h.note(l.at, "option %s: no counterpart", name)
		}
	}
}

// keepalive reads clitcpka-idle and the like.
func (h *haproxyPlan) keepalive(x *proxy, l line) {
	if len(l.words) < 2 {
		return
	}
	to := x.keepalive
	if strings.HasPrefix(l.words[0], "srv") {
		to = x.upstreamKA
	}
	_, what, _ := strings.Cut(l.words[0], "-")
	if what == "cnt" {
		if n, ok := count(l.words[1]); ok {
			to["keepalive-count"] = string(number(n, 127))
		}
		return
	}
	d, ok := timeOf(l.words[1], haproxyTime, time.Second)
	if ok {
		to[map[string]string{"idle": "keepalive", "intvl": "keepalive-interval"}[what]] = string(duration(max(d, time.Second)))
	}
}

// log reads log lines: the first target of global is where the access log goes.
func (h *haproxyPlan) log(x *proxy, l line) {
	if l.no {
		x.log = false
		return
	}
	if len(l.words) > 1 && l.words[1] == "global" {
		return
	}
	h.logTarget(l)
}

func (h *haproxyPlan) balance(x *proxy, l line) {
	if len(l.words) < 2 {
		return
	}
	name, rest, _ := strings.Cut(l.words[1], "(")
	x.hash = ""
	switch name {
	case "roundrobin", "static-rr":
		x.balance = "round-robin"
	case "leastconn":
		x.balance = "least-connections"
	case "first":
		x.balance = "first"
	case "source":
		x.balance = "maglev"
	case "hash":
		if len(l.words) > 2 && l.words[2] == "src" {
			x.balance = "maglev"
			break
		}
		if len(l.words) > 2 && (l.words[2] == "req.ssl_sni" || l.words[2] == "req_ssl_sni") {
			x.balance, x.hash = "maglev", "sni"
			break
		}
		h.note(l.at, "%s: no counterpart; round-robin takes its place", strings.Join(l.words, " "))
		x.balance = "round-robin"
	case "random":
		x.balance = "p2c"
		if rest == "1)" {
			x.balance = "random"
		}
	default:
		h.note(l.at, "balance %s: no counterpart; round-robin takes its place", name)
		x.balance = "round-robin"
	}
}
