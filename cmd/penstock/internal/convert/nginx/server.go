package nginx

import (
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// server converts a server of the stream block: a listener for each listen.
func (n *conversion) server(d *directive) {
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
		n.Note(d.Place, "server left out: %s", why)
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
func (n *conversion) listenLine(s *settings, d, pass *directive) {
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
				n.Note(d.Place, "listen %s left out: it needs a port", address)
				return
			}
		}
		if host == "*" || host == "" {
			host = "0.0.0.0"
		}
		url, port = convert.SocketURL(network, host, p), p
	}
	name := pass.arg(0)
	if strings.ContainsAny(name, "$:") {
		name = "listener-" + port
		if port == "" {
			name = "listener"
		}
	}
	l := n.Listen(d.Place, name, url)
	if l == nil {
		return
	}
	if !n.fillListener(s, d, l, pass, port, network) {
		n.Drop(l)
	}
}

// fillListener sets what a listener has; it reports false if it cannot be had.
func (n *conversion) fillListener(s *settings, d *directive, l *convert.Listener, pass *directive, port, network string) bool {
	n.listenOptions(s, d, l, network)
	var rules []convert.AccessRule
	for _, a := range s.access {
		r := convert.AccessRule{Allow: a.name == "allow", At: a.Place}
		switch {
		case a.arg(0) == "all":
		case a.arg(0) == "unix:":
			if !strings.HasPrefix(l.URL, "unix") {
				continue
			}
		default:
			p, ok := convert.Prefix(a.arg(0))
			if !ok {
				n.Note(a.Place, "%s %s: not a range of addresses; the listener %s is left out", a.name, a.arg(0), l.Name)
				return false
			}
			r.From = []string{p}
		}
		rules = append(rules, r)
		n.keep(l, a)
	}
	if len(rules) > 0 && !n.SetAccess(l, rules) {
		return false
	}
	n.limits(s, l)
	names := names{preread: s.on("ssl_preread"), ended: slices.Contains(d.args, "ssl")}
	if names.ended {
		tls, ok := n.serverSide(s, d.Place)
		if !ok {
			return false
		}
		l.Fields.Set("tls", tls)
		names.agreed, _ = tls.Get("alpn").([]string)
	}
	n.reading = l
	choices := n.expand(pass.Place, pass.arg(0), port, names, 0)
	for _, c := range choices {
		var g *convert.Group // nil: nginx refuses those for whom the address is empty
		if c.value == "" && c.cond.Empty() && c.share == (convert.Share{}) {
			break
		}
		if c.value != "" {
			if g = n.group(s, c, network, port); g == nil {
				continue
			}
		}
		r := convert.Route{Condition: c.cond, To: g, Share: c.share, SplitBy: c.by}
		if r.ByName() || r.ByFirst() {
			l.Sniffs = true
		}
		if network == "udp" && (r.ByName() || r.ByFirst()) || strings.HasPrefix(l.URL, "unix") && len(r.From) > 0 {
			n.Note(c.Place, "the listener %s cannot have this condition", l.Name)
			continue
		}
		l.Routes = append(l.Routes, r)
	}
	if slices.ContainsFunc(l.Routes, func(r convert.Route) bool { return r.SplitBy != "" }) {
		l.Comments = append(l.Comments, "With split-by a client stays in its part, but which part that is differs from nginx.")
	}
	if !slices.ContainsFunc(l.Routes, func(r convert.Route) bool { return r.To != nil }) {
		n.Note(pass.Place, "the listener %s is left out: it leads to no group", l.Name)
		return false
	}
	idle := 10 * time.Minute
	if t := s.one["proxy_timeout"]; t != nil {
		if d, ok := n.time(t, t.arg(0)); ok {
			idle = d
		}
	}
	l.Fields.Sub("timeouts", "idle", convert.Duration(max(idle, time.Millisecond)))
	n.sniff(s, l, l.Sniffs && !names.ended)
	n.closesBoth = n.closesBoth || network == "tcp" && !s.on("proxy_half_close")
	return true
}

