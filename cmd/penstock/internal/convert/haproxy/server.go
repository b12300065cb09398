package haproxy

import (
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// bind is one address of a bind line.
type bind struct {
	convert.Place
	name, url string
	fields    convert.Fields
	proxied   bool
	v6only    bool
	tls       bindTLS
	maxconn   int
}

// bindWords are the options of bind that take a value.
var bindWords = map[string]bool{
	"backlog": true, "interface": true, "maxconn": true, "mode": true, "user": true, "group": true, "uid": true, "gid": true, "name": true, "tcp-ut": true, "mss": true,
	"id": true, "level": true, "severity-output": true, "expose-fd": true, "namespace": true, "nice": true, "process": true, "thread": true, "shards": true, "proto": true,
	"crt": true, "crt-list": true, "crt-ignore-err": true, "ca-sign-pass": true, "ca-file": true, "ca-verify-file": true, "ca-ignore-err": true, "ca-sign-file": true, "crl-file": true, "alpn": true, "npn": true, "ciphers": true, "ciphersuites": true,
	"curves": true, "ecdhe": true, "verify": true, "ssl-min-ver": true, "ssl-max-ver": true, "tls-ticket-keys": true, "sigalgs": true, "client-sigalgs": true, "ocsp-update": true, "label": true, "cc": true,
	"accept-netscaler-cip": true, "default-crt": true, "guid-prefix": true, "idle-ping": true, "ktls": true, "nbconn": true, "quic-cc-algo": true, "quic-socket": true, "tcp-md5sig": true,
}

// bind reads a bind line, which may have several addresses.
func (h *conversion) bind(x *proxy, l *line) {
	addresses := l.next()
	b := bind{Place: l.Place, tls: h.tls.bind}
	for l.more() {
		word, value := l.next(), ""
		if bindWords[word] {
			value = l.next()
		}
		h.bindOption(&b, word, value, l)
	}
	for address := range strings.SplitSeq(addresses, ",") {
		url, why := bindURL(h.unixBind.path(address))
		if why != "" {
			h.Note(l.Place, "bind %s left out: %s", address, why)
			continue
		}
		h.abns(l.Place, address)
		c := b
		c.url = url
		c.fields = append(convert.Fields(nil), b.fields...)
		if strings.HasPrefix(url, "unix:///") && c.fields.Get("mode") == nil && h.unixBind.mode != "" {
			c.fields.Set("mode", h.unixBind.mode)
		}
		if !h.serverSide(&c) {
			continue
		}
		x.binds = append(x.binds, c)
	}
}

// bindOption reads one option of a bind line.
func (h *conversion) bindOption(b *bind, word, value string, l *line) {
	n, isNumber := convert.Count(value)
	ok := true
	switch word {
	case "accept-proxy":
		b.proxied = true
	case "backlog":
		if ok = isNumber; ok {
			b.fields.Set("backlog", convert.Number(n, 1<<20))
		}
	case "interface":
		if ok = interfaceRE().MatchString(value); ok {
			b.fields.Set("interface", value)
		}
	case "transparent":
		b.fields.Set("transparent", convert.Raw("true"))
	case "maxconn":
		b.maxconn, ok = n, isNumber
	case "mode":
		if ok = modeRE().MatchString(value); ok {
			b.fields.Set("mode", convert.Raw(`"`+value+`"`))
		}
	case "name":
		b.name = value
	case "tfo":
		b.fields.Sub("tcp", "fast-open", convert.Raw("256"), "HAProxy's queue is as long as the backlog.")
	case "tcp-ut":
		if d, ok := h.time(l, value); ok && d > 0 {
			b.fields.Sub("tcp", "user-timeout", convert.Duration(d))
		}
	case "v6only":
		b.v6only = true
	default:
		ok = h.bindTLS(&b.tls, l.Place, word, value) || nothing("bind", word)
	}
	if !ok {
		h.Note(l.Place, "bind ... %s: no counterpart%s", strings.TrimSpace(word+" "+value), bindHints[word])
	}
}

var bindHints = map[string]string{
	"user":  "; a Unix socket belongs to the user that the daemon runs as, and mode says who else may connect",
	"group": "; a Unix socket belongs to the user that the daemon runs as, and mode says who else may connect",
	"uid":   "; a Unix socket belongs to the user that the daemon runs as, and mode says who else may connect",
	"gid":   "; a Unix socket belongs to the user that the daemon runs as, and mode says who else may connect",
	"mss":   "; advmss of a route (ip route) has the same effect",
}

// interfaceRE matches names of network interfaces.
var interfaceRE = convert.LazyRE(`^[^/\s\x00-\x1f]{1,15}$`)

// unixBind is what the line unix-bind of global says of Unix sockets.
type unixBind struct {
	prefix string
	mode   convert.Raw
}

// path returns an address of bind with the prefix that paths get.
func (u unixBind) path(address string) string {
	if rest, ok := strings.CutPrefix(address, "unix@"); ok {
		return "unix@" + u.prefix + rest
	}
	if strings.HasPrefix(address, "/") {
		return u.prefix + address
	}
	return address
}

// bindURL turns an address of bind into a URL.
func bindURL(s string) (url, why string) {
	family, rest, ok := strings.Cut(s, "@")
	if !ok {
		family, rest = "", s
	}
	switch family {
	case "":
		if strings.HasPrefix(s, "/") {
			return "unix://" + s, ""
		}
	case "unix":
		return "unix://" + rest, ""
	case "abns", "abnsz":
		return "unix:@" + rest, ""
	case "ipv4", "tcp4", "tcp", "ipv6", "tcp6":
	case "fd":
		return "", "sockets come by name: inherit, with FileDescriptorName= of a socket unit"
	default:
		return "", family + "@ has no counterpart"
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 {
		return "", "no port"
	}
	host, port := strings.Trim(rest[:i], "[]"), rest[i+1:]
	switch {
	case host == "*" || host == "":
		host = "0.0.0.0"
		if strings.HasSuffix(family, "6") {
			host = "::"
		}
	case host == ":":
		host = "::"
	}
	return convert.SocketURL("tcp", host, port), ""
}

// server is a server line, or the settings of default-server.
type server struct {
	convert.Place
	name, address string
	port          string // empty: that of the client
	unix          bool
	template      int // of a server-template: how many

	weight, maxconn  int
	weighted         bool
	backup, disabled bool
	agent            serverAgent
	tls              bool
	tlsOptions       serverTLS
	proxy            string // v1, v2
	proxyTLS         bool   // send-proxy-v2-ssl
	names            bool   // proxy-v2-options authority

	check          bool
	inter          time.Duration
	downInter      time.Duration // while it is down; 0: inter
	rise, fall     int
	checkPort      int
	checkAddr      string
	checkProxy     bool
	checkWhy       string // what of the check has no counterpart
	track          string // the server whose state this one has
	slowstart      time.Duration
	observe        bool
	markDown       bool
	endsDown       bool // on-marked-down shutdown-sessions
	endsBackups    bool // on-marked-up shutdown-backup-sessions
	errorLimit     int
	source, device string
	tfo            bool
	maxqueue       int
	userTimeout    time.Duration
}

// serverWords are the options of server that take a value.
var serverWords = map[string]bool{
	"addr": true, "agent-addr": true, "agent-inter": true, "agent-port": true, "agent-send": true, "alpn": true, "ca-file": true, "check-alpn": true, "check-proto": true, "check-sni": true, "ciphers": true, "ciphersuites": true,
	"cookie": true, "crl-file": true, "crt": true, "downinter": true, "error-limit": true, "fall": true, "fastinter": true, "id": true, "init-addr": true, "inter": true, "log-proto": true, "max-reuse": true, "maxconn": true,
	"maxqueue": true, "minconn": true, "namespace": true, "npn": true, "observe": true, "on-error": true, "on-marked-down": true, "on-marked-up": true, "pool-low-conn": true, "pool-max-conn": true, "pool-purge-delay": true,
	"port": true, "proto": true, "proxy-v2-options": true, "redir": true, "resolve-net": true, "resolve-opts": true, "resolve-prefer": true, "resolvers": true, "rise": true, "slowstart": true, "sni": true, "socks4": true,
	"source": true, "ssl-max-ver": true, "ssl-min-ver": true, "tcp-ut": true, "track": true, "verify": true, "verifyhost": true, "weight": true, "ws": true, "shard": true, "hash-key": true, "guid": true, "usesrc": true, "interface": true,
	"check-pool-conn-name": true, "curves": true, "idle-ping": true, "init-state": true, "log-bufsize": true, "pool-conn-name": true, "quic-cc-algo": true, "sigalgs": true, "client-sigalgs": true, "tcp-md5sig": true, "cc": true,
}

// server reads server, default-server and server-template lines.
func (h *conversion) server(x *proxy, l *line) {
	s := x.defaults
	s.Place = l.Place
	switch l.words[0] {
	case "server":
		s.name = l.next()
		if !l.more() {
			h.Note(l.Place, "server without a name and an address")
			return
		}
		h.abns(l.Place, l.peek())
		h.address(&s, l.next())
	case "server-template":
		s.name = l.next()
		first, most, ranged := strings.Cut(l.next(), "-")
		if !ranged {
			most = first
		}
		if !l.more() {
			h.Note(l.Place, "server-template without a prefix, a number and a name")
			return
		}
		s.template, _ = convert.Count(most)
		s.template = max(s.template, 1)
		h.abns(l.Place, l.peek())
		h.address(&s, l.next())
	}
	for l.more() {
		word, value := l.next(), ""
		if serverWords[word] {
			value = l.next()
		}
		h.serverOption(&s, l, word, value)
	}
	if l.words[0] == "default-server" {
		x.defaults = s
		return
	}
	if len(x.servers) >= convert.MaxThings {
		h.Note(l.Place, "server %s left out: more than %d", s.name, convert.MaxThings)
		return
	}
	x.servers = append(x.servers, s)
}

// abns notes an address whose other end cannot be another program.
func (h *conversion) abns(at convert.Place, address string) {
	if strings.HasPrefix(address, "abns@") {
		h.Note(at, "%s: HAProxy pads this name with zero bytes, Penstock does not: both ends must be converted", address)
	}
}

// address reads where a server is.
func (h *conversion) address(s *server, text string) {
	family, rest, ok := strings.Cut(text, "@")
	if !ok {
		family, rest = "", text
	}
	switch {
	case family == "unix" || family == "" && strings.HasPrefix(text, "/"):
		s.unix, s.address = true, rest
		return
	case family == "abns" || family == "abnsz":
		s.unix, s.address = true, "@"+rest
		return
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 || strings.HasSuffix(rest, "]") {
		s.address = strings.Trim(rest, "[]")
		return
	}
	s.address, s.port = strings.Trim(rest[:i], "[]"), rest[i+1:]
}

func (h *conversion) serverOption(s *server, l *line, word, value string) {
	n, isNumber := convert.Count(value)
	time := func(to *time.Duration) {
		if d, ok := h.time(l, value); ok {
			*to = d
		}
	}
	switch word {
	case "check":
		s.check = true
	case "no-check":
		s.check = false
	case "inter":
		time(&s.inter)
	case "downinter":
		time(&s.downInter)
	case "slowstart":
		time(&s.slowstart)
	case "tcp-ut":
		time(&s.userTimeout)
	case "rise", "fall", "port", "weight", "maxconn", "maxqueue", "error-limit":
		if !isNumber {
			h.Note(l.Place, "%s %s: not a number", word, convert.Quote(value))
			return
		}
		switch word {
		case "rise":
			s.rise = n
		case "fall":
			s.fall = n
		case "port":
			s.checkPort = n
		case "weight":
			s.weight, s.weighted = n, true
		case "maxconn":
			s.maxconn = n
		case "maxqueue":
			s.maxqueue = n
		case "error-limit":
			s.errorLimit = n
		}
	case "backup":
		s.backup = true
	case "no-backup":
		s.backup = false
	case "disabled":
		s.disabled = true
	case "enabled":
		s.disabled = false
	case "ssl":
		s.tls = true
	case "no-ssl":
		s.tls = false
	case "send-proxy":
		s.proxy = "v1"
	case "send-proxy-v2", "send-proxy-v2-ssl", "send-proxy-v2-ssl-cn":
		s.proxy = "v2"
		s.proxyTLS = word != "send-proxy-v2"
	case "no-send-proxy", "no-send-proxy-v2", "no-send-proxy-v2-ssl", "no-send-proxy-v2-ssl-cn":
		s.proxy, s.proxyTLS = "", false
	case "proxy-v2-options":
		for option := range strings.SplitSeq(value, ",") {
			switch option {
			case "authority":
				s.names = true
			case "ssl", "cert-cn", "ssl-cipher":
				s.proxyTLS = true
			default:
				h.Note(l.Place, "proxy-v2-options %s: no counterpart; authority (names: true), ssl, cert-cn and ssl-cipher (tls: true) have one", option)
			}
		}
	case "observe":
		if s.observe = value == "layer4"; !s.observe {
			h.Note(l.Place, "observe %s: no counterpart; observe layer4 is eject of a group", value)
		}
	case "on-error":
		if s.markDown = value == "mark-down"; !s.markDown {
			h.Note(l.Place, "on-error %s: no counterpart", value)
		}
	case "on-marked-down":
		if s.endsDown = value == "shutdown-sessions"; !s.endsDown {
			h.Note(l.Place, "on-marked-down %s: no counterpart; on-marked-down shutdown-sessions is down of a group", value)
		}
	case "on-marked-up":
		if s.endsBackups = value == "shutdown-backup-sessions"; !s.endsBackups {
			h.Note(l.Place, "on-marked-up %s: no counterpart; on-marked-up shutdown-backup-sessions is up of a group", value)
		}
	case "check-send-proxy":
		s.checkProxy = true
	case "no-check-send-proxy":
		s.checkProxy = false
	case "addr":
		s.checkAddr = value
	case "check-via-socks4":
		s.checkWhy = word + " has no counterpart"
	case "check-proto":
		if value != "h1" {
			s.checkWhy = "check-proto " + value + " has no counterpart"
		}
	case "track":
		s.track = value
	case "source":
		s.source = value
	case "usesrc":
		if value == "clientip" || value == "client" {
			s.source = "client"
		} else {
			h.Note(l.Place, "usesrc %s: no counterpart", value)
		}
	case "interface":
		s.device = value
	case "tfo":
		s.tfo = true
	case "no-tfo":
		s.tfo = false
	default:
		if !h.agentOption(&s.agent, l, word, value) && !h.serverTLS(&s.tlsOptions, l.Place, word, value) && !nothing("server", word) {
			h.Note(l.Place, "server ... %s: no counterpart%s", strings.TrimSpace(word+" "+value), serverHints[word])
		}
	}
}

var serverHints = map[string]string{
	"fastinter":      "; checks come every inter",
	"minconn":        "; max-flows is a fixed number",
	"resolve-prefer": "; addresses of both families become members",
}

// source reads the line source of a backend.
func (h *conversion) source(x *proxy, l *line) {
	x.source = l.next()
	for l.peek() == "usesrc" || l.peek() == "interface" {
		s := server{source: x.source, device: x.device}
		word := l.next()
		h.serverOption(&s, l, word, l.next())
		x.source, x.device = s.source, s.device
	}
}
