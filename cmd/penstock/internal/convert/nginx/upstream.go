package nginx

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// group returns the group of a proxy_pass, with what the server says of connecting.
func (n *conversion) group(s *settings, c choice, network, port string) *convert.Group {
	var f convert.Fields
	members := 1
	name := c.value
	if port, ok := strings.CutPrefix(c.value, namedHost+":"); ok {
		if !n.destination(c.Place, &f, network, port) {
			return nil
		}
		name = "names-" + port
	} else if u := n.upstreams[c.value]; u != nil {
		u.used = true
		var ok bool
		if members, ok = n.upstream(u, &f, network); !ok {
			return nil
		}
	} else {
		url, ok := n.memberURL(c.Place, c.value, network)
		if !ok {
			return nil
		}
		f.Set("members", []string{url})
	}
	if network == "udp" && s.on("proxy_ssl") {
		n.Note(s.one["proxy_ssl"].Place, "proxy_ssl: datagrams have no TLS")
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
	f.Sub("timeouts", "connect", convert.Duration(connect))
	if strings.HasPrefix(c.value, namedHost) {
		members = 3 // of the addresses of a name, nginx tries as many as there are
	}
	n.retries(s, &f, members)
	if d := s.one["proxy_protocol"]; d != nil && d.arg(0) == "on" {
		if network == "udp" {
			n.Note(d.Place, "proxy_protocol on: this header, of version 1, is for streams; with proxy-protocol: v2 each datagram has one of version 2, if the servers read it")
		} else {
			f.Set("proxy-protocol", convert.Raw("v1"))
		}
	}
	if d := s.one["proxy_bind"]; d != nil {
		switch source := d.arg(0); {
		case source == "off":
		case strings.HasPrefix(source, "$remote_addr") || strings.HasPrefix(source, "$realip_remote_addr"):
			if d.arg(1) == "transparent" {
				n.SetSource(d.Place, &f, "client")
			} else {
				n.Note(d.Place, "proxy_bind %s without transparent: no counterpart", source)
			}
		case strings.Contains(source, "$"):
			n.Note(d.Place, "proxy_bind %s: no counterpart", source)
		default:
			if d.arg(1) != "" {
				n.Note(d.Place, "proxy_bind %s %s: no counterpart; source is an address of this host, or client", source, d.arg(1))
			}
			n.SetSource(d.Place, &f, source)
		}
	}
	if d := s.one["tcp_nodelay"]; d != nil && d.arg(0) == "off" && network == "tcp" {
		f.Sub("tcp", "nagle", convert.Raw("true"))
	}
	return n.Plan.Group(name, f)
}

// destination has flows go to the host that their client names.
func (n *conversion) destination(here convert.Place, f *convert.Fields, network, port string) bool {
	number, ok := convert.Count(port)
	switch {
	case network == "udp":
		n.Note(here, "proxy_pass to a server name: nginx reads none of datagrams")
		return false
	case !ok || number < 1 || number > 65535:
		n.Note(here, "proxy_pass to a server name: %s is not a port", convert.Quote(port))
		return false
	}
	f.Sub("destination", "port", convert.Number(number, 65535))
	f.Sub("destination", "allow", []string{"*"})
	n.Note(here, "proxy_pass to a server name: every name is in allow, as in nginx; list those that are meant. Private and other reserved addresses are refused unless networks of the destination lets them in (docs/egress.md)")
	return true
}

// retries converts proxy_next_upstream and its bounds.
func (n *conversion) retries(s *settings, f *convert.Fields, members int) {
	tries := members - 1
	if d := s.one["proxy_next_upstream"]; d != nil && d.arg(0) == "off" {
		tries = 0
	} else if d := s.one["proxy_next_upstream_tries"]; d != nil {
		if k, ok := convert.Count(d.arg(0)); ok && k > 0 {
			tries = min(tries, k-1)
		}
	}
	f.Set("retries", convert.Number(tries, 100))
	if d := s.one["proxy_next_upstream_timeout"]; d != nil && tries > 0 {
		if t, ok := n.time(d, d.arg(0)); ok && t > 0 {
			f.Sub("timeouts", "retries", convert.Duration(t))
		}
	}
}

// memberURL turns the address of a server into a URL.
func (n *conversion) memberURL(here convert.Place, address, network string) (string, bool) {
	url := network + "://" + address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		url = map[string]string{"tcp": "unix://", "udp": "unixgram://"}[network] + path
	}
	url, err := convert.Upstream(url)
	if err != nil {
		n.Note(here, "%s: %v", convert.Quote(address), err)
		return "", false
	}
	return url, true
}

