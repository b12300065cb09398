package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// listeners adds the listeners of one section to the plan, with the groups that
// they lead to.
func (h *haproxyPlan) listeners(x *proxy) {
	switch {
	case x.http:
		h.note(x.at, "%s %s left out: mode http is layer 7; in mode tcp its bytes would pass through as they are", x.kind, x.name)
		return
	case x.off:
		h.note(x.at, "%s %s left out: it is disabled", x.kind, x.name)
		return
	case x.kind == "backend":
		return
	}
	for i, b := range x.binds {
		name := b.name
		if name == "" {
			name = x.name
			if len(x.binds) > 1 {
				name += "-" + strconv.Itoa(i+1)
			}
		}
		l := h.listen(b.at, name, b.url)
		if l == nil {
			continue
		}
		if !h.listener(x, b, l) {
			h.drop(l)
		}
	}
}

// listener fills one listener; it reports false if it cannot be had.
func (h *haproxyPlan) listener(x *proxy, b bind, l *listener) bool {
	unix := strings.HasPrefix(l.url, "unix:")
	for _, f := range b.fields {
		switch {
		case unix && (f.key == "transparent" || f.key == "interface" || f.key == "tcp"), f.key == "mode" && !strings.HasPrefix(l.url, "unix:///"):
			h.note(b.at, "%s has no meaning for %s", f.key, l.url)
		default:
			l.fields.set(f.key, f.value, f.comments...)
		}
	}
	if x.backlog > 0 && l.fields.get("backlog") == nil {
		l.fields.set("backlog", number(x.backlog, 1<<20))
	}
	if b.v6only {
		h.v6only(l)
	}
	rules := slices.Concat(x.access, x.later, x.only)
	if len(x.only) > 0 {
		rules = append(rules, accessRule{false, nil, x.only[0].at})
	}
	if len(rules) > 0 && !h.setAccess(l, rules) {
		return false
	}
	limit := b.maxconn
	if x.maxconn > 0 && (limit == 0 || x.maxconn < limit) {
		limit = x.maxconn
	}
	if limit > 0 {
		comments := []string{"Beyond maxconn HAProxy leaves clients in the kernel's queue; Penstock refuses them."}
		if len(x.binds) > 1 {
			comments = append(comments, "HAProxy's maxconn is that of all addresses of "+x.name+" together.")
		}
		l.fields.sub("limits", "flows", number(limit, many))
		h.comment(l, "limits", comments)
	}
	if x.rate > 0 {
		l.fields.sub("limits", "new-flows", number(x.rate, 1e9)+"/s")
		h.comment(l, "limits", []string{"Beyond rate-limit HAProxy delays clients; Penstock refuses them."})
	}
	switch {
	case b.proxied:
		l.fields.sub("proxy-protocol", "from", everywhere)
		h.comment(l, "proxy-protocol", []string{"accept-proxy believes everybody; name the addresses of the proxies in front."})
	case len(x.proxied) > 0:
		l.fields.sub("proxy-protocol", "from", x.proxied)
	}
	if x.inspect > 0 {
		l.fields.sub("sniff", "timeout", duration(x.inspect))
	}
	if !unix {
		h.keepaliveFields(&l.fields, x.keepalive)
		if n := h.rcv[0]; n > 0 {
			l.fields.sub("tcp", "recv-buffer", size(n))
		}
		if n := h.snd[0]; n > 0 {
			l.fields.sub("tcp", "send-buffer", size(n))
		}
	}
	port := ""
	if i := strings.LastIndexByte(l.url, ':'); !unix {
		port = l.url[i+1:]
	}

	// Where clients go. The listener's timeouts are those of its default.
	type choice struct {
		use
		back *proxy
	}
	var choices []choice
	for _, u := range x.uses {
		if u.to == "" {
			l.comments = append(l.comments, "Left out: the use_backend of line "+strconv.Itoa(u.line)+". Its clients go on to the next route that matches.")
			continue
		}
		back := h.backends[u.to]
		if back == nil {
			h.note(u.at, "there is no backend %s", quote(u.to))
			continue
		}
		choices = append(choices, choice{u, back})
	}
	var def *proxy
	if x.fallback != "" {
		if def = h.backends[x.fallback]; def == nil {
			h.note(x.at, "there is no backend %s", quote(x.fallback))
		}
	} else if x.kind == "listen" && len(x.servers) > 0 {
		def = x
	}
	if def != nil {
		choices = append(choices, choice{use{at: x.at, conds: []condition{{}}}, def})
	}
	var base fields // the timeouts of the last one, the default, are the listener's
	if n := len(choices); n > 0 {
		var comments []string
		base, comments = h.timeouts(x, choices[n-1].back)
		l.fields.set("timeouts", base, comments...)
	}
	for i, c := range choices {
		g := h.backend(c.back, port)
		if g == nil {
			h.note(c.at, "%s: the clients of %s are refused: there is no group for it", x.name, c.back.name)
			if c.back == def && i == len(choices)-1 {
				def = nil
			}
			continue
		}
		timeouts, _ := h.timeouts(x, c.back)
		if flow(timeouts) == flow(base) {
			timeouts = nil
		}
		for _, cond := range c.conds {
			if cond.fc && !b.tls.on || cond.tls && b.tls.on {
				h.note(c.at, "%s: a condition that never holds is left out: %s", l.name, map[bool]string{true: "TLS ends at this bind, so that req.ssl_* sees no ClientHello; ssl_fc_sni does", false: "TLS does not end at this bind, so that ssl_fc_sni has no name; req.ssl_sni has"}[b.tls.on])
				continue
			}
			l.routes = append(l.routes, route{from: cond.from, sni: cond.sni, alpn: cond.alpn, to: g, timeouts: timeouts})
			l.tls = l.tls || len(cond.sni)+len(cond.alpn) > 0
		}
	}
	if len(l.routes) == 0 {
		h.note(x.at, "%s %s left out: it leads to no group", x.kind, x.name)
		return false
	}
	if unix && slices.ContainsFunc(l.routes, func(r route) bool { return len(r.from) > 0 }) {
		h.note(x.at, "clients of the Unix socket of %s have no address: conditions with src never hold", x.name)
		l.routes = slices.DeleteFunc(l.routes, func(r route) bool { return len(r.from) > 0 })
		if len(l.routes) == 0 {
			return false
		}
	}
	if b.tls.on {
		if t := x.timeouts["client-hs"]; t > 0 {
			l.fields.sub("tls", "handshake-timeout", duration(t))
		}
	} else if l.tls && def != nil {
		h.comment(l, "sniff", []string{"A client that sends nothing for this long is refused; HAProxy sends it to " + def.name + "."})
	}
	return true
}

