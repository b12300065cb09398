package haproxy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// backend returns the group of a backend for clients that came to a port; nil,
// and lists why, if there is none.
func (h *conversion) backend(x *proxy, port string) *convert.Group {
	x.reached = true
	switch {
	case x.http:
		h.Note(x.Place, "%s %s left out: mode http is layer 7", x.kind, x.name)
		return nil
	case x.off:
		h.Note(x.Place, "%s %s is disabled", x.kind, x.name)
		return nil
	}
	servers, tls := h.alike(x)
	servers = h.sameProbes(x, servers)
	agent := h.groupAgent(x, servers)
	var members, discover []convert.Fields
	var f convert.Fields
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
		if !s.unix && (s.address == "0.0.0.0" || s.address == "::" || s.address == "*") {
			if !h.named || len(servers) > 1 || s.check {
				h.Note(s.Place, "server %s left out: %s is where the client wants to go; a group with a destination goes there, by sni or original (docs/egress.md)", s.name, s.address)
				continue
			}
			to := s.portOr(port)
			n, ok := convert.Count(to)
			if !ok || n < 1 || n > 65535 {
				h.Note(s.Place, "server %s left out: %s is not a port", s.name, convert.Quote(to))
				continue
			}
			f.Sub("destination", "port", convert.Number(n, 65535))
			f.Sub("destination", "allow", []string{"*"})
			h.Note(s.Place, "server %s: every name is in allow, as in HAProxy; list those that are meant. Private and other reserved addresses are refused unless networks of the destination lets them in (docs/egress.md)", s.name)
			kept = append(kept, s)
			x.balance, x.hash = "", ""
			continue
		}
		url, err := convert.Upstream(s.url(port))
		if err != nil {
			h.Note(s.Place, "server %s left out: %v", s.name, err)
			continue
		}
		var m convert.Fields
		m.Set("to", url)
		name := convert.Unique(convert.NameOf(s.name), func(n string) bool { return names[n] })
		names[name] = true
		m.Set("name", name)
		if s.weighted && s.weight != 1 && s.weight != 0 {
			m.Set("weight", convert.Number(s.weight, 256))
		}
		if s.backup {
			backups++
			m.Set("backup", convert.Raw("true"))
		}
		if s.maxconn > 0 {
			m.Set("max-flows", convert.Number(s.maxconn, convert.Many))
		}
		if s.disabled || s.weighted && s.weight == 0 {
			m.Set("drained", convert.Raw("true"))
		}
		h.checkedElsewhere(x, s, servers, port, &m)
		agentElsewhere(agent, s, &m)
		members, kept = append(members, m), append(kept, s)
	}
	if len(kept) == 0 {
		h.Note(x.Place, "%s %s: it has no server with a counterpart", x.kind, x.name)
		return nil
	}
	if x.balance != "" && x.balance != "round-robin" {
		f.Set("balance", convert.Raw(x.balance), map[string]string{
			"p2c":    "random draws two servers and takes the less loaded one: p2c.",
			"maglev": "maglev keeps a client at its member, as balance source does; which one that is differs from HAProxy.",
		}[x.balance])
		f[len(f)-1].Comments = slices.DeleteFunc(f[len(f)-1].Comments, func(s string) bool { return s == "" })
	}
	if x.hash != "" {
		f.Set("hash", convert.Raw(x.hash))
	}
	if x.balance == "first" {
		for i := range members {
			members[i] = slices.DeleteFunc(members[i], func(g convert.Field) bool { return g.Key == "weight" })
		}
	}
	if backups > 1 && !x.allBackup {
		f.Set("members", members, "HAProxy uses the first backup only (option allbackups is off); here all backups take over together.")
	} else if len(members) > 0 {
		f.Set("members", members)
	}
	if len(discover) > 0 {
		f.Set("discover", discover, "Every address that is found becomes a member; HAProxy takes as many as server-template says.")
	}
	if kept[0].tls {
		if what := convert.Hostless(f); what != "" && tls.Get("verify") == nil && tls.Get("server-name") == nil {
			h.Note(kept[0].Place, "%s %s: TLS: %s has no host to compare its certificate with; name one with server-name", x.kind, x.name, what)
			return nil
		}
		f.Set("tls", tls)
	}
	if !h.groupSettings(x, kept, agent, &f) {
		return nil
	}
	return h.Group(x.name, f)
}