// upstream converts an upstream block, and returns how many members it has.
func (n *conversion) upstream(u *directive, f *convert.Fields, network string) (int, bool) {
	var members, discover []convert.Fields
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
				n.Note(d.Place, "server %s: max_fails and fail_timeout are the group's: those of the first server are taken", d.arg(0))
			}
			slow = max(slow, more.slow)
			if more.discover {
				discover = append(discover, m)
				continue
			}
			if slices.ContainsFunc(members, func(other convert.Fields) bool { return other.Get("to") == m.Get("to") }) {
				m.Set("name", fmt.Sprintf("server-%d", len(members)+1))
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
				n.Note(d.Place, "random two %s: no counterpart; the less loaded of two is taken", method)
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
				n.Note(d.Place, "hash %s: no counterpart; the client's address takes its place", d.arg(0))
			default:
				n.Note(d.Place, "hash %s: no counterpart; the client's address takes its place", d.arg(0))
			}
		case "resolver":
			n.noResolver(d)
		case "least_time":
			n.Note(d.Place, "least_time: no counterpart; least-connections takes its place")
			balance = "least-connections"
		default:
			if !nothing("upstream", d.name) {
				n.Note(d.Place, "%s in an upstream: no counterpart", d.name)
			}
		}
	}
	if len(members)+len(discover) == 0 {
		n.Note(u.Place, "upstream %s: it has no server with a counterpart", u.arg(0))
		return 0, false
	}
	if balance != "" {
		f.Set("balance", convert.Raw(balance))
		if balance == "maglev" {
			(*f)[len(*f)-1].Comments = []string{"maglev is a consistent hash; which client goes to which member differs from nginx."}
		}
	}
	if hash != "" && balance == "maglev" {
		f.Set("hash", convert.Raw(hash))
	}
	if len(members) > 0 {
		f.Set("members", members)
	}
	if len(discover) > 0 {
		f.Set("discover", discover)
	}
	if slow > 0 {
		f.Set("slow-start", convert.Duration(slow))
	}
	if failures > 0 && len(members)+len(discover) > 1 {
		out := convert.Duration(min(max(outFor, 100*time.Millisecond), convert.MaxLife))
		f.Set("eject", convert.Fields{{Key: "failures", Value: convert.Number(failures, convert.Many)}, {Key: "for", Value: out}, {Key: "max", Value: out}, {Key: "share", Value: convert.Raw("1")}},
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
func (n *conversion) member(d *directive, network string) (m convert.Fields, more serverOptions) {
	more = serverOptions{failures: 1, outFor: 10 * time.Second}
	address, service := d.arg(0), ""
	var further convert.Fields
	for _, a := range d.args[min(1, len(d.args)):] {
		key, value, _ := strings.Cut(a, "=")
		k, isNumber := convert.Count(value)
		switch key {
		case "weight":
			if isNumber && k > 1 {
				further.Set("weight", convert.Number(k, 256))
			}
			if k > 256 {
				n.Note(d.Place, "server %s: weight %d is more than 256, the most", address, k)
			}
		case "max_conns":
			if isNumber && k > 0 {
				further.Set("max-flows", convert.Number(k, convert.Many))
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
			further.Set("backup", convert.Raw("true"))
		case "down":
			further.Set("drained", convert.Raw("true"))
		case "resolve":
		case "service":
			service = value
		default:
			n.Note(d.Place, "server ... %s: no counterpart", a)
		}
	}
	if service != "" {
		proto := map[string]string{"tcp": "_tcp", "udp": "_udp"}[network]
		if !strings.HasPrefix(service, "_") {
			service = fmt.Sprintf("_%s.%s", service, proto)
		}
		name := service + "." + address
		if !convert.ServiceRE().MatchString(strings.Replace(name, "._udp.", "._tcp.", 1)) {
			n.Note(d.Place, "server %s left out: %s is not a service", address, convert.Quote(name))
			return nil, more
		}
		more.discover = true
		m.Set("srv", name)
		for _, g := range further {
			if g.Key == "max-flows" {
				m = append(m, g)
			}
		}
		return m, more
	}
	url, ok := n.memberURL(d.Place, address, network)
	if !ok {
		return nil, more
	}
	m.Set("to", url)
	return append(m, further...), more
}