// sniff sets how long a client may take for what comes before its stream: a header of the PROXY
// protocol, and a ClientHello where it is read.
func (n *conversion) sniff(s *settings, l *convert.Listener, preread bool) {
	wait := func(name string, by time.Duration) time.Duration {
		if t := s.one[name]; t != nil {
			if d, ok := n.time(t, t.arg(0)); ok && d > 0 {
				return d
			}
		}
		return by
	}
	var total time.Duration
	var comments []string
	if preread {
		total = wait("preread_timeout", 30*time.Second)
		comments = []string{"A client that has not sent enough by then goes where clients without TLS do; nginx refuses it."}
	}
	if l.Fields.Get("proxy-protocol") != nil {
		total += wait("proxy_protocol_timeout", 30*time.Second)
	}
	if total > 0 {
		l.Fields.Sub("sniff", "timeout", convert.Duration(total), comments...)
	}
	if b := s.one["preread_buffer_size"]; b != nil && preread {
		if k, ok := convert.SizeOf(b.arg(0)); ok && k >= 4096 {
			l.Fields.Sub("sniff", "max", convert.Size(min(k, 1<<20)))
		}
	}
}

// listenOptions converts what follows the address in listen.
func (n *conversion) listenOptions(s *settings, d *directive, l *convert.Listener, network string) {
	tcp := strings.HasPrefix(l.URL, "tcp:")
	both := false // IPv6 and IPv4
	for _, a := range d.args[1:] {
		key, value, _ := strings.Cut(a, "=")
		k, isNumber := convert.Count(value)
		switch key {
		case "ssl", "udp":
		case "backlog":
			if !isNumber || network != "tcp" {
				n.Note(d.Place, "listen ... %s: no counterpart here", a)
				break
			}
			l.Fields.Set("backlog", convert.Number(k, 1<<20))
		case "fastopen":
			if !isNumber || !tcp {
				n.Note(d.Place, "listen ... %s: no counterpart here", a)
				break
			}
			l.Fields.Sub("tcp", "fast-open", convert.Number(k, 65535))
		case "rcvbuf", "sndbuf":
			b, ok := convert.SizeOf(value)
			if !ok || !tcp {
				n.Note(d.Place, "listen ... %s: no counterpart here", a)
				break
			}
			l.Fields.Sub("tcp", map[string]string{"rcvbuf": "recv-buffer", "sndbuf": "send-buffer"}[key], convert.Size(b))
		case "so_keepalive":
			n.keepalive(d, l, value)
		case "ipv6only":
			both = value == "off"
		case "proxy_protocol":
			if network == "udp" {
				n.Note(d.Place, "listen ... proxy_protocol: datagrams have no header")
				break
			}
			from := convert.Everywhere
			comment := "nginx takes the header from everybody; name the addresses of the proxies in front."
			if len(s.from) > 0 {
				var list []string
				for _, f := range s.from {
					if p, ok := convert.Prefix(f.arg(0)); ok {
						list = append(list, p)
					} else {
						n.Note(f.Place, "set_real_ip_from %s: not a range of addresses", f.arg(0))
					}
				}
				if len(list) > 0 {
					from, comment = list, "set_real_ip_from; clients from elsewhere must not begin with a header here."
				}
			}
			l.Fields.Sub("proxy-protocol", "from", from)
			l.Fields.Set("proxy-protocol", l.Fields.Get("proxy-protocol"), comment)
		default:
			if !nothing("listen", key) {
				n.Note(d.Place, "listen ... %s: no counterpart", a)
			}
		}
	}
	if !both {
		n.NoteV6Only(l)
	}
	if t := s.one["tcp_nodelay"]; t != nil && t.arg(0) == "off" && tcp {
		l.Fields.Sub("tcp", "nagle", convert.Raw("true"))
	}
	if r := s.one["proxy_responses"]; r != nil && network == "udp" {
		switch k, ok := convert.Count(r.arg(0)); {
		case ok && k > 0:
			l.Fields.Set("replies", convert.Number(k, convert.Many))
		case ok:
			n.Note(r.Place, "proxy_responses 0: no counterpart; a flow without replies ends when it has been idle")
		}
	}
	if r := s.one["proxy_requests"]; r != nil && r.arg(0) != "0" {
		n.Note(r.Place, "proxy_requests: no counterpart; a client keeps its member while its flow lasts")
	}
	if r := s.one["proxy_session_drop"]; r != nil && r.arg(0) == "on" {
		n.Note(r.Place, "proxy_session_drop: see removed of listeners and routes, and penstock disable")
	}
}