// comment adds comments to a key, if the key exists.
func (h *haproxyPlan) comment(l *listener, key string, comments []string) {
	if v := l.fields.get(key); v != nil {
		l.fields.set(key, v, comments...)
	}
}

func (h *haproxyPlan) keepaliveFields(f *fields, from map[string]string) {
	for _, key := range []string{"keepalive", "keepalive-interval", "keepalive-count"} {
		if v := from[key]; v != "" {
			f.sub("tcp", key, raw(v))
		}
	}
}

// timeouts are those of flows from a frontend to a backend.
func (h *haproxyPlan) timeouts(front, back *proxy) (f fields, comments []string) {
	get := func(name string, x *proxy) time.Duration { return x.timeouts[name] }
	client, server := get("client", front), get("server", back)
	idle := least(client, server)
	if client != server && idle > 0 {
		comments = append(comments, fmt.Sprintf("HAProxy has timeout client %s and timeout server %s: the shorter one ends a silent flow.", duration(client), duration(server)))
	}
	if t := get("tunnel", back); t > 0 {
		idle = t
		comments = []string{"timeout tunnel, which HAProxy takes once both sides are connected."}
	}
	f.set("idle", duration(idle))
	half := least(get("client-fin", front), get("server-fin", back))
	if half == 0 {
		half = least(client, server)
	}
	f.set("half-closed", duration(half))
	return f, comments
}