// alike returns the servers that can be in one group, with the TLS of their flows. What differs
// from the first one, and is the group's here, leaves a server out.
func (h *conversion) alike(x *proxy) (servers []*server, tls convert.Fields) {
	for i := range x.servers {
		s := &x.servers[i]
		if s.track != "" {
			h.Note(s.Place, "server %s left out: track %s: each group checks its own members, and this one would get clients that HAProxy keeps from it", s.name, s.track)
			continue
		}
		if len(servers) == 0 {
			if s.tls {
				var ok bool
				if tls, ok = h.clientSide(s, s.tlsOptions.sni); !ok {
					h.Note(s.Place, "server %s left out: its TLS has no counterpart", s.name)
					continue
				}
			}
			servers = append(servers, s)
			continue
		}
		first := servers[0]
		if s.tls != first.tls || s.tls && s.tlsOptions.ofFlows() != first.tlsOptions.ofFlows() {
			h.Note(s.Place, "server %s left out: ssl and its options are the group's, and %s has others; put it into a group of its own", s.name, first.name)
			continue
		}
		if s.proxy != first.proxy || s.proxyTLS != first.proxyTLS || s.names != first.names || s.source != first.source || s.device != first.device {
			h.Note(s.Place, "server %s left out: send-proxy, source and interface are the group's, and %s has others; put it into a group of its own", s.name, first.name)
			continue
		}
		servers = append(servers, s)
	}
	return servers, tls
}

// url returns where a server is, for clients that came to a port.
func (s *server) url(port string) string {
	switch p := s.portOr(port); {
	case s.unix && strings.HasPrefix(s.address, "@"):
		return "unix:" + s.address
	case s.unix:
		return "unix://" + s.address
	default:
		return convert.SocketURL("tcp", s.address, p)
	}
}

// portOr returns the server's port; port is that of the client.
func (s *server) portOr(port string) string {
	switch p := s.port; {
	case p == "" || p == "0":
		return port
	case strings.HasPrefix(p, "+") || strings.HasPrefix(p, "-"):
		offset, _ := strconv.Atoi(p)
		return shift(port, offset)
	default:
		return p
	}
}

// template makes a discover entry of a server-template.
func (h *conversion) template(s *server, port string) (d convert.Fields, ok bool) {
	host := s.address
	if strings.HasPrefix(host, "_") {
		if !convert.ServiceRE().MatchString(host) {
			h.Note(s.Place, "server-template %s left out: %s is not a service", s.name, convert.Quote(host))
			return nil, false
		}
		d.Set("srv", host)
	} else {
		p := s.port
		if p == "" {
			p = port
		}
		if _, err := convert.Upstream(convert.SocketURL("tcp", host, p)); err != nil {
			h.Note(s.Place, "server-template %s left out: %v", s.name, err)
			return nil, false
		}
		if a, err := netip.ParseAddr(host); err == nil {
			host = a.String()
		}
		d.Set("dns", host)
		d.Set("port", convert.Raw(strings.TrimLeft(p, "0")))
	}
	if s.weighted && s.weight > 0 {
		d.Set("weight", convert.Number(s.weight, 256))
	}
	if s.maxconn > 0 {
		d.Set("max-flows", convert.Number(s.maxconn, convert.Many))
	}
	return d, true
}