// keepalive converts so_keepalive=on|off|IDLE:INTERVAL:COUNT.
func (n *conversion) keepalive(d *directive, l *convert.Listener, value string) {
	if !strings.HasPrefix(l.URL, "tcp:") || value == "on" {
		return
	}
	if value == "off" {
		l.Fields.Sub("tcp", "keepalive", convert.Raw("never"))
		return
	}
	parts := strings.Split(value+"::", ":")
	for i, key := range []string{"keepalive", "keepalive-interval"} {
		if parts[i] == "" {
			continue
		}
		if t, ok := convert.TimeOf(parts[i], units, time.Second); ok {
			l.Fields.Sub("tcp", key, convert.Duration(max(t, time.Second)))
		} else {
			n.Note(d.Place, "so_keepalive: %s is not a time", convert.Quote(parts[i]))
		}
	}
	if k, ok := convert.Count(parts[2]); ok && k > 0 {
		l.Fields.Sub("tcp", "keepalive-count", convert.Number(k, 127))
	}
}

// limits converts limit_conn and the rates.
func (n *conversion) limits(s *settings, l *convert.Listener) {
	dry := s.one["limit_conn_dry_run"]
	for _, d := range s.limits {
		k, ok := convert.Count(d.arg(1))
		key := ""
		if zone := n.zones[d.arg(0)]; zone != nil {
			key, zone.used = variableName(zone.arg(0)), true
		}
		byAddress := key == "binary_remote_addr" || key == "remote_addr"
		switch {
		case !ok || k == 0:
			n.Note(d.Place, "limit_conn %s: not a number", strings.Join(d.args, " "))
		case dry != nil && dry.arg(0) == "on":
			n.Note(d.Place, "limit_conn left out: limit_conn_dry_run is on, and nobody is refused")
		case byAddress && strings.HasPrefix(l.URL, "unix"):
			n.Note(d.Place, "clients of the Unix socket of %s have no address: limits by it are left out", l.Name)
		case byAddress:
			l.Fields.Sub("limits", "source", convert.Fields{{Key: "flows", Value: convert.Number(k, convert.Many)}})
			l.Fields.Set("limits", l.Fields.Get("limits"), "Of one IPv4 address or one IPv6 /64; nginx counts each IPv6 address by itself.")
		case strings.HasPrefix(key, "server_"):
			l.Fields.Sub("limits", "flows", convert.Number(k, convert.Many))
		default:
			n.Note(d.Place, "limit_conn by $%s: no counterpart; a listener has limits.flows and limits.source.flows", key)
		}
	}
	var rates []int
	for _, name := range []string{"proxy_download_rate", "proxy_upload_rate"} {
		d := s.one[name]
		if d == nil || d.arg(0) == "0" {
			continue
		}
		if k, ok := convert.SizeOf(d.arg(0)); ok && k > 0 {
			rates = append(rates, k)
		} else {
			n.Note(d.Place, "%s %s: no counterpart; bandwidth is a fixed number", name, d.arg(0))
		}
	}
	if len(rates) > 0 {
		rate := slices.Min(rates)
		text := convert.Size((rate + 1023) / 1024 * 1024)
		l.Fields.Sub("limits", "bandwidth", convert.Raw(string(text)+"/s"))
		if len(rates) == 1 || rates[0] != rates[1] {
			l.Fields.Set("limits", l.Fields.Get("limits"), "bandwidth bounds each direction alike; nginx had a rate for one, or two different ones.")
		}
	}
}
