package convert

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// group returns the group of a proxy_pass, with what the server says of connecting.
func (n *nginxPlan) group(s *settings, c choice, network, port string) *group {
	var f fields
	members := 1
	name := c.value
	if u := n.upstreams[c.value]; u != nil {
		u.used = true
		var ok bool
		if members, ok = n.upstream(u, &f, network); !ok {
			return nil
		}
	} else {
		url, ok := n.memberURL(c.at, c.value, network)
		if !ok {
			return nil
		}
		f.set("members", []string{url})
	}
	if network == "udp" && s.on("proxy_ssl") {
		n.note(s.one["proxy_ssl"].at, "proxy_ssl: datagrams have no TLS")
		return nil
	}
	if !n.clientSide(s, &f, c.value) {
		return nil
	}
	connect := 60 * time.Second
	if d := s.one["proxy_connect_timeout"]; d != nil {
		if t, ok := n.time(d, d.arg(0)); ok && t > 0 {
			connect = t
		}
	}
	f.sub("timeouts", "connect", duration(connect))
	n.retries(s, &f, members)
	if d := s.one["proxy_protocol"]; d != nil && d.arg(0) == "on" {
		if network == "udp" {
			n.note(d.at, "proxy_protocol on: datagrams have no header")
		} else {
			f.set("proxy-protocol", raw("v1"))
		}
	}
	if d := s.one["proxy_bind"]; d != nil {
		switch source := d.arg(0); {
		case source == "off":
		case strings.HasPrefix(source, "$remote_addr") || strings.HasPrefix(source, "$realip_remote_addr"):
			if d.arg(1) == "transparent" {
				n.sourceFields(d.at, &f, "client")
			} else {
				n.note(d.at, "proxy_bind %s without transparent: no counterpart", source)
			}
		case strings.Contains(source, "$"):
			n.note(d.at, "proxy_bind %s: no counterpart", source)
		default:
			if d.arg(1) != "" {
				n.note(d.at, "proxy_bind %s %s: no counterpart; source is an address of this host, or client", source, d.arg(1))
			}
			n.sourceFields(d.at, &f, source)
		}
	}
	if d := s.one["tcp_nodelay"]; d != nil && d.arg(0) == "off" && network == "tcp" {
		f.sub("tcp", "nagle", raw("true"))
	}
	return n.plan.group(name, f)
}

// retries converts proxy_next_upstream and its bounds.
func (n *nginxPlan) retries(s *settings, f *fields, members int) {
	tries := members - 1
	if d := s.one["proxy_next_upstream"]; d != nil && d.arg(0) == "off" {
		tries = 0
	} else if d := s.one["proxy_next_upstream_tries"]; d != nil {
		if k, ok := count(d.arg(0)); ok && k > 0 {
			tries = min(tries, k-1)
		}
	}
	f.set("retries", number(tries, 100))
	if d := s.one["proxy_next_upstream_timeout"]; d != nil && tries > 0 {
		if t, ok := n.time(d, d.arg(0)); ok && t > 0 {
			f.sub("timeouts", "retries", duration(t))
		}
	}
}

// memberURL turns the address of a server into a URL.
func (n *nginxPlan) memberURL(here at, address, network string) (string, bool) {
	url := network + "://" + address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		url = map[string]string{"tcp": "unix://", "udp": "unixgram://"}[network] + path
	}
	url, err := upstream(url)
	if err != nil {
		n.note(here, "%s: %v", quote(address), err)
		return "", false
	}
	return url, true
}

