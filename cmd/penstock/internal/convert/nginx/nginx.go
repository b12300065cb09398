package nginx

import (
	"net"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// units are nginx's units.
var units = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour, "M": 30 * 24 * time.Hour, "y": 365 * 24 * time.Hour,
}

// conversion is a plan with what only nginx's needs.
type conversion struct {
	*convert.Plan
	upstreams  map[string]*directive
	vars       map[string]*directive // map, geo, split_clients and set, by variable
	zones      map[string]*directive // limit_conn_zone, by name
	stream     settings
	counts     int // routes that variables grew to
	base       string
	logged     bool
	unlogged   []*directive // access_log off
	workers    int          // processes; 0: not known
	closesBoth bool         // a listener is without proxy_half_close
	included   map[string]*included
	reading    *convert.Listener // whose variables are looked at
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

// Reader reads configurations of nginx.
var Reader = &convert.Reader{Product: convert.Nginx, Name: "nginx", Read: read, Silent: silent}

// read converts a configuration of nginx.
func read(p *convert.Plan, files []convert.File) *convert.Error {
	parser := &parser{Plan: p, included: map[string]*included{}}
	n := &conversion{Plan: p, upstreams: map[string]*directive{}, vars: map[string]*directive{}, zones: map[string]*directive{}, base: baseOf(files), workers: 1, included: parser.included}
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
				p.Note(d.Place, "%s { ... } left out: it is layer 7; a route by sni passes HTTPS through to a server", d.name)
			case "server", "upstream", "map", "geo", "split_clients", "log_format", "limit_conn_zone", "proxy_timeout", "proxy_connect_timeout", "ssl_preread", "access_log", "resolver":
				loose = append(loose, d)
			default:
				n.main(d)
			}
		}
	}
	if len(streams) == 0 && !http && len(loose) > 0 {
		streams, loose = append(streams, loose), nil
	}
	for _, d := range loose {
		p.Note(d.Place, "%s left out: it is in no stream { ... }", d.name)
	}
	if len(streams) == 0 {
		where := files[0].Name
		if http {
			return &convert.Error{File: where, Text: "nothing to convert: there is no stream { ... }, and http is layer 7"}
		}
		return &convert.Error{File: where, Text: "nothing to convert: there is no stream { ... }; is this a configuration of nginx?"}
	}
	for _, s := range streams {
		n.streamBlock(s)
	}
	if n.closesBoth {
		p.Comments = append(p.Comments, "When one side ends its stream, the other may still send for half-closed (60s); nginx closes both (proxy_half_close off).")
	}
	for _, d := range n.unlogged {
		if n.logged {
			n.Note(d.Place, "access_log off: no counterpart; the access log has the flows of all listeners")
		}
	}
	return nil
}

// main converts a directive outside of all blocks.
func (n *conversion) main(d *directive) {
	switch d.name {
	case "worker_processes":
		if k, ok := convert.Count(d.arg(0)); ok && k > 0 {
			n.workers = k
			n.Top.Sub("engine", "loops", convert.Number(k, 256))
		} else {
			n.workers = 0
		}
	case "worker_shutdown_timeout":
		if t, ok := n.time(d, d.arg(0)); ok && t > 0 {
			n.Top.Set("drain", convert.Duration(t))
		}
	case "user":
		if !convert.UserRE().MatchString(d.arg(0)) {
			n.Note(d.Place, "user %s: not a name", convert.Quote(d.arg(0)))
			return
		}
		n.SetUser(convert.Account{Place: d.Place, User: d.arg(0), Group: d.arg(1)})
	case "events":
		for _, e := range d.block {
			if e.name == "worker_connections" {
				n.connections(e)
			} else if !nothing("events", e.name) {
				n.Note(e.Place, "%s: no counterpart", e.name)
			}
		}
	default:
		if !nothing("main", d.name) {
			n.Note(d.Place, "%s: no counterpart%s", d.name, mainHints[d.name])
		}
	}
}

// connections converts worker_connections: both sides of a flow take one.
func (n *conversion) connections(d *directive) {
	k, ok := convert.Count(d.arg(0))
	if !ok || n.workers == 0 {
		n.Note(d.Place, "worker_connections %s: no counterpart without the number of processes; limits.flows bounds the flows of all loops together, where nginx has two connections for each flow", d.arg(0))
		return
	}
	n.Top.Sub("limits", "flows", convert.Number(max(k*n.workers/2, 1), convert.Many))
	n.Top.Set("limits", n.Top.Get("limits"), "worker_connections of all processes together, and two for each flow.")
}

var mainHints = map[string]string{
	"worker_rlimit_nofile": "; LimitNOFILE= of the service manager, or ulimit -n, bounds descriptors, and flows by them",
	"worker_cpu_affinity":  "; CPUAffinity= of the service manager bounds the CPUs, and with them the loops",
	"worker_priority":      "; Nice= of the service manager does the same",
	"working_directory":    "; the service manager chooses where core files go",
}

