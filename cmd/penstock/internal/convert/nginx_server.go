package convert

import (
	"maps"
	"net"
	"slices"
	"strings"
	"time"
)

// server converts a server of the stream block: a listener for each listen.
func (n *nginxPlan) server(d *directive) {
	s := settings{one: maps.Clone(n.stream.one)}
	var listens []*directive
	for _, e := range d.block {
		if e.name == "listen" {
			listens = append(listens, e)
			continue
		}
		n.setting(&s, e)
	}
	if s.access == nil {
		s.access = n.stream.access
	}
	if s.limits == nil {
		s.limits = n.stream.limits
	}
	if s.from == nil {
		s.from = n.stream.from
	}
	if s.certs == nil {
		s.certs, s.keys = n.stream.certs, n.stream.keys
	}
	leave := func(d *directive, why string) {
		n.note(d.at, "server left out: %s", why)
	}
	pass := s.one["proxy_pass"]
	switch {
	case s.one["return"] != nil:
		leave(s.one["return"], "return has no counterpart")
		return
	case s.one["pass"] != nil:
		leave(s.one["pass"], "pass has no counterpart")
		return
	case pass == nil:
		leave(d, "it has no proxy_pass")
		return
	case len(listens) == 0:
		leave(d, "it has no listen")
		return
	}
	for _, l := range listens {
		n.listenLine(&s, l, pass)
	}
}

// listenLine converts one listen of a server.
func (n *nginxPlan) listenLine(s *settings, d, pass *directive) {
	network := "tcp"
	if slices.Contains(d.args, "udp") {
		network = "udp"
	}
	address := d.arg(0)
	var url, port string
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		url = map[string]string{"tcp": "unix://", "udp": "unixgram://"}[network] + path
	} else {
		host, p, err := net.SplitHostPort(address)
		if err != nil {
			host, p = "0.0.0.0", address
			if address == "" || strings.Trim(address, "0123456789-") != "" {
				n.note(d.at, "listen %s left out: it needs a port", address)
				return
			}
		}
		if host == "*" || host == "" {
			host = "0.0.0.0"
		}
		url, port = tcpURL(network, host, p), p
	}
	name := pass.arg(0)
	if strings.ContainsAny(name, "$:") {
		name = "listener-" + port
		if port == "" {
			name = "listener"
		}
	}
	l := n.listen(d.at, name, url)
	if l == nil {
		return
	}
	if !n.fillListener(s, d, l, pass, port, network) {
		n.drop(l)
	}
}

// fillListener sets what a listener has; it reports false if it cannot be had.
func (n *nginxPlan) fillListener(s *settings, d *directive, l *listener, pass *directive, port, network string) bool {
	n.listenOptions(s, d, l, network)
	var rules []accessRule
	for _, a := range s.access {
		r := accessRule{allow: a.name == "allow", at: a.at}
		switch {
		case a.arg(0) == "all":
		case a.arg(0) == "unix:":
			if !strings.HasPrefix(l.url, "unix") {
				continue
			}
		default:
			p, ok := prefix(a.arg(0))
			if !ok {
				n.note(a.at, "%s %s: not a range of addresses; the listener %s is left out", a.name, a.arg(0), l.name)
				return false
			}
			r.from = []string{p}
		}
		rules = append(rules, r)
	}
	if len(rules) > 0 && !n.setAccess(l, rules) {
		return false
	}
	n.limits(s, l)
	names := names{preread: s.on("ssl_preread"), ended: slices.Contains(d.args, "ssl")}
	if names.ended {
		tls, ok := n.serverSide(s, d.at)
		if !ok {
			return false
		}
		l.fields.set("tls", tls)
		names.agreed, _ = tls.get("alpn").([]string)
	}
	choices := n.expand(pass.at, pass.arg(0), port, names, 0)
	for _, c := range choices {
		g := n.group(s, c, network, port)
		if g == nil {
			continue
		}
		r := route{from: c.cond.from, sni: c.cond.sni, alpn: c.cond.alpn, to: g}
		if len(r.sni)+len(r.alpn) > 0 {
			l.tls = true
		}
		if network == "udp" && len(r.sni)+len(r.alpn) > 0 || strings.HasPrefix(l.url, "unix") && len(r.from) > 0 {
			n.note(c.at, "the listener %s cannot have this condition", l.name)
			continue
		}
		l.routes = append(l.routes, r)
	}
	if len(l.routes) == 0 {
		n.note(pass.at, "the listener %s is left out: it leads to no group", l.name)
		return false
	}
	idle := 10 * time.Minute
	if t := s.one["proxy_timeout"]; t != nil {
		if d, ok := n.time(t, t.arg(0)); ok {
			idle = d
		}
	}
	l.fields.sub("timeouts", "idle", duration(max(idle, time.Millisecond)))
	n.sniff(s, l, l.tls && !names.ended)
	n.closesBoth = n.closesBoth || network == "tcp" && !s.on("proxy_half_close")
	return true
}

