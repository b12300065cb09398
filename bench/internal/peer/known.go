//go:build linux

package peer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Penstock returns the daemon as a peer; the note says which checkout it is from.
func Penstock(name, note, bin string) Peer {
	return Peer{
		Name: name,
		Note: note,
		UDP:  true,
		Ask:  []string{bin, "version"},
		plan: func(s Setup) Plan {
			scheme := "tcp://"
			if s.UDP {
				scheme = "udp://"
			}
			argv := []string{bin, "relay", "--loops", strconv.Itoa(s.Loops)}
			if s.Replies > 0 {
				// The default limit on new flows per second is meant for floods.
				argv = append(argv, "--replies", strconv.Itoa(s.Replies), "--max-new-flows", "1000000")
			}
			return Plan{Argv: append(argv, scheme+s.Listen, scheme+s.Upstream)}
		},
	}
}

// haproxy with splice forced gets pipes of 1 MiB, because with smaller ones splicing bulk data
// costs it more than copying.
func haproxy(name, note string, forced bool) Peer {
	option := "    option splice-auto\n"
	if forced {
		option = "    option splice-request\n    option splice-response\n"
	}
	return Peer{
		Name: name,
		Note: note,
		Ask:  []string{"haproxy", "-v"},
		plan: func(s Setup) Plan {
			return haproxyPlan(name, s, "    tune.pipesize 1048576\n", "", option, "", "", "")
		},
	}
}

// haproxyPlan returns a plan with further lines of the global section, in front of the timeouts and behind them, and further
// parameters of the listener, lines of its section, and parameters of the server.
func haproxyPlan(name string, s Setup, global, before, after, bind, lines, server string) Plan {
	const config = `global
    nbthread %d
    maxconn %d
    maxpipes 64
%sdefaults
    mode tcp
%s    timeout connect 5s
    timeout client 120s
    timeout server 120s
%slisten relay
    bind %s%s
%s    server upstream %s%s
`
	file := filepath.Join(s.Dir, name+".cfg")
	return Plan{
		Argv:   []string{"haproxy", "-db", "-f", file},
		File:   file,
		Config: fmt.Sprintf(config, s.Loops, (s.Files-300)/2, global, before, after, s.Listen, bind, lines, s.Upstream, server),
	}
}

// StreamModule returns the line that loads the stream module of the installed nginx, which is empty if
// the module is built in, or an error if nginx does not have it.
var StreamModule = sync.OnceValues(func() (string, error) { return findStreamModule("nginx") })

// findStreamModule returns the line that loads nginx's stream module, which is empty if the module
// is built in, or an error if the module is missing.
func findStreamModule(program string) (line string, err error) {
	out, err := exec.Command(program, "-V").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("nginx -V: %w", err)
	}
	folder := ""
	for option := range strings.FieldsSeq(string(out)) {
		if option == "--with-stream" {
			return "", nil
		}
		if path, ok := strings.CutPrefix(option, "--modules-path="); ok {
			folder = path
		}
	}
	file := filepath.Join(folder, "ngx_stream_module.so")
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("nginx is installed without its stream module (%s)", file)
	}
	return "load_module " + file + ";\n", nil
}

// nginx returns nginx as a peer; udp are further options of a UDP listener.
func nginx(name, note, udp string) Peer {
	return Peer{
		Name: name,
		Note: note,
		UDP:  true,
		Ask:  []string{"nginx", "-v"},
		plan: func(s Setup) Plan {
			c := nginxConfig{name: "nginx", buffers: "64k", to: s.Upstream, options: " backlog=4096"}
			if s.UDP {
				c.options = " udp" + udp
			}
			if s.Replies > 0 {
				c.replies = fmt.Sprintf("\n        proxy_responses %d;", s.Replies)
			}
			return c.plan(s)
		},
	}
}

// nginxConfig has what differs between configurations.
type nginxConfig struct {
	name         string // of its files
	buffers      string // their size
	outer        string // lines in front of the server
	ssl, options string // of the listener
	more         string // lines of the server
	to, replies  string
}

