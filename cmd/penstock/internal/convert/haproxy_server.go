package convert

import (
	"strings"
	"time"
)

// bind is one address of a bind line.
type bind struct {
	at
	name, url string
	fields    fields
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
	"accept-netscaler-cip": true,
}

// bind reads a bind line, which may have several addresses.
func (h *haproxyPlan) bind(x *proxy, l line) {
	if len(l.words) < 2 {
		h.note(l.at, "bind without an address")
		return
	}
	b := bind{at: l.at, tls: h.tls.bind}
	for w := l.words[2:]; len(w) > 0; {
		word, value := w[0], ""
		w = w[1:]
		if bindWords[word] && len(w) > 0 {
			value, w = w[0], w[1:]
		}
		n, isNumber := count(value)
		switch word {
		case "accept-proxy":
			b.proxied = true
		case "backlog":
			if isNumber {
				b.fields.set("backlog", number(n, 1<<20))
			}
		case "interface":
			if interfaceRE.MatchString(value) {
				b.fields.set("interface", value)
			}
		case "transparent":
			b.fields.set("transparent", raw("true"))
		case "maxconn":
			b.maxconn = n
		case "mode":
			if modeRE.MatchString(value) {
				b.fields.set("mode", raw(`"`+value+`"`))
			}
		case "name":
			b.name = value
		case "tfo":
			b.fields.sub("tcp", "fast-open", raw("256"), "HAProxy's queue is as long as the backlog.")
		case "tcp-ut":
			if d, ok := h.time(l, value); ok && d > 0 {
				b.fields.sub("tcp", "user-timeout", duration(d))
			}
		case "v6only":
			b.v6only = true
		case "v4v6", "defer-accept", "id", "level", "severity-output", "expose-fd", "nice", "process", "thread", "shards":
			// Without a meaning here.
		default:
			if h.bindTLS(&b.tls, l.at, word, value) {
				break
			}
			h.note(l.at, "bind ... %s: no counterpart", word)
		}
	}
	for address := range strings.SplitSeq(l.words[1], ",") {
		url, why := bindURL(address)
		if why != "" {
			h.note(l.at, "bind %s left out: %s", address, why)
			continue
		}
		h.abns(l.at, address)
		c := b
		c.url = url
		c.fields = append(fields(nil), b.fields...)
		if !h.serverSide(&c) {
			continue
		}
		x.binds = append(x.binds, c)
	}
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
	return tcpURL("tcp", host, port), ""
}

// server is a server line, or the settings of default-server.
type server struct {
	at
	name, address string
	port          string // empty: that of the client
	unix          bool
	template      int // of a server-template: how many

	weight, maxconn  int
	weighted         bool
	backup, disabled bool
	tls              bool
	tlsOptions       serverTLS
	proxy            string // v1, v2
	proxyTLS         bool   // send-proxy-v2-ssl
	names            bool   // proxy-v2-options authority

	check          bool
	inter          time.Duration
	rise, fall     int
	checkPort      int
	slowstart      time.Duration
	observe        bool
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
	"source": true, "ssl-max-ver": true, "ssl-min-ver": true, "tcp-ut": true, "track": true, "verify": true, "verifyhost": true, "weight": true, "ws": true, "shard": true, "hash-key": true, "guid": true, "agent-check": false, "usesrc": true, "interface": true,
}

// server reads server, default-server and server-template lines.
func (h *haproxyPlan) server(x *proxy, l line) {
	s := x.defaults
	s.at = l.at
	w := l.words[1:]
	switch l.words[0] {
	case "server":
		if len(w) < 2 {
			h.note(l.at, "server without a name and an address")
			return
		}
		s.name = w[0]
		h.abns(l.at, w[1])
		h.address(&s, w[1])
		w = w[2:]
	case "server-template":
		if len(w) < 3 {
			h.note(l.at, "server-template without a prefix, a number and a name")
			return
		}
		_, most, ranged := strings.Cut(w[1], "-")
		if !ranged {
			most = w[1]
		}
		s.template, _ = count(most)
		s.template = max(s.template, 1)
		s.name = w[0]
		h.abns(l.at, w[2])
		h.address(&s, w[2])
		w = w[3:]
	}
	for len(w) > 0 {
		word, value := w[0], ""
		w = w[1:]
		if serverWords[word] && len(w) > 0 {
			value, w = w[0], w[1:]
		}
		h.serverOption(&s, l, word, value)
	}
	if l.words[0] == "default-server" {
		x.defaults = s
		return
	}
	if len(x.servers) >= maxThings {
		h.note(l.at, "server %s left out: more than %d", s.name, maxThings)
		return
	}
	x.servers = append(x.servers, s)
}