// time reads a time of nginx, in seconds without a unit.
func (n *conversion) time(d *directive, s string) (time.Duration, bool) {
	t, ok := convert.TimeOf(s, units, time.Second)
	if !ok {
		n.Note(d.Place, "%s: %s is not a time", d.name, convert.Quote(s))
	}
	return t, ok
}

// streamBlock converts a block stream: first what servers refer to, then them.
func (n *conversion) streamBlock(list []*directive) {
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
	for _, d := range list {
		switch d.name {
		case "upstream", "map", "geo", "split_clients", "set", "limit_conn_zone":
			if !d.used {
				n.Note(d.Place, "%s %s left out: nothing that is converted uses it", d.name, strings.Join(d.args, " "))
			}
		}
	}
}

// variableName returns the name of a variable that is written as $name or ${name}.
func variableName(s string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(s, "$"), "{"), "}")
}

func (n *conversion) zone(d *directive) {
	for _, a := range d.args[min(1, len(d.args)):] {
		if zone, ok := strings.CutPrefix(a, "zone="); ok {
			name, _, _ := strings.Cut(zone, ":")
			n.zones[name] = d
		}
	}
}

func (n *conversion) noResolver(d *directive) {
	n.Note(d.Place, "resolver: names are looked up with the host's resolver (/etc/resolv.conf), as often as the answers' TTL says")
}

// setting keeps a directive that applies to servers.
func (n *conversion) setting(s *settings, d *directive) {
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
		n.noResolver(d)
	default:
		most, known := knownSettings[d.name]
		switch {
		case known && len(d.args) > most:
			n.Note(d.Place, "%s: no counterpart for %s", d.name, convert.Quoted(d.args[most:]))
			fallthrough
		case known:
			s.one[d.name] = d
		case !nothing("stream", d.name):
			n.Note(d.Place, "%s: no counterpart%s", d.name, settingHints[d.name])
		}
	}
}

// knownSettings are the directives of a server that are converted, with how many words they may have.
var knownSettings = map[string]int{
	"limit_conn_dry_run": 1, "pass": 1, "preread_buffer_size": 1, "preread_timeout": 1, "proxy_bind": 2, "proxy_connect_timeout": 1, "proxy_download_rate": 1, "proxy_half_close": 1, "proxy_next_upstream": 1,
	"proxy_next_upstream_timeout": 1, "proxy_next_upstream_tries": 1, "proxy_pass": 1, "proxy_protocol": 1, "proxy_protocol_timeout": 1, "proxy_requests": 1, "proxy_responses": 1, "proxy_session_drop": 1,
	"proxy_timeout": 1, "proxy_upload_rate": 1, "return": 1, "tcp_nodelay": 1,

	"ssl_alpn": convert.Many, "ssl_client_certificate": 1, "ssl_crl": 1, "ssl_handshake_timeout": 1, "ssl_password_file": 1, "ssl_preread": 1, "ssl_protocols": convert.Many, "ssl_reject_handshake": 1, "ssl_session_ticket_key": 1,
	"ssl_session_tickets": 1, "ssl_stapling": 1, "ssl_stapling_file": 1, "ssl_trusted_certificate": 1, "ssl_verify_client": 1,

	"proxy_ssl": 1, "proxy_ssl_alpn": convert.Many, "proxy_ssl_certificate": 1, "proxy_ssl_certificate_key": 1, "proxy_ssl_crl": 1, "proxy_ssl_name": 1, "proxy_ssl_password_file": 1, "proxy_ssl_protocols": convert.Many,
	"proxy_ssl_server_name": 1, "proxy_ssl_trusted_certificate": 1, "proxy_ssl_verify": 1,
}

var settingHints = map[string]string{
	"server_name":            "; routes by sni choose a group",
	"js_preread":             "",
	"health_check":           "; use check of the group",
	"status_zone":            "; every listener and group has metrics",
	"zone_sync":              "; members are looked at by each relay",
	"real_ip_header":         "",
	"log_format":             "; access-log has a format of its own (docs/observing.md)",
	"ssl_verify_depth":       "; a chain of certificates may have any length",
	"proxy_ssl_verify_depth": "; a chain of certificates may have any length",
}

// accessLog converts the first access_log: there is one for all listeners.
func (n *conversion) accessLog(d *directive) {
	to := d.arg(0)
	if to == "off" {
		n.unlogged = append(n.unlogged, d)
		return
	}
	for _, option := range d.args[min(2, len(d.args)):] {
		if strings.HasPrefix(option, "if=") {
			n.Note(d.Place, "access_log ... %s: no counterpart; the access log has all flows", option)
		}
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
		if old := n.Top.Get("access-log"); old == nil || !strings.Contains(convert.Inline(old), convert.Quote(to)) {
			n.Note(d.Place, "access_log: there is one access log, with all listeners; the first one is taken")
		}
		return
	case !convert.LogTargetOK(to) || strings.Contains(to, "$"):
		n.Note(d.Place, "access_log %s: no counterpart; an absolute path, stdout, stderr or syslog can be written to", d.arg(0))
		return
	}
	n.logged = true
	n.Top.Sub("access-log", "to", to)
	n.Top.Set("access-log", n.Top.Get("access-log"), "A JSON object per flow; format has templates (docs/observing.md).")
}