func (c nginxConfig) plan(s Setup) Plan {
	const config = `%sdaemon off;
user root;
worker_processes %d;
worker_rlimit_nofile %d;
pid %s;
error_log stderr crit;
events {
    worker_connections %d;
    multi_accept on;
}
stream {
    proxy_timeout 120s;
    proxy_half_close on;
    proxy_buffer_size %s;
%s    server {
        listen %s%s reuseport%s;
%s        proxy_pass %s;%s
    }
}
`
	module, _ := StreamModule() // without it the peer counts as not installed
	file := filepath.Join(s.Dir, c.name+".conf")
	return Plan{
		Argv:   []string{"nginx", "-e", "stderr", "-c", file},
		File:   file,
		Config: fmt.Sprintf(config, module, s.Loops, s.Files, filepath.Join(s.Dir, c.name+".pid"), s.Files, c.buffers, c.outer, s.Listen, c.ssl, c.options, c.more, c.to, c.replies),
	}
}

// envoyTCP are the lines of a TCP listener, with further ones for its filters and its chain of filters.
const envoyTCP = `    tcp_backlog_size: 4096
%s    filter_chains:
    - filters:
      - name: tcp
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: relay, cluster: upstream}
%s`

// envoy cannot limit the replies of a flow, so a short idle timeout replaces that. It gets the
// receive buffer that nginx-rcvbuf gets, and GRO on both sides; it uses neither by default.
func envoy(bin string) Peer {
	const udp = `    udp_listener_config: {downstream_socket_config: {prefer_gro: true}}
    socket_options: [{level: 1, name: 8, int_value: 4194304, state: STATE_PREBIND}] # SO_RCVBUF
    listener_filters:
    - name: udp
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig
        stat_prefix: relay
        idle_timeout: %s
        upstream_socket_config: {prefer_gro: true}
        matcher: {on_no_match: {action: {name: route, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.Route, cluster: upstream}}}}
`
	return Peer{
		Name: "envoy",
		Note: "tcp_proxy, udp_proxy",
		UDP:  true,
		Ask:  []string{bin, "--version"},
		plan: func(s Setup) Plan {
			if !s.UDP {
				return envoyPlan(bin, s, "protocol: TCP, ", fmt.Sprintf(envoyTCP, "", ""), "")
			}
			idle := "60s"
			if s.Replies > 0 {
				idle = "0.5s"
			}
			return envoyPlan(bin, s, "protocol: UDP, ", fmt.Sprintf(udp, idle), "")
		},
	}
}

// envoyPlan returns a plan with a protocol, the lines of a listener, and further lines of the cluster.
func envoyPlan(bin string, s Setup, protocol, listener, cluster string) Plan {
	const config = `static_resources:
  listeners:
  - name: relay
    address: {socket_address: {%saddress: %s, port_value: %s}}
%s  clusters:
  - name: upstream
    type: STATIC
    connect_timeout: 5s
    circuit_breakers: {thresholds: [{max_connections: 1000000, max_pending_requests: 1000000}]}
%s    load_assignment: {cluster_name: upstream, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}]}]}
`
	host, port, _ := strings.Cut(s.Listen, ":")
	upHost, upPort, _ := strings.Cut(s.Upstream, ":")
	file := filepath.Join(s.Dir, "envoy.yaml")
	return Plan{
		Argv:   []string{bin, "--disable-hot-restart", "--concurrency", strconv.Itoa(s.Loops), "--log-level", "critical", "-c", file},
		File:   file,
		Config: fmt.Sprintf(config, protocol, host, port, listener, cluster, upHost, upPort),
	}
}

func goCopy(self string) Peer {
	return Peer{
		Name: "gocopy",
		Note: "Go io.Copy in each direction",
		// Two sockets, and one pipe per direction, which io.Copy takes before there is anything to
		// carry.
		FilesEach: 6,
		Ask:       []string{"go", "version"},
		plan: func(s Setup) Plan {
			return Plan{Argv: []string{self, "gocopy", strconv.Itoa(s.Loops), s.Listen, s.Upstream}}
		},
	}
}
