package haproxy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// listeners adds the listeners of one section to the plan, with the groups that
// they lead to.
func (h *conversion) listeners(x *proxy) {
	switch {
	case x.http:
		h.Note(x.Place, "%s %s left out: mode http is layer 7; in mode tcp its bytes would pass through as they are", x.kind, x.name)
		return
	case x.off:
		h.Note(x.Place, "%s %s left out: it is disabled", x.kind, x.name)
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
		l := h.Listen(b.Place, name, b.url)
		if l == nil {
			continue
		}
		if !h.listener(x, b, l) {
			h.Drop(l)
		}
	}
}

// listener fills one listener; it reports false if it cannot be had.
func (h *conversion) listener(x *proxy, b bind, l *convert.Listener) bool {
	unix := strings.HasPrefix(l.URL, "unix:")
	for _, f := range b.fields {
		switch {
		case unix && (f.Key == "transparent" || f.Key == "interface" || f.Key == "tcp"), f.Key == "mode" && !strings.HasPrefix(l.URL, "unix:///"):
			h.Note(b.Place, "%s has no meaning for %s", f.Key, l.URL)
		default:
			l.Fields.Set(f.Key, f.Value, f.Comments...)
		}
	}
	if x.backlog > 0 && l.Fields.Get("backlog") == nil {
		l.Fields.Set("backlog", convert.Number(x.backlog, 1<<20))
	}
	if b.v6only {
		h.NoteV6Only(l)
	}
	h.sourceLimits(x, l)
	l.Lists = x.lists
	rules := slices.Concat(x.access, x.later, x.only)
	if len(x.only) > 0 {
		rules = append(rules, convert.AccessRule{Allow: false, From: nil, At: x.only[0].At})
	}
	if len(rules) > 0 && !h.SetAccess(l, rules) {
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
		l.Fields.Sub("limits", "flows", convert.Number(limit, convert.Many))
		h.comment(l, "limits", comments)
	}
	if x.rate > 0 {
		l.Fields.Sub("limits", "new-flows", convert.Number(x.rate, 1e9)+"/s")
		h.comment(l, "limits", []string{"Beyond rate-limit HAProxy delays clients; Penstock refuses them."})
	}
	switch {
	case b.proxied:
		l.Fields.Sub("proxy-protocol", "from", convert.Everywhere)
		h.comment(l, "proxy-protocol", []string{"accept-proxy believes everybody; name the addresses of the proxies in front."})
	case len(x.proxied) > 0:
		l.Fields.Sub("proxy-protocol", "from", x.proxied)
	}
	if !unix {
		h.keepaliveFields(&l.Fields, x.keepalive)
		if n := h.rcv[0]; n > 0 {
			l.Fields.Sub("tcp", "recv-buffer", convert.Size(n))
		}
		if n := h.snd[0]; n > 0 {
			l.Fields.Sub("tcp", "send-buffer", convert.Size(n))
		}
	}
	port := ""
	if i := strings.LastIndexByte(l.URL, ':'); !unix {
		port = l.URL[i+1:]
	}

	// Where clients go. The listener's timeouts are those of its default.
	type choice struct {
		use
		back *proxy
	}
	var choices []choice
	if x.cases {
		l.Comments = append(l.Comments, "Without -i HAProxy tells capital letters of server names from small ones; here they are the same.")
	}
	for _, u := range x.uses {
		if u.to == "" {
			l.Comments = append(l.Comments, "Left out: the use_backend of line "+strconv.Itoa(u.Line)+". Its clients go on to the next route that matches.")
			continue
		}
		back := h.backends[u.to]
		if back == nil {
			h.Note(u.Place, "there is no backend %s", convert.Quote(u.to))
			continue
		}
		choices = append(choices, choice{u, back})
	}
	var def *proxy
	if x.fallback != "" {
		if def = h.backends[x.fallback]; def == nil {
			h.Note(x.fallbackAt, "there is no backend %s", convert.Quote(x.fallback))
		}
	} else if x.kind == "listen" && len(x.servers) > 0 {
		def = x
	}
	if def != nil {
		choices = append(choices, choice{use{Place: x.Place, conds: []convert.Condition{{}}}, def})
	}
	var base convert.Fields // the timeouts of the last one, the default, are the listener's
	if n := len(choices); n > 0 {
		var comments []string
		base, comments = h.timeouts(x, choices[n-1].back)
		l.Fields.Set("timeouts", base, comments...)
	}
	for i, c := range choices {
		var g *convert.Group
		if h.admitsAll(x, c.back) {
			g = h.backend(c.back, port)
		}
		if g == nil {
			if i == len(choices)-1 {
				h.Note(c.Place, "%s: the clients of %s are refused: there is no group for it", x.name, c.back.name)
			} else {
				h.Note(c.Place, "%s: use_backend %s left out, and its clients go on to the next route that matches: there is no group for it", x.name, c.back.name)
			}
			continue
		}
		timeouts, _ := h.timeouts(x, c.back)
		if convert.Inline(timeouts) == convert.Inline(base) {
			timeouts = nil
		}
		var conds []convert.Condition
		for _, cond := range c.conds {
			in, ok := x.letIn(cond)
			if !ok {
				h.Note(x.Place, "%s %s left out: its tcp-request content rules are too complex together", x.kind, x.name)
				return false
			}
			conds = append(conds, in...)
		}
		for _, cond := range conds {
			if why := h.never(x, b, l, &cond); why != "" {
				h.Note(c.Place, "%s: a condition is left out: %s", l.Name, why)
				continue
			}
			if cond.Content { // of a gate
				h.Note(x.Place, "%s: clients that send nothing are let in, too; HAProxy refuses them after inspect-delay", l.Name)
				cond.Content = false
			}
			l.Routes = append(l.Routes, convert.Route{Condition: cond, Silence: x.inspect, To: g, Share: c.share, Timeouts: timeouts})
			l.Sniffs = l.Sniffs || cond.ByName() || cond.ByFirst()
		}
	}
	if len(l.Routes) == 0 {
		h.Note(x.Place, "%s %s left out: it leads to no group", x.kind, x.name)
		return false
	}
	if unix && slices.ContainsFunc(l.Routes, func(r convert.Route) bool { return len(r.From) > 0 }) {
		h.Note(x.Place, "clients of the Unix socket of %s have no address: conditions with src never hold", x.name)
		l.Routes = slices.DeleteFunc(l.Routes, func(r convert.Route) bool { return len(r.From) > 0 })
		if len(l.Routes) == 0 {
			return false
		}
	}
	reads := l.Sniffs || slices.ContainsFunc(l.Routes, func(r convert.Route) bool { return r.To.Fields.Get("hash") == convert.Raw("sni") })
	if x.inspect > 0 && (reads || l.Fields.Get("proxy-protocol") != nil) && !b.tls.on {
		l.Fields.Sub("sniff", "timeout", convert.Duration(x.inspect))
	}
	if b.tls.on {
		if t := x.timeouts["client-hs"]; t > 0 {
			l.Fields.Sub("tls", "handshake-timeout", convert.Duration(t))
		}
	}
	return true
}