// sniff sets how long a client may take for what comes before its stream: a header of the PROXY
// protocol, and a ClientHello where it is read.
func (n *nginxPlan) sniff(s *settings, l *listener, preread bool) {
	wait := func(name string, by time.Duration) time.Duration {
		if t := s.one[name]; t != nil {
			if d, ok := n.time(t, t.arg(0)); ok && d > 0 {
				return d
			}
		}
		return by
	}
	var total time.Duration
	if preread {
		total = wait("preread_timeout", 30*time.Second)
	}
	if l.fields.get("proxy-protocol") != nil {
		total += wait("proxy_protocol_timeout", 30*time.Second)
	}
	if total > 0 {
		l.fields.sub("sniff", "timeout", duration(total))
	}
	if b := s.one["preread_buffer_size"]; b != nil && preread {
		if k, ok := sizeOf(b.arg(0)); ok && k >= 4096 {
			l.fields.sub("sniff", "max", size(min(k, 1<<20)))
		}
	}
}

// listenOptions converts what follows the address in listen.
func (n *nginxPlan) listenOptions(s *settings, d *directive, l *listener, network string) {
	tcp := strings.HasPrefix(l.url, "tcp:")
	both := false // IPv6 and IPv4
	for _, a := range d.args[1:] {
		key, value, _ := strings.Cut(a, "=")
		k, isNumber := count(value)
		switch key {
		case "ssl", "udp":
		case "backlog":
			if !isNumber || network != "tcp" {
				n.note(d.at, "listen ... %s: no counterpart here", a)
				break
			}
			l.fields.set("backlog", number(k, 1<<20))
		case "fastopen":
			if !isNumber || !tcp {
				n.note(d.at, "listen ... %s: no counterpart here", a)
				break
			}
			l.fields.sub("tcp", "fast-open", number(k, 65535))
		case "rcvbuf", "sndbuf":
			b, ok := sizeOf(value)
			if !ok || !tcp {
				n.note(d.at, "listen ... %s: no counterpart here", a)
				break
			}
			l.fields.sub("tcp", map[string]string{"rcvbuf": "recv-buffer", "sndbuf": "send-buffer"}[key], size(b))
		case "so_keepalive":
			n.keepalive(d, l, value)
		case "ipv6only":
			both = value == "off"
		case "proxy_protocol":
			if network == "udp" {
				n.note(d.at, "listen ... proxy_protocol: datagrams have no header")
				break
			}
			from := everywhere
			comment := "nginx takes the header from everybody; name the addresses of the proxies in front."
			if len(s.from) > 0 {
				var list []string
				for _, f := range s.from {
					if p, ok := prefix(f.arg(0)); ok {
						list = append(list, p)
					} else {
						n.note(f.at, "set_real_ip_from %s: not a range of addresses", f.arg(0))
					}
				}
				if len(list) > 0 {
					from, comment = list, "set_real_ip_from; clients from elsewhere must not begin with a header here."
				}
			}
			l.fields.sub("proxy-protocol", "from", from)
			l.fields.set("proxy-protocol", l.fields.get("proxy-protocol"), comment)
		default:
			if !nothing(Nginx, "listen", key) {
				n.note(d.at, "listen ... %s: no counterpart", a)
			}
		}
	}
	if !both {
		n.v6only(l)
	}
	if t := s.one["tcp_nodelay"]; t != nil && t.arg(0) == "off" && tcp {
		l.fields.sub("tcp", "nagle", raw("true"))
	}
	if r := s.one["proxy_responses"]; r != nil && network == "udp" {
		switch k, ok := count(r.arg(0)); {
		case ok && k > 0:
			l.fields.set("replies", number(k, many))
		case ok:
			n.note(r.at, "proxy_responses 0: no counterpart; a flow without replies ends when it has been idle")
		}
	}
	if r := s.one["proxy_requests"]; r != nil && r.arg(0) != "0" {
		n.note(r.at, "proxy_requests: no counterpart; a client keeps its member while its flow lasts")
	}
	if r := s.one["proxy_session_drop"]; r != nil && r.arg(0) == "on" {
		n.note(r.at, "proxy_session_drop: see removed of listeners and routes, and penstock disable")
	}
}

