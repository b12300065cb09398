package convert

import (
	"fmt"
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
	h.sourceLimits(x, l)
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
			h.note(x.fallbackAt, "there is no backend %s", quote(x.fallback))
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
		var g *group
		if h.admitsAll(x, c.back) {
			g = h.backend(c.back, port)
		}
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
				h.note(c.at, "%s: a condition that never holds is left out: %s", l.name, map[bool]string{true: "TLS ends at this bind, so that req.ssl_* sees no ClientHello; ssl_fc_sni and ssl_fc_alpn do", false: "TLS does not end at this bind, so that ssl_fc_* has nothing; req.ssl_* has"}[b.tls.on])
				continue
			}
			agreed := slices.Clone(cond.alpn)
			if b.tls.on {
				agreed = slices.DeleteFunc(agreed, func(p string) bool { return !slices.Contains(b.tls.alpn, p) })
			}
			if len(cond.alpn) > 0 && len(agreed) == 0 {
				h.note(c.at, "%s: a condition that never holds is left out: alpn of this bind does not have %s", l.name, strings.Join(cond.alpn, ", "))
				continue
			}
			cond.alpn = agreed
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
	reads := l.tls || slices.ContainsFunc(l.routes, func(r route) bool { return r.to.fields.get("hash") == raw("sni") })
	if x.inspect > 0 && (reads || l.fields.get("proxy-protocol") != nil) && !b.tls.on {
		l.fields.sub("sniff", "timeout", duration(x.inspect))
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

// admitsAll reports whether a backend takes all clients that a frontend lets in; otherwise it is
// left out.
func (h *haproxyPlan) admitsAll(front, back *proxy) bool {
	rules := slices.Concat(back.later, back.only)
	i := slices.IndexFunc(rules, func(r accessRule) bool { return !r.allow || len(back.only) > 0 })
	if front == back || i < 0 {
		return true
	}
	back.reached = true
	h.note(rules[i].at, "%s %s left out: clients that its tcp-request rules refuse would come in; put the rules into the frontends that lead to it", back.kind, back.name)
	return false
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