// groupSettings sets the keys of a group other than its members. It reports false if the group
// would not do what the backend does.
func (h *conversion) groupSettings(x *proxy, servers []*server, agent *serverAgent, f *convert.Fields) bool {
	first := servers[0]
	if t := x.timeouts["connect"]; t > 0 {
		f.Sub("timeouts", "connect", convert.Duration(t))
	}
	retries := x.retries
	if retries < 0 {
		retries = 3
	}
	if x.redisp {
		f.Set("retries", convert.Number(retries, 100))
	} else {
		f.Set("retries", convert.Number(retries, 100), "Without option redispatch HAProxy tries the same server again; Penstock always goes on to another member.")
	}
	capped, queued := false, 0
	for _, s := range servers {
		capped = capped || s.maxconn > 0
		queued = min(queued+s.maxqueue, convert.Many)
	}
	if capped {
		if queued == 0 {
			queued = 1024
			f.Sub("queue", "size", convert.Number(queued, convert.Many))
			f.Set("queue", f.Get("queue"), "HAProxy's queue has no bound unless maxqueue says one.")
		} else {
			f.Sub("queue", "size", convert.Number(queued, convert.Many))
		}
		wait := x.timeouts["queue"]
		if wait == 0 {
			wait = x.timeouts["connect"]
		}
		if wait > 0 {
			f.Sub("queue", "timeout", convert.Duration(wait))
		}
	}
	if x.balance != "first" && first.slowstart > 0 {
		f.Set("slow-start", convert.Duration(first.slowstart))
	}
	if !h.setCheck(x, servers, f) {
		return false
	}
	setAgent(x, agent, servers, f)
	if first.observe {
		failures := first.errorLimit
		if failures == 0 {
			failures = 10
		}
		f.Sub("eject", "failures", convert.Number(failures, convert.Many))
		f.Sub("eject", "share", convert.Raw("1"))
		why := "observe layer4; a member comes back after a time here, not when its check is well again."
		if !first.markDown {
			why = "observe layer4; HAProxy counts errors as one failed check, here the member is taken away for a time."
		}
		f.Set("eject", f.Get("eject"), why)
	}
	h.setEnds(servers, f)
	switch {
	case first.proxy == "v2" && (first.names || first.proxyTLS):
		v := convert.Fields{{Key: "version", Value: convert.Raw("2")}}
		if first.names {
			v.Set("names", convert.Raw("true"))
		}
		if first.proxyTLS {
			v.Set("tls", convert.Raw("true"))
		}
		f.Set("proxy-protocol", v)
	case first.proxy != "":
		f.Set("proxy-protocol", convert.Raw(first.proxy))
	}
	source, device := first.source, first.device
	if source == "" {
		source = x.source
	}
	if device == "" {
		device = x.device
	}
	h.SetSource(first.Place, f, source)
	if device != "" {
		if interfaceRE().MatchString(device) {
			f.Set("interface", device)
		} else {
			h.Note(first.Place, "interface %s: not the name of an interface", convert.Quote(device))
		}
	}
	h.keepaliveFields(f, x.upstreamKA)
	if first.userTimeout > 0 {
		f.Sub("tcp", "user-timeout", convert.Duration(first.userTimeout))
	}
	if first.tfo {
		f.Sub("tcp", "fast-open", convert.Raw("1"))
	}
	if n := h.rcv[1]; n > 0 {
		f.Sub("tcp", "recv-buffer", convert.Size(n))
	}
	if n := h.snd[1]; n > 0 {
		f.Sub("tcp", "send-buffer", convert.Size(n))
	}
	return true
}

// setEnds sets what becomes of flows when servers go down and come back. It is what the servers say if all of those that matter say the same.
func (h *conversion) setEnds(servers []*server, f *convert.Fields) {
	failing := f.Get("check") != nil || f.Get("eject") != nil
	ends := func(word, key string, concerned, says func(*server) bool, comments ...string) {
		all, some := true, (*server)(nil)
		for _, s := range servers {
			if concerned(s) && says(s) {
				some = s
			} else if concerned(s) {
				all = false
			}
		}
		switch {
		case some == nil || !failing:
		case !all:
			h.Note(some.Place, "%s: it is the group's here, and not all of its servers say so; put %s into a group of its own", word, some.name)
		default:
			f.Set(key, convert.Fields{{Key: "live-flows", Value: convert.Raw("close")}}, comments...)
		}
	}
	backup := func(s *server) bool { return s.backup }
	if len(servers) > 1 || servers[0].template > 0 {
		ends("on-marked-down shutdown-sessions", "down", func(*server) bool { return true }, func(s *server) bool { return s.endsDown },
			"When more than half of the members go down at once, their flows go on; those of HAProxy end.")
	} else if s := servers[0]; s.endsDown && failing {
		h.Note(s.Place, "on-marked-down shutdown-sessions: flows of the only member of a group go on when it goes down; penstock disable ends them")
	}
	if slices.ContainsFunc(servers, backup) {
		ends("on-marked-up shutdown-backup-sessions", "up", func(s *server) bool { return !s.backup }, func(s *server) bool { return s.endsBackups })
	}
}

// shift adds to a port, or to both ends of a range.
func shift(port string, by int) string {
	first, last, ranged := strings.Cut(port, "-")
	n, _ := strconv.Atoi(first)
	first = strconv.Itoa(n + by)
	if !ranged {
		return first
	}
	n, _ = strconv.Atoi(last)
	return first + "-" + strconv.Itoa(n+by)
}
