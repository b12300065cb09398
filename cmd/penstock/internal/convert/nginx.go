package convert

import (
	"net"
	"strings"
	"time"
)

// nginxTime are nginx's units.
var nginxTime = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour, "M": 30 * 24 * time.Hour, "y": 365 * 24 * time.Hour,
}

// nginxPlan is a plan with what only nginx's needs.
type nginxPlan struct {
	*plan
	upstreams map[string]*directive
	vars      map[string]*directive // map, geo, split_clients and set, by variable
	zones     map[string]string     // keys of limit_conn_zone
	stream    settings
	counts    int // routes that variables grew to
	base      string
	logged    bool
}

// settings are the directives of a block that a server inherits.
type settings struct {
	one    map[string]*directive
	access []*directive // allow and deny
	limits []*directive // limit_conn
	from   []*directive // set_real_ip_from
	certs  []*directive // ssl_certificate
	keys   []*directive // ssl_certificate_key
}

// nginx converts a configuration of nginx.
func nginx(p *plan, files []File) *Error {
	parser := &nginxParser{plan: p}
	n := &nginxPlan{plan: p, upstreams: map[string]*directive{}, vars: map[string]*directive{}, zones: map[string]string{}, base: baseOf(files)}
	var streams [][]*directive
	var loose []*directive // of a file that is meant to be included in stream
	http := false
	for _, f := range files {
		list, err := parser.parse(f)
		if err != nil {
			return err
		}
		for _, d := range list {
			switch d.name {
			case "stream":
				streams = append(streams, d.block)
			case "http", "mail":
				http = true
				p.note(d.at, "%s { ... } left out: it is layer 7; a route by sni passes HTTPS through to a server", d.name)
			case "worker_processes":
				if k, ok := count(d.arg(0)); ok && k > 0 {
					p.top.sub("engine", "loops", number(k, 256))
				}
			case "server", "upstream", "map", "geo", "split_clients", "log_format", "limit_conn_zone", "proxy_timeout", "proxy_connect_timeout", "ssl_preread", "access_log", "resolver":
				loose = append(loose, d)
			case "user", "pid", "daemon", "master_process", "worker_rlimit_nofile", "worker_cpu_affinity", "worker_priority", "worker_shutdown_timeout", "load_module", "error_log", "events", "env", "lock_file",
				"thread_pool", "pcre_jit", "timer_resolution", "working_directory", "debug_points", "worker_rlimit_core", "ssl_engine", "worker_aio_requests", "google_perftools_profiles":
				// The service manager's business.
				if d.name == "worker_shutdown_timeout" {
					if t, ok := n.time(d, d.arg(0)); ok && t > 0 {
						p.top.set("drain", duration(t))
					}
				}
			default:
				p.note(d.at, "%s: no counterpart", d.name)
			}
		}
	}
	if len(streams) == 0 && !http && len(loose) > 0 {
		streams = append(streams, loose)
	}
	if len(streams) == 0 {
		where := files[0].Name
		if http {
			return &Error{File: where, Text: "nothing to convert: there is no stream { ... }, and http is layer 7"}
		}
		return &Error{File: where, Text: "nothing to convert: there is no stream { ... }; is this a configuration of nginx?"}
	}
	p.comments = append(p.comments, "When one side ends its stream, the other may still send for half-closed (60s); nginx closes both (proxy_half_close off).")
	for _, s := range streams {
		n.streamBlock(s)
	}
	return nil
}

// time reads a time of nginx, in seconds without a unit.
func (n *nginxPlan) time(d *directive, s string) (time.Duration, bool) {
	t, ok := timeOf(s, nginxTime, time.Second)
	if !ok {
		n.note(d.at, "%s: %s is not a time", d.name, quote(s))
	}
	return t, ok
}

// streamBlock converts a block stream: first what servers refer to, then them.
func (n *nginxPlan) streamBlock(list []*directive) {
	n.stream = settings{one: map[string]*directive{}}
	var servers []*directive
	for _, d := range list {
		switch d.name {
		case "upstream":
			n.upstreams[d.arg(0)] = d
		case "map", "geo", "split_clients":
			if k := len(d.args); k > 0 {
				n.vars[variableName(d.args[k-1])] = d
			}
		case "limit_conn_zone":
			n.zone(d)
		case "server":
			servers = append(servers, d)
		default:
			n.setting(&n.stream, d)
		}
	}
	for _, d := range servers {
		n.server(d)
	}
}

