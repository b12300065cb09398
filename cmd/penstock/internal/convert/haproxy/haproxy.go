package haproxy

import (
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// proxy is what a frontend, backend or listen of HAProxy says, with its defaults.
type proxy struct {
	convert.Place
	kind, name string
	http       bool
	off        bool // disabled

	// The side of clients.
	binds      []bind
	maxconn    int
	backlog    int
	rate       int
	acls       map[string]*acl
	lists      []string // the names of lists that its rules have read
	cases      bool     // a condition tells capital letters of server names from small ones
	uses       []use
	fallback   string // default_backend
	fallbackAt convert.Place
	access     []convert.AccessRule  // of tcp-request connection, which come first
	later      []convert.AccessRule  // of tcp-request session and content
	only       []convert.AccessRule  // rules that refuse everybody else
	exempt     bool                  // there is a content accept for some clients
	accepted   []convert.Condition   // whom rules of content have accepted, up to the line that is read
	skipped    []skippedRule         // rules that accept clients, and are left out: it matters if others are refused
	gates      [][]convert.Condition // of each one must hold for a client
	proxied    []string              // ranges of expect-proxy
	inspect    time.Duration
	rules      int               // of tcp-request
	exempted   []order           // rules that accept clients
	tracked    []tracked         // what stick counters count
	limits     []limitRule       // rules that refuse by them
	reached    bool              // a listener leads to it
	keepalive  map[string]string // by key of tcp
	upstreamKA map[string]string

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
	table     *stickTable

	timeouts map[string]time.Duration
}

// use is a use_backend.
type use struct {
	convert.Place
	to    string
	conds []convert.Condition // one of them must hold
	share convert.Share
}

// units are HAProxy's units.
var units = map[string]time.Duration{
	"us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

// time reads a time of HAProxy, in milliseconds without a unit.
func (h *conversion) time(l *line, s string) (time.Duration, bool) {
	d, ok := convert.TimeOf(s, units, time.Millisecond)
	if !ok {
		h.Note(l.Place, "%s is not a time", convert.Quote(s))
	}
	return d, ok
}

// Reader reads configurations of HAProxy.
var Reader = &convert.Reader{Product: convert.HAProxy, Name: "HAProxy", Read: read, Silent: silent}

// read converts a configuration of HAProxy.
func read(p *convert.Plan, files []convert.File) *convert.Error {
	sections, err := readSections(p, files)
	if err != nil {
		return err
	}
	h := &conversion{Plan: p, backends: map[string]*proxy{}, tables: map[string]*stickTable{}}
	for _, s := range sections {
		switch s.kind {
		case "global":
			h.global(s)
		case "defaults":
		case "frontend", "backend", "listen":
			x := h.proxy(s)
			if len(h.all) >= convert.MaxThings {
				p.Note(s.Place, "left out: more than %d sections", convert.MaxThings)
				break
			}
			h.all = append(h.all, x)
			if x.table != nil && h.tables[x.name] == nil {
				h.tables[x.name] = x.table
			}
			if s.kind != "frontend" {
				if h.backends[x.name] != nil {
					p.Note(s.Place, "there is a backend %s already", convert.Quote(x.name))
					break
				}
				h.backends[x.name] = x
			}
		case "resolvers":
			p.Note(s.Place, "section resolvers: names are looked up with the host's resolver (/etc/resolv.conf), as often as the answers' TTL or discover's every says")
		default:
			p.Note(s.Place, "section %s: no counterpart%s", s.kind, sectionHints[s.kind])
		}
	}
	for _, x := range h.all {
		h.listeners(x)
	}
	for _, x := range h.all {
		h.unused(x)
	}
	switch {
	case h.logTo != "" && !h.logs:
		p.Note(h.logAt, "log: flows are not logged, as no section has log global")
	case h.logTo != "":
		p.Top.Sub("access-log", "to", h.logTo)
		p.Top.Set("access-log", p.Top.Get("access-log"), "A JSON object per flow; format has templates (docs/observing.md).")
		if h.logComment != "" {
			p.Top.Set("access-log", p.Top.Get("access-log"), h.logComment)
		}
	}
	return nil
}

var sectionHints = map[string]string{
	"peers":   "; stick-tables are not shared: balance maglev keeps a client at its member in every relay alike",
	"mailers": "; the alerts in docs/prometheus fire on the same events",
	"program": "; use the service manager",
	"ring":    "; access-log sends to syslog itself",
}

// conversion is a plan with what only HAProxy's needs.
type conversion struct {
	*convert.Plan
	all        []*proxy
	backends   map[string]*proxy
	tables     map[string]*stickTable // by proxy
	logTo      string                 // where the first log line goes
	logAt      convert.Place
	logComment string
	logs       bool // a section writes to it
	unixBind   unixBind
	becomes    convert.Account // whom HAProxy becomes
	spread     int             // spread-checks, in percent
	rcv, snd   [2]int          // tune.rcvbuf and sndbuf of clients and servers
	tls        tlsPaths
	resolved   string // the variable of do-resolve
	named      bool   // clients name the hosts of servers at 0.0.0.0
}

// proxy reads one section.
func (h *conversion) proxy(s *section) *proxy {
	x := &proxy{Place: s.Place, kind: s.kind, name: s.name, acls: map[string]*acl{}, timeouts: map[string]time.Duration{},
		keepalive: map[string]string{}, upstreamKA: map[string]string{}, retries: -1}
	for _, l := range s.lines { // the mode decides how the others are read
		if l.words[0] == "mode" && len(l.words) > 1 {
			x.http = l.words[1] != "tcp"
		}
	}
	if x.http {
		return x
	}
	s.each(h.Plan, func(word string, l *line) {
		if where := onlyIn[word]; where != "" && x.kind != "listen" && x.kind != where {
			l.rest()
			if !l.inherited {
				h.Note(l.Place, "%s: HAProxy ignores it in a %s, too", word, x.kind)
			}
			return
		}
		h.proxyLine(x, word, l)
	})
	return x
}

// onlyIn says where words belong that frontends or backends do not have.
var onlyIn = map[string]string{
	"bind": "frontend", "maxconn": "frontend", "backlog": "frontend", "use_backend": "frontend", "default_backend": "frontend", "rate-limit": "frontend", "monitor-net": "frontend",
	"clitcpka-idle": "frontend", "clitcpka-intvl": "frontend", "clitcpka-cnt": "frontend",
	"balance": "backend", "hash-type": "backend", "server": "backend", "default-server": "backend", "server-template": "backend", "source": "backend", "retries": "backend", "fullconn": "backend", "dispatch": "backend",
	"tcp-check": "backend", "http-check": "backend", "stick": "backend", "use-server": "backend", "srvtcpka-idle": "backend", "srvtcpka-intvl": "backend", "srvtcpka-cnt": "backend",
}

// unused lists what nothing that is converted uses.
func (h *conversion) unused(x *proxy) {
	if x.http || x.off {
		return
	}
	if x.kind == "backend" && !x.reached && len(x.servers) > 0 {
		h.Note(x.Place, "backend %s left out: no listener that is converted leads to it", x.name)
	}
	if x.table != nil && !x.table.used {
		h.Note(x.table.Place, "stick-table: no counterpart; limits.source of a listener bounds flows and new flows of one client")
	}
	for _, t := range x.tracked {
		if !t.used {
			h.Note(t.Place, "track-sc%s left out: nothing that is converted asks for it; limits.source of a listener bounds flows and new flows of one client", t.counter)
		}
	}
	for _, r := range x.check.rules {
		kind, _, _ := strings.Cut(r.what, " ")
		if option := map[string]string{"tcp-check": "tcp-check", "http-check": "httpchk"}[kind]; x.check.kind != option && !x.check.inherited {
			h.Note(r.Place, "%s: HAProxy ignores it without option %s, too", r.what, option)
		}
	}
	h.unusedACLs(x)
}

// proxyLine reads one line of a section.
func (h *conversion) proxyLine(x *proxy, word string, l *line) {
	switch word {
	case "mode":
		l.next() // read before the others
	case "disabled":
		x.off = true
	case "enabled":
		x.off = false
	case "bind":
		h.bind(x, l)
	case "maxconn":
		h.number(l, &x.maxconn)
	case "backlog":
		h.number(l, &x.backlog)
	case "retries":
		h.number(l, &x.retries)
	case "rate-limit":
		if l.peek() == "sessions" {
			l.next()
			h.number(l, &x.rate)
		}
	case "timeout":
		h.timeout(x, l)
	case "option":
		h.option(x, l)
	case "log":
		h.log(x, l)
	case "balance":
		h.balance(x, l)
	case "hash-type":
		if kind := l.next(); kind != "consistent" {
			h.Note(l.Place, "hash-type %s: maglev is always consistent: few clients change their member when members change", kind)
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
		x.fallback, x.fallbackAt = l.next(), l.Place
	case "tcp-request":
		h.tcpRequest(x, l)
	case "tcp-check", "http-check":
		h.checkRule(x, word, l)
	case "stick-table":
		h.stickTable(x, l)
	case "clitcpka-idle", "clitcpka-intvl", "clitcpka-cnt", "srvtcpka-idle", "srvtcpka-intvl", "srvtcpka-cnt":
		h.keepalive(x, word, l)
	default:
		if strings.HasPrefix(word, "http-") || nothing("proxy", word) {
			l.rest() // in mode tcp HAProxy ignores http-*, too
			return
		}
		h.unknown(l, proxyHints)
	}
}

// unknown lists a line as a whole.
func (h *conversion) unknown(l *line, hints map[string]string) {
	l.rest()
	h.Note(l.Place, "%s: no counterpart%s", l.words[0], hints[l.words[0]])
}

// number reads a number.
func (h *conversion) number(l *line, to *int) {
	word := l.next()
	if n, ok := convert.Count(word); ok {
		*to = n
		return
	}
	h.Note(l.Place, "%s %s: not a number", l.words[0], convert.Quote(word))
}

var proxyHints = map[string]string{
	"stick":            "; balance: maglev keeps a client at its member",
	"persist":          "; balance: maglev keeps a client at its member",
	"use-server":       "; a route to a group with that member alone does the same",
	"monitor-net":      "; ready and alive are answered by the admin listener",
	"monitor":          "; ready and alive are answered by the admin listener",
	"log-format":       "; access-log has a format of its own (docs/observing.md)",
	"log-format-sd":    "; access-log has a format of its own (docs/observing.md)",
	"error-log-format": "; access-log has a format of its own (docs/observing.md)",
	"log-tag":          "; access-log writes to syslog as penstock",
	"email-alert":      "; the alerts in docs/prometheus fire on the same events",
	"dispatch":         "; use a server line",
	"external-check":   "; use check: {send-expect: ...} or {http: ...}",
	"fullconn":         "; a member's max-flows is a fixed number",
}

func (h *conversion) timeout(x *proxy, l *line) {
	switch name := l.next(); name {
	case "connect", "client", "server", "tunnel", "client-fin", "server-fin", "queue", "check", "client-hs":
		if d, ok := h.time(l, l.next()); ok {
			x.timeouts[name] = d
		}
	default:
		l.rest()
		if !nothing("timeout", name) {
			h.Note(l.Place, "timeout %s: no counterpart", name)
		}
	}
}

func (h *conversion) option(x *proxy, l *line) {
	name, on := l.next(), !l.no
	switch name {
	case "redispatch":
		x.redisp = on
		if every := l.next(); every != "" && every != "1" {
			h.Note(l.Place, "option redispatch %s: no counterpart; each attempt goes on to another member", every)
		}
	case "allbackups":
		x.allBackup = on
	case "tcp-check", "httpchk", "redis-check", "smtpchk", "mysql-check", "pgsql-check", "ldap-check", "ssl-hello-chk", "spop-check", "external-check":
		h.checkOption(x, name, l)
	case "nolinger":
		if on {
			h.Note(l.Place, "option nolinger: no counterpart; a flow that ends in order is not reset")
		}
	default:
		l.rest()
		if on && !nothing("option", name) {
			h.Note(l.Place, "option %s: no counterpart%s", name, optionHints[name])
		}
	}
}

var optionHints = map[string]string{
	"dontlognull":         "; the access log has flows without data, too",
	"dontlog-normal":      "; the access log has all flows, and log.flows: failed the others",
	"log-separate-errors": "; the access log has the cause of each flow",
	"logasap":             "; a flow is logged when it has ended",
	"independent-streams": "; timeouts.idle counts both directions",
	"transparent":         "; source: client connects from the client's address",
}

// keepalive reads clitcpka-idle and the like.
func (h *conversion) keepalive(x *proxy, word string, l *line) {
	to := x.keepalive
	if strings.HasPrefix(word, "srv") {
		to = x.upstreamKA
	}
	_, what, _ := strings.Cut(word, "-")
	if what == "cnt" {
		n := 0
		if h.number(l, &n); n > 0 {
			to["keepalive-count"] = string(convert.Number(n, 127))
		}
		return
	}
	if d, ok := convert.TimeOf(l.peek(), units, time.Second); ok {
		l.next()
		to[map[string]string{"idle": "keepalive", "intvl": "keepalive-interval"}[what]] = string(convert.Duration(max(d, time.Second)))
	}
}

// log reads log lines: the first target of global is where the access log goes.
func (h *conversion) log(x *proxy, l *line) {
	switch {
	case l.no:
		h.Note(l.Place, "no log: no counterpart; the access log has the flows of all listeners")
	case l.peek() == "global":
		l.next()
		h.logs = true
	default:
		h.logTarget(l)
		h.logs = true
	}
}

func (h *conversion) balance(x *proxy, l *line) {
	name, rest, _ := strings.Cut(l.next(), "(")
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
	case "random":
		x.balance = "p2c"
		if rest == "1)" {
			x.balance = "random"
		}
	case "hash":
		switch what := l.next(); what {
		case "src":
			x.balance = "maglev"
		case "req.ssl_sni", "req_ssl_sni":
			x.balance, x.hash = "maglev", "sni"
		default:
			h.noBalance(x, l)
		}
	default:
		h.noBalance(x, l)
	}
}

func (h *conversion) noBalance(x *proxy, l *line) {
	l.rest()
	h.Note(l.Place, "%s: no counterpart; round-robin takes its place", l.text())
	x.balance = "round-robin"
}