// keepalive converts so_keepalive=on|off|IDLE:INTERVAL:COUNT.
func (n *nginxPlan) keepalive(d *directive, l *listener, value string) {
	if !strings.HasPrefix(l.url, "tcp:") || value == "on" {
		return
	}
	if value == "off" {
		l.fields.sub("tcp", "keepalive", raw("never"))
		return
	}
	parts := strings.Split(value+"::", ":")
	for i, key := range []string{"keepalive", "keepalive-interval"} {
		if parts[i] == "" {
			continue
		}
		if t, ok := timeOf(parts[i], nginxTime, time.Second); ok {
			l.fields.sub("tcp", key, duration(max(t, time.Second)))
		} else {
			n.note(d.at, "so_keepalive: %s is not a time", quote(parts[i]))
		}
	}
	if k, ok := count(parts[2]); ok && k > 0 {
		l.fields.sub("tcp", "keepalive-count", number(k, 127))
	}
}

// limits converts limit_conn and the rates.
func (n *nginxPlan) limits(s *settings, l *listener) {
	dry := s.one["limit_conn_dry_run"]
	for _, d := range s.limits {
		k, ok := count(d.arg(1))
		key := ""
		if zone := n.zones[d.arg(0)]; zone != nil {
			key, zone.used = variableName(zone.arg(0)), true
		}
		byAddress := key == "binary_remote_addr" || key == "remote_addr"
		switch {
		case !ok || k == 0:
			n.note(d.at, "limit_conn %s: not a number", strings.Join(d.args, " "))
		case dry != nil && dry.arg(0) == "on":
			n.note(d.at, "limit_conn left out: limit_conn_dry_run is on, and nobody is refused")
		case byAddress && strings.HasPrefix(l.url, "unix"):
			n.note(d.at, "clients of the Unix socket of %s have no address: limits by it are left out", l.name)
		case byAddress:
			l.fields.sub("limits", "source", fields{{key: "flows", value: number(k, many)}})
			l.fields.set("limits", l.fields.get("limits"), "Of one IPv4 address or one IPv6 /64; nginx counts each IPv6 address by itself.")
		case strings.HasPrefix(key, "server_"):
			l.fields.sub("limits", "flows", number(k, many))
		default:
			n.note(d.at, "limit_conn by $%s: no counterpart; a listener has limits.flows and limits.source.flows", key)
		}
	}
	var rates []int
	for _, name := range []string{"proxy_download_rate", "proxy_upload_rate"} {
		d := s.one[name]
		if d == nil || d.arg(0) == "0" {
			continue
		}
		if k, ok := sizeOf(d.arg(0)); ok && k > 0 {
			rates = append(rates, k)
		} else {
			n.note(d.at, "%s %s: no counterpart; bandwidth is a fixed number", name, d.arg(0))
		}
	}
	if len(rates) > 0 {
		rate := slices.Min(rates)
		text := size((rate + 1023) / 1024 * 1024)
		l.fields.sub("limits", "bandwidth", raw(string(text)+"/s"))
		if len(rates) == 1 || rates[0] != rates[1] {
			l.fields.set("limits", l.fields.get("limits"), "bandwidth bounds each direction alike; nginx had a rate for one, or two different ones.")
		}
	}
}
