package convert

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// backend returns the group of a backend for clients that came to a port; nil,
// and lists why, if there is none.
func (h *haproxyPlan) backend(x *proxy, port string) *group {
	x.reached = true
	switch {
	case x.http:
		h.note(x.at, "%s %s left out: mode http is layer 7", x.kind, x.name)
		return nil
	case x.off:
		h.note(x.at, "%s %s is disabled", x.kind, x.name)
		return nil
	}
	servers, tls := h.alike(x)
	servers = h.sameProbes(x, servers)
	var members, discover []fields
	var f fields
	var kept []*server
	backups := 0
	names := map[string]bool{}
	for _, s := range servers {
		if s.template > 0 {
			if d, ok := h.template(s, port); ok {
				discover, kept = append(discover, d), append(kept, s)
			}
			continue
		}
		url, err := upstream(s.url(port))
		if err != nil {
			h.note(s.at, "server %s left out: %v", s.name, err)
			continue
		}
		var m fields
		m.set("to", url)
		name := unique(nameOf(s.name), func(n string) bool { return names[n] })
		names[name] = true
		m.set("name", name)
		if s.weighted && s.weight != 1 && s.weight != 0 {
			m.set("weight", number(s.weight, 256))
		}
		if s.backup {
			backups++
			m.set("backup", raw("true"))
		}
		if s.maxconn > 0 {
			m.set("max-flows", number(s.maxconn, many))
		}
		if s.disabled || s.weighted && s.weight == 0 {
			m.set("drained", raw("true"))
		}
		members, kept = append(members, m), append(kept, s)
	}
	if len(kept) == 0 {
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
	if kept[0].tls {
		if what := hostless(f); what != "" && tls.get("verify") == nil && tls.get("server-name") == nil {
			h.note(kept[0].at, "%s %s: TLS: %s has no host to compare its certificate with; name one with server-name", x.kind, x.name, what)
			return nil
		}
		f.set("tls", tls)
	}
	if !h.groupSettings(x, kept, &f) {
		return nil
	}
	return h.group(x.name, f)
}

// alike returns the servers that can be in one group, with the TLS of their flows. What differs
// from the first one, and is the group's here, leaves a server out.
func (h *haproxyPlan) alike(x *proxy) (servers []*server, tls fields) {
	for i := range x.servers {
		s := &x.servers[i]
		if s.track != "" {
			h.note(s.at, "server %s left out: track %s: each group checks its own members, and this one would get clients that HAProxy keeps from it", s.name, s.track)
			continue
		}
		if len(servers) == 0 {
			if s.tls {
				var ok bool
				if tls, ok = h.clientSide(s, s.tlsOptions.sni); !ok {
					h.note(s.at, "server %s left out: its TLS has no counterpart", s.name)
					continue
				}
			}
			servers = append(servers, s)
			continue
		}
		first := servers[0]
		if s.tls != first.tls || s.tls && s.tlsOptions.ofFlows() != first.tlsOptions.ofFlows() {
			h.note(s.at, "server %s left out: ssl and its options are the group's, and %s has others; put it into a group of its own", s.name, first.name)
			continue
		}
		if s.proxy != first.proxy || s.proxyTLS != first.proxyTLS || s.names != first.names || s.source != first.source || s.device != first.device {
			h.note(s.at, "server %s left out: send-proxy, source and interface are the group's, and %s has others; put it into a group of its own", s.name, first.name)
			continue
		}
		servers = append(servers, s)
	}
	return servers, tls
}

// url returns where a server is, for clients that came to a port.
func (s *server) url(port string) string {
	p := s.port
	if p == "" || p == "0" {
		p = port
	}
	switch {
	case s.unix && strings.HasPrefix(s.address, "@"):
		return "unix:" + s.address
	case s.unix:
		return "unix://" + s.address
	case strings.HasPrefix(p, "+") || strings.HasPrefix(p, "-"):
		offset, _ := strconv.Atoi(p)
		return tcpURL("tcp", s.address, shift(port, offset))
	}
	return tcpURL("tcp", s.address, p)
}

// template makes a discover entry of a server-template.
func (h *haproxyPlan) template(s *server, port string) (d fields, ok bool) {
	host := s.address
	if strings.HasPrefix(host, "_") {
		if !serviceRE().MatchString(host) {
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

// groupSettings sets the keys of a group other than its members. It reports false if the group
// would not do what the backend does.
func (h *haproxyPlan) groupSettings(x *proxy, servers []*server, f *fields) bool {
	first := servers[0]
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
	for _, s := range servers {
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
	if !h.setCheck(x, servers, f) {
		return false
	}
	if first.observe {
		failures := first.errorLimit
		if failures == 0 {
			failures = 10
		}
		f.sub("eject", "failures", number(failures, many))
		f.sub("eject", "share", raw("1"))
		why := "observe layer4; a member comes back after a time here, not when its check is well again."
		if !first.markDown {
			why = "observe layer4; HAProxy counts errors as one failed check, here the member is taken away for a time."
		}
		f.set("eject", f.get("eject"), why)
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
		if interfaceRE().MatchString(device) {
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
	return true
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