// least returns the shorter of two times, where 0 is none.
func least(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// backend returns the group of a backend for clients that came to a port; nil,
// and lists why, if there is none.
func (h *haproxyPlan) backend(x *proxy, port string) *group {
	switch {
	case x.http:
		h.note(x.at, "%s %s left out: mode http is layer 7", x.kind, x.name)
		return nil
	case x.off:
		h.note(x.at, "%s %s is disabled", x.kind, x.name)
		return nil
	}
	var members, discover []fields
	var f, tls fields
	var first *server
	backups := 0
	names := map[string]bool{}
	for i := range x.servers {
		s := &x.servers[i]
		if first == nil {
			if s.tls {
				var ok bool
				if tls, ok = h.clientSide(s); !ok {
					h.note(s.at, "server %s left out: its TLS has no counterpart", s.name)
					continue
				}
			}
			first = s
		}
		if s.tls != first.tls || s.tls && s.tlsOptions != first.tlsOptions {
			h.note(s.at, "server %s left out: ssl and its options are the group's, and %s has others; put it into a group of its own", s.name, first.name)
			continue
		}
		if s.proxy != first.proxy || s.source != first.source || s.device != first.device {
			h.note(s.at, "server %s left out: send-proxy, source and interface are the group's, and %s has others; put it into a group of its own", s.name, first.name)
			continue
		}
		weight := s.weight
		if s.template > 0 {
			if d, ok := h.template(s, port); ok {
				discover = append(discover, d)
			}
			continue
		}
		p := s.port
		if p == "" || p == "0" {
			p = port
		}
		var url string
		switch {
		case s.unix && strings.HasPrefix(s.address, "@"):
			url = "unix:" + s.address
		case s.unix:
			url = "unix://" + s.address
		case strings.HasPrefix(p, "+") || strings.HasPrefix(p, "-"):
			offset, _ := strconv.Atoi(p)
			url = tcpURL("tcp", s.address, shift(port, offset))
		default:
			url = tcpURL("tcp", s.address, p)
		}
		url, err := upstream(url)
		if err != nil {
			h.note(s.at, "server %s left out: %v", s.name, err)
			continue
		}
		var m fields
		m.set("to", url)
		name := unique(nameOf(s.name), func(n string) bool { return names[n] })
		names[name] = true
		m.set("name", name)
		if s.weighted && weight != 1 && weight != 0 {
			m.set("weight", number(weight, 256))
		}
		if s.backup {
			backups++
			m.set("backup", raw("true"))
		}
		if s.maxconn > 0 {
			m.set("max-flows", number(s.maxconn, many))
		}
		if s.disabled || s.weighted && weight == 0 {
			m.set("drained", raw("true"))
		}
		members = append(members, m)
	}
	if len(members)+len(discover) == 0 {
		h.note(x.at, "%s %s: it has no server with a counterpart", x.kind, x.name)
		return nil
	}
	if x.balance != "" && x.balance != "round-robin" {
		f.set("balance", raw(x.balance), map[string]string{
			"p2c":    "random draws two servers and takes the less loaded one: p2c.",
			"maglev": "maglev keeps a client at its member, as balance source does; which one that is differs from HAProxy.",
		}[x.balance])
		f[len(f)-1].comments = slices.DeleteFunc(f[len(f)-1].comments, func(s string) bool { return s == "" })
	}
	if x.hash != "" {
		f.set("hash", raw(x.hash))
	}
	if x.balance == "first" {
		for i := range members {
			members[i] = slices.DeleteFunc(members[i], func(g field) bool { return g.key == "weight" })
		}
	}
	if backups > 1 && !x.allBackup {
		f.set("members", members, "HAProxy uses the first backup only (option allbackups is off); here all backups take over together.")
	} else if len(members) > 0 {
		f.set("members", members)
	}
	if len(discover) > 0 {
		f.set("discover", discover)
	}
	if first.tls {
		if what := hostless(f); what != "" && tls.get("verify") == nil && tls.get("server-name") == nil {
			h.note(first.at, "%s %s: TLS: %s has no host to compare its certificate with; name one with server-name", x.kind, x.name, what)
			return nil
		}
		f.set("tls", tls)
	}
	h.groupSettings(x, first, &f)
	return h.group(x.name, f)
}

// template makes a discover entry of a server-template.
func (h *haproxyPlan) template(s *server, port string) (d fields, ok bool) {
	host := s.address
	if strings.HasPrefix(host, "_") {
		if !serviceRE.MatchString(host) {
			h.note(s.at, "server-template %s left out: %s is not a service", s.name, quote(host))
			return nil, false
		}
		d.set("srv", host)
	} else {
		p := s.port
		if p == "" {
			p = port
		}
		if _, err := upstream(tcpURL("tcp", host, p)); err != nil {
			h.note(s.at, "server-template %s left out: %v", s.name, err)
			return nil, false
		}
		if a, err := netip.ParseAddr(host); err == nil {
			host = a.String()
		}
		d.set("dns", host)
		d.set("port", raw(strings.TrimLeft(p, "0")))
	}
	if s.weighted && s.weight > 0 {
		d.set("weight", number(s.weight, 256))
	}
	if s.maxconn > 0 {
		d.set("max-flows", number(s.maxconn, many))
	}
	return d, true
}

// groupSettings sets the keys of a group other than its members.
func (h *haproxyPlan) groupSettings(x *proxy, first *server, f *fields) {
	if t := x.timeouts["connect"]; t > 0 {
		f.sub("timeouts", "connect", duration(t))
	}
	retries := x.retries
	if retries < 0 {
		retries = 3
	}
	if x.redisp {
		f.set("retries", number(retries, 100))
	} else {
		f.set("retries", number(retries, 100), "Without option redispatch HAProxy tries the same server again; Penstock always goes on to another member.")
	}
	capped, queued := false, 0
	for _, s := range x.servers {
		capped = capped || s.maxconn > 0
		queued = min(queued+s.maxqueue, many)
	}
	if capped {
		if queued == 0 {
			queued = 1024
			f.sub("queue", "size", number(queued, many))
			f.set("queue", f.get("queue"), "HAProxy's queue has no bound unless maxqueue says one.")
		} else {
			f.sub("queue", "size", number(queued, many))
		}
		wait := x.timeouts["queue"]
		if wait == 0 {
			wait = x.timeouts["connect"]
		}
		if wait > 0 {
			f.sub("queue", "timeout", duration(wait))
		}
	}
	if x.balance != "first" && first.slowstart > 0 {
		f.set("slow-start", duration(first.slowstart))
	}
	h.checkFields(x, f)
	if first.observe {
		failures := first.errorLimit
		if failures == 0 {
			failures = 10
		}
		f.sub("eject", "failures", number(failures, many))
		f.set("eject", f.get("eject"), "observe layer4; a member comes back after a time here, not when its check is well again.")
	}
	switch {
	case first.proxy == "v2" && (first.names || first.proxyTLS):
		v := fields{{key: "version", value: raw("2")}}
		if first.names {
			v.set("names", raw("true"))
		}
		if first.proxyTLS {
			v.set("tls", raw("true"))
		}
		f.set("proxy-protocol", v)
	case first.proxy != "":
		f.set("proxy-protocol", raw(first.proxy))
	}
	source, device := first.source, first.device
	if source == "" {
		source = x.source
	}
	if device == "" {
		device = x.device
	}
	h.sourceFields(first.at, f, source)
	if device != "" {
		if interfaceRE.MatchString(device) {
			f.set("interface", device)
		} else {
			h.note(first.at, "interface %s: not the name of an interface", quote(device))
		}
	}
	h.keepaliveFields(f, x.upstreamKA)
	if first.userTimeout > 0 {
		f.sub("tcp", "user-timeout", duration(first.userTimeout))
	}
	if first.tfo {
		f.sub("tcp", "fast-open", raw("1"))
	}
	if n := h.rcv[1]; n > 0 {
		f.sub("tcp", "recv-buffer", size(n))
	}
	if n := h.snd[1]; n > 0 {
		f.sub("tcp", "send-buffer", size(n))
	}
}

// sourceFields sets where a group connects from.
func (p *plan) sourceFields(at at, f *fields, source string) {
	switch source {
	case "", "0.0.0.0", "*", ":":
		return
	case "client":
		f.set("source", raw("client"))
		return
	}
	host := source
	if i := strings.LastIndexByte(source, ':'); i >= 0 && (strings.Count(source, ":") == 1 || strings.HasPrefix(source, "[")) {
		host = source[:i]
		if source[i+1:] != "0" {
			p.note(at, "source %s: ports are the kernel's choice", source)
		}
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil || a.Zone() != "" {
		p.note(at, "source %s: not an address", quote(source))
		return
	}
	if !a.IsUnspecified() {
		f.set("source", a.Unmap().String())
	}
}