// variableName returns the name of a variable that is written as $name or ${name}.
func variableName(s string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(s, "$"), "{"), "}")
}

func (n *nginxPlan) zone(d *directive) {
	for _, a := range d.args[min(1, len(d.args)):] {
		if zone, ok := strings.CutPrefix(a, "zone="); ok {
			name, _, _ := strings.Cut(zone, ":")
			n.zones[name] = variableName(d.arg(0))
		}
	}
}

// setting keeps a directive that applies to servers.
func (n *nginxPlan) setting(s *settings, d *directive) {
	switch d.name {
	case "allow", "deny":
		s.access = append(s.access, d)
	case "limit_conn":
		s.limits = append(s.limits, d)
	case "set_real_ip_from":
		s.from = append(s.from, d)
	case "ssl_certificate":
		s.certs = append(s.certs, d)
	case "ssl_certificate_key":
		s.keys = append(s.keys, d)
	case "set":
		if len(d.args) == 2 {
			n.vars[variableName(d.arg(0))] = d
		}
	case "access_log":
		n.accessLog(d)
	case "resolver":
		n.note(d.at, "resolver: names are looked up with the host's resolver (/etc/resolv.conf), as often as the answers' TTL says")
	case "proxy_timeout", "proxy_connect_timeout", "proxy_protocol", "proxy_bind", "proxy_responses", "proxy_download_rate", "proxy_upload_rate", "proxy_next_upstream", "proxy_next_upstream_tries",
		"proxy_next_upstream_timeout", "proxy_socket_keepalive", "tcp_nodelay", "preread_timeout", "preread_buffer_size", "ssl_preread", "return", "pass", "proxy_pass", "proxy_session_drop", "proxy_requests", "limit_conn_dry_run":
		s.one[d.name] = d
	case "log_format", "proxy_buffer_size", "error_log", "resolver_timeout", "variables_hash_bucket_size", "variables_hash_max_size", "map_hash_bucket_size", "map_hash_max_size", "limit_conn_log_level",
		"open_log_file_cache", "proxy_half_close", "server_names_hash_bucket_size", "server_names_hash_max_size", "proxy_protocol_timeout":
		// Without a meaning here.
	default:
		if strings.HasPrefix(d.name, "ssl_") || strings.HasPrefix(d.name, "proxy_ssl") {
			s.one[d.name] = d // ciphers and the like are not looked at
			return
		}
		n.note(d.at, "%s: no counterpart%s", d.name, hintOf(nginxHints, d.name))
	}
}

var nginxHints = map[string]string{
	"server_name":    "; routes by sni choose a group",
	"js_preread":     "",
	"health_check":   "; use check of the group",
	"status_zone":    "; every listener and group has metrics",
	"zone_sync":      "; members are looked at by each relay",
	"real_ip_header": "",
}

// accessLog converts the first access_log: there is one for all listeners.
func (n *nginxPlan) accessLog(d *directive) {
	to := d.arg(0)
	if to == "off" {
		return
	}
	if rest, ok := strings.CutPrefix(to, "syslog:"); ok {
		to = ""
		for option := range strings.SplitSeq(rest, ",") {
			if server, ok := strings.CutPrefix(option, "server="); ok {
				if path, ok := strings.CutPrefix(server, "unix:"); ok {
					to = "syslog:unix://" + path
				} else if _, _, err := net.SplitHostPort(server); err == nil {
					to = "syslog:" + server
				} else {
					to = "syslog:" + net.JoinHostPort(strings.Trim(server, "[]"), "514")
				}
			}
		}
	} else if to == "/dev/stdout" || to == "/dev/stderr" {
		to = strings.TrimPrefix(to, "/dev/")
	}
	switch {
	case n.logged:
		if old := n.top.get("access-log"); old == nil || !strings.Contains(flow(old), quote(to)) {
			n.note(d.at, "access_log: there is one access log, with all listeners; the first one is taken")
		}
		return
	case !logTargetOK(to) || strings.Contains(to, "$"):
		n.note(d.at, "access_log %s: no counterpart; an absolute path, stdout, stderr or syslog can be written to", d.arg(0))
		return
	}
	n.logged = true
	n.top.sub("access-log", "to", to)
	n.top.set("access-log", n.top.get("access-log"), "A JSON object per flow; format has templates (docs/operations.md).")
}