// abns notes an address whose other end cannot be another program.
func (h *haproxyPlan) abns(at at, address string) {
	if strings.HasPrefix(address, "abns@") {
		h.note(at, "%s: HAProxy pads this name with zero bytes, Penstock does not: both ends must be converted", address)
	}
}

// address reads where a server is.
func (h *haproxyPlan) address(s *server, text string) {
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

func (h *haproxyPlan) serverOption(s *server, l line, word, value string) {
	n, isNumber := count(value)
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
	case "slowstart":
		time(&s.slowstart)
	case "tcp-ut":
		time(&s.userTimeout)
	case "rise", "fall", "port", "weight", "maxconn", "maxqueue", "error-limit":
		if !isNumber {
			h.note(l.at, "%s %s: not a number", word, quote(value))
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
	case "no-send-proxy", "no-send-proxy-v2":
		s.proxy = ""
	case "proxy-v2-options":
		for option := range strings.SplitSeq(value, ",") {
			switch option {
			case "authority":
				s.names = true
			case "ssl", "cert-cn", "ssl-cipher":
				s.proxyTLS = true
			default:
				h.note(l.at, "proxy-v2-options %s: no counterpart; authority (names: true), ssl, cert-cn and ssl-cipher (tls: true) have one", option)
			}
		}
	case "observe":
		s.observe = value == "layer4"
	case "on-error":
		if value != "mark-down" {
			h.note(l.at, "on-error %s: no counterpart", value)
		}
	case "source":
		s.source = value
	case "usesrc":
		if value == "clientip" || value == "client" {
			s.source = "client"
		} else {
			h.note(l.at, "usesrc %s: no counterpart", value)
		}
	case "interface":
		s.device = value
	case "tfo":
		s.tfo = true
	case "resolvers", "init-addr", "resolve-prefer", "resolve-opts", "resolve-net", "id", "cookie", "check-send-proxy", "no-check-send-proxy", "guid", "proto", "ws", "pool-low-conn", "pool-max-conn", "pool-purge-delay", "max-reuse", "log-proto", "hash-key", "shard", "stick", "non-stick":
		// Names are looked up again as DNS says; the rest is HTTP's or a name.
	case "fastinter", "downinter", "agent-check", "agent-inter", "agent-port", "agent-send", "agent-addr", "no-agent-check", "addr", "minconn", "track", "redir", "namespace", "socks4", "on-marked-up", "on-marked-down", "check-via-socks4", "check-proto":
		h.note(l.at, "server ... %s: no counterpart%s", word, hintOf(serverHints, word))
	default:
		if !h.serverTLS(&s.tlsOptions, l.at, word, value) {
			h.note(l.at, "server ... %s: no counterpart", word)
		}
	}
}

var serverHints = map[string]string{
	"fastinter":      "; checks come every inter",
	"downinter":      "; checks come every inter",
	"minconn":        "; max-flows is a fixed number",
	"agent-check":    "; penstock weight and penstock drain set weight and state",
	"addr":           "; a check goes to the member's address, at a port of its own if need be",
	"on-marked-down": "; flows of a member that goes down go on; penstock disable ends them",
	"track":          "; each group checks its own members",
}

// source reads the line source of a backend.
func (h *haproxyPlan) source(x *proxy, l line) {
	for i := 1; i < len(l.words); i += 2 {
		value := ""
		if i+1 < len(l.words) {
			value = l.words[i+1]
		}
		switch l.words[i] {
		case "usesrc", "interface":
			s := server{source: x.source, device: x.device}
			h.serverOption(&s, l, l.words[i], value)
			x.source, x.device = s.source, s.device
		default:
			x.source = l.words[i]
			i--
		}
	}
}