// never returns why a condition holds for no client of a bind. Of the protocols that TLS may agree on it leaves those that the bind has.
func (h *conversion) never(x *proxy, b bind, l *convert.Listener, cond *convert.Condition) string {
	switch {
	case !b.tls.on && cond.Ended:
		return "it never holds: TLS does not end at this bind, so that ssl_fc_* has nothing; req.ssl_* has"
	case !b.tls.on && cond.Silent && x.inspect == 0:
		return "without tcp-request inspect-delay it is chance whether a client has sent something"
	case !b.tls.on:
		return ""
	case cond.ByFirst() || cond.ByName() && !cond.Ended:
		return "TLS ends at this bind: req.ssl_* sees no ClientHello, but ssl_fc_sni and ssl_fc_alpn do; and what is inside of TLS is not looked at"
	}
	agreed := slices.Clone(cond.ALPN)
	agreed = slices.DeleteFunc(agreed, func(p string) bool { return !slices.Contains(b.tls.alpn, p) })
	if len(cond.ALPN) > 0 && len(agreed) == 0 {
		return "it never holds: alpn of this bind does not have " + strings.Join(cond.ALPN, ", ")
	}
	cond.ALPN = agreed
	return ""
}

// admitsAll reports whether a backend takes all clients that a frontend lets in; otherwise it is
// left out.
func (h *conversion) admitsAll(front, back *proxy) bool {
	rules := slices.Concat(back.later, back.only)
	i := slices.IndexFunc(rules, func(r convert.AccessRule) bool { return !r.Allow || len(back.only) > 0 })
	if front == back || i < 0 {
		return true
	}
	back.reached = true
	h.Note(rules[i].At, "%s %s left out: clients that its tcp-request rules refuse would come in; put the rules into the frontends that lead to it", back.kind, back.name)
	return false
}

// comment adds comments to a key, if the key exists.
func (h *conversion) comment(l *convert.Listener, key string, comments []string) {
	if v := l.Fields.Get(key); v != nil {
		l.Fields.Set(key, v, comments...)
	}
}

func (h *conversion) keepaliveFields(f *convert.Fields, from map[string]string) {
	for _, key := range []string{"keepalive", "keepalive-interval", "keepalive-count"} {
		if v := from[key]; v != "" {
			f.Sub("tcp", key, convert.Raw(v))
		}
	}
}

// timeouts are those of flows from a frontend to a backend.
func (h *conversion) timeouts(front, back *proxy) (f convert.Fields, comments []string) {
	get := func(name string, x *proxy) time.Duration { return x.timeouts[name] }
	client, server := get("client", front), get("server", back)
	idle := least(client, server)
	if client != server && idle > 0 {
		comments = append(comments, fmt.Sprintf("HAProxy has timeout client %s and timeout server %s: the shorter one ends a silent flow.", convert.Duration(client), convert.Duration(server)))
	}
	if t := get("tunnel", back); t > 0 {
		idle = t
		comments = []string{"timeout tunnel, which HAProxy takes once both sides are connected."}
	}
	f.Set("idle", convert.Duration(idle))
	half := least(get("client-fin", front), get("server-fin", back))
	if half == 0 {
		half = least(client, server)
	}
	f.Set("half-closed", convert.Duration(half))
	return f, comments
}

// least returns the shorter of two times, where 0 is none.
func least(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