// upstream converts an upstream block, and returns how many members it has.
func (n *nginxPlan) upstream(u *directive, f *fields, network string) (int, bool) {
	var members, discover []fields
	balance, hash := "", ""
	failures, outFor := 1, 10*time.Second
	first := true
	var slow time.Duration
	for _, d := range u.block {
		switch d.name {
		case "server":
			m, more := n.member(d, network)
			if m == nil {
				continue
			}
			if first {
				failures, outFor, first = more.failures, more.outFor, false
			} else if more.failures != failures || more.outFor != outFor {
				n.note(d.at, "server %s: max_fails and fail_timeout are the group's: those of the first server are taken", d.arg(0))
			}
			slow = max(slow, more.slow)
			if more.discover {
				discover = append(discover, m)
				continue
			}
			if slices.ContainsFunc(members, func(other fields) bool { return other.get("to") == m.get("to") }) {
				m.set("name", fmt.Sprintf("server-%d", len(members)+1))
			}
			members = append(members, m)
		case "least_conn":
			balance = "least-connections"
		case "random":
			balance = "random"
			if d.arg(0) == "two" {
				balance = "p2c"
			}
			if method := d.arg(1); method != "" && method != "least_conn" {
				n.note(d.at, "random two %s: no counterpart; the less loaded of two is taken", method)
			}
		case "hash":
			balance = "maglev"
			switch key := strings.NewReplacer("{", "", "}", "").Replace(d.arg(0)); key {
			case "$remote_addr", "$binary_remote_addr":
			case "$remote_addr$remote_port", "$remote_addr:$remote_port", "$binary_remote_addr$remote_port":
				hash = "4-tuple"
			case "$ssl_preread_server_name":
				if network == "tcp" {
					hash = "sni"
					break
				}
				n.note(d.at, "hash %s: no counterpart; the client's address takes its place", d.arg(0))
			default:
				n.note(d.at, "hash %s: no counterpart; the client's address takes its place", d.arg(0))
			}
		case "resolver":
			n.noResolver(d)
		case "least_time":
			n.note(d.at, "least_time: no counterpart; least-connections takes its place")
			balance = "least-connections"
		default:
			if !nothing(Nginx, "upstream", d.name) {
				n.note(d.at, "%s in an upstream: no counterpart", d.name)
			}
		}
	}
	if len(members)+len(discover) == 0 {
		n.note(u.at, "upstream %s: it has no server with a counterpart", u.arg(0))
		return 0, false
	}
	if balance != "" {
		f.set("balance", raw(balance))
		if balance == "maglev" {
			(*f)[len(*f)-1].comments = []string{"maglev is a consistent hash; which client goes to which member differs from nginx."}
		}
	}
	if hash != "" && balance == "maglev" {
		f.set("hash", raw(hash))
	}
	if len(members) > 0 {
		f.set("members", members)
	}
	if len(discover) > 0 {
		f.set("discover", discover)
	}
	if slow > 0 {
		f.set("slow-start", duration(slow))
	}
	if failures > 0 && len(members)+len(discover) > 1 {
		out := duration(min(max(outFor, 100*time.Millisecond), maxLife))
		f.set("eject", fields{{key: "failures", value: number(failures, many)}, {key: "for", value: out}, {key: "max", value: out}, {key: "share", value: raw("1")}},
			"max_fails and fail_timeout. nginx counts failures within fail_timeout, Penstock failures in a row.")
	}
	return len(members) + len(discover), true
}

// serverOptions is what a server says for its group.
type serverOptions struct {
	failures int
	outFor   time.Duration
	slow     time.Duration
	discover bool
}

// member converts a server of an upstream.
func (n *nginxPlan) member(d *directive, network string) (m fields, more serverOptions) {
	more = serverOptions{failures: 1, outFor: 10 * time.Second}
	address, service := d.arg(0), ""
	var further fields
	for _, a := range d.args[min(1, len(d.args)):] {
		key, value, _ := strings.Cut(a, "=")
		k, isNumber := count(value)
		switch key {
		case "weight":
			if isNumber && k > 1 {
				further.set("weight", number(k, 256))
			}
			if k > 256 {
				n.note(d.at, "server %s: weight %d is more than 256, the most", address, k)
			}
		case "max_conns":
			if isNumber && k > 0 {
				further.set("max-flows", number(k, many))
			}
		case "max_fails":
			if isNumber {
				more.failures = k
			}
		case "fail_timeout":
			if t, ok := n.time(d, value); ok {
				more.outFor = t
			}
		case "slow_start":
			if t, ok := n.time(d, value); ok {
				more.slow = t
			}
		case "backup":
			further.set("backup", raw("true"))
		case "down":
			further.set("drained", raw("true"))
		case "resolve":
		case "service":
			service = value
		default:
			n.note(d.at, "server ... %s: no counterpart", a)
		}
	}
	if service != "" {
		proto := map[string]string{"tcp": "_tcp", "udp": "_udp"}[network]
		if !strings.HasPrefix(service, "_") {
			service = fmt.Sprintf("_%s.%s", service, proto)
		}
		name := service + "." + address
		if !serviceRE().MatchString(strings.Replace(name, "._udp.", "._tcp.", 1)) {
			n.note(d.at, "server %s left out: %s is not a service", address, quote(name))
			return nil, more
		}
		more.discover = true
		m.set("srv", name)
		for _, g := range further {
			if g.key == "max-flows" {
				m = append(m, g)
			}
		}
		return m, more
	}
	url, ok := n.memberURL(d.at, address, network)
	if !ok {
		return nil, more
	}
	m.set("to", url)
	return append(m, further...), more
}
