//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/world"
)

// A relay is a program that faults are done to.
type relay struct {
	name string
	note string
	udp  bool // it relays datagrams

	version []string // the command that prints it; nil: the daemon's

	// config returns the configuration for a fault, or why there can be none.
	config func(s *setup) (text, absent string)
	file   string
	argv   func(s *setup) []string

	// reload makes the running relay read its configuration again, and returns when that is decided.
	reload func(w *testbed) error
	// nudge asks for a reload and does not wait for it.
	nudge func(w *testbed)
	// counters returns the relay's own counters by name.
	counters func(w *testbed) map[string]float64
}

// setup is what a configuration depends on.
type setup struct {
	needs
	dir      string
	penstock string
	log      string                // where the lines go that needs.Log asks for
	limit    time.Duration         // of a health check
	connect  time.Duration         // timeout of a connect
	has      func(key string) bool // reports whether the program knows a key; of penstock
}

var relays = []*relay{penstock, haproxy, nginx}

func findRelay(name string) *relay {
	for _, r := range relays {
		if r.name == name {
			return r
		}
	}
	return nil
}

// penstock runs with a keeper, as its packages set it up.
var penstock = &relay{
	name: "penstock", note: "penstock run, with a keeper as its packages set it up", udp: true,
	file: "penstock.yaml",
	argv: func(s *setup) []string {
		return []string{s.penstock, "run", "-c", filepath.Join(s.dir, "penstock.yaml")}
	},
	config: func(s *setup) (string, string) {
		var b strings.Builder
		fmt.Fprintf(&b, "engine: {loops: 2}\nkeeper: {}\ndrain: 2s\nadmin: {listen: \"unix://%s/admin\"}\n", s.dir)
		switch s.Log {
		case "full", "fifo":
			fmt.Fprintf(&b, "access-log: {to: %q}\n", s.log)
		case "syslog":
			fmt.Fprintf(&b, "access-log: {to: \"syslog:unix://%s\"}\n", s.log)
		case "stderr":
			fmt.Fprintf(&b, "access-log: {to: stderr}\nlog: {level: debug, flows: all}\n")
		}
		group := func(name, network string) {
			fmt.Fprintf(&b, "  %s:\n    timeouts: {connect: %v}\n", name, s.connect)
			switch {
			case s.DNS:
				fmt.Fprintf(&b, "    discover: [{dns: members.test, port: %d, network: %s, every: 1s}]\n", memberPort, network)
			default:
				fmt.Fprintf(&b, "    members:\n")
				for i := range members {
					fmt.Fprintf(&b, "      - {name: m%d, to: \"%s://%s:%d\"}\n", i+1, network, memberIP(i), memberPort)
				}
			}
			if network == "udp" {
				return
			}
			if s.Verify {
				fmt.Fprintf(&b, "    check: {send-expect: {every: 500ms, timeout: %v, rise: 2, fall: 2, send: \"hex:%x\", expect: well}}\n", s.limit, world.Preface(wantCheck, 0))
			} else {
				fmt.Fprintf(&b, "    check: {tcp: {every: 500ms, timeout: %v, rise: 2, fall: 2}}\n", s.limit)
			}
		}
		fmt.Fprintf(&b, "groups:\n")
		group("main", "tcp")
		group("datagrams", "udp")
		few := ""
		if s.Few && s.has("amplification") {
			few = ", amplification: 3"
		}
		fmt.Fprintf(&b, "listeners:\n  main: {listen: \"tcp://%s\", to: main}\n  datagrams: {listen: \"udp://%s\", to: datagrams%s}\n", relayAddr(streamPort), relayAddr(streamPort), few)
		if s.Proxy {
			fmt.Fprintf(&b, "  proxied: {listen: \"tcp://%s\", to: main, proxy-protocol: {from: 10.0.0.0/8}, sniff: {timeout: 2s}}\n", relayAddr(proxyPort))
		}
		if s.SNI {
			fmt.Fprintf(&b, "  tls: {listen: \"tcp://%s\", sniff: {timeout: 2s}, routes: [{sni: www.example.com, to: main}]}\n", relayAddr(sniPort))
		}
		return b.String(), ""
	},
	reload:   reloadPenstock,
	nudge:    func(w *testbed) { reloadPenstock(w) }, // that it is refused is what is wanted
	counters: countPenstock,
}

// haproxy runs as a master with a worker. Its maxconn is what it computes from the limit of descriptors,
// as its manual advises; health checks, retries and timeouts are those of the others.
var haproxy = &relay{
	name: "haproxy", note: "haproxy -W, TCP only",
	version: []string{"haproxy", "-v"},
	file:    "haproxy.cfg",
	argv: func(s *setup) []string {
		return []string{"haproxy", "-W", "-db", "-f", filepath.Join(s.dir, "haproxy.cfg")}
	},
	config: func(s *setup) (string, string) {
		if s.Datagrams {
			return "", "relays no datagrams"
		}
		var b strings.Builder
		fmt.Fprintf(&b, "global\n    nbthread 2\n    stats socket %s/stats.sock level admin expose-fd listeners\n", s.dir)
		if s.Admin { // each takes a descriptor
			fmt.Fprintf(&b, "    stats maxconn 400\n")
		}
		if s.Memory > 0 { // 33 KB a connection, says management.txt, 6
			fmt.Fprintf(&b, "    maxconn %d\n", (s.Memory-10<<20)/(33<<10))
		}
		switch s.Log {
		case "":
			fmt.Fprintf(&b, "    log %s:%d local0\n", worldIP, syslogPort)
		case "syslog":
			fmt.Fprintf(&b, "    log %s local0\n", s.log)
		default: // it opens no file: standard output is what is asked for
			fmt.Fprintf(&b, "    log stdout format raw local0\n")
		}
		fmt.Fprintf(&b, "defaults\n    mode tcp\n    log global\n    option tcplog\n    timeout connect 1s\n    timeout client 120s\n    timeout server 120s\n    retries 2\n    option redispatch 1\n")
		if s.DNS {
			fmt.Fprintf(&b, "resolvers dns\n    parse-resolv-conf\n    accepted_payload_size 8192\n    timeout resolve 1s\n    timeout retry 1s\n    hold valid 1s\n    hold obsolete 30s\n")
		}
		fmt.Fprintf(&b, "backend main\n    balance roundrobin\n")
		if s.Verify {
			fmt.Fprintf(&b, "    option tcp-check\n    tcp-check connect\n    tcp-check send-binary %x\n    tcp-check expect string well\n    timeout check 500ms\n", world.Preface(wantCheck, 0))
		}
		fmt.Fprintf(&b, "    default-server check inter 500ms fall 2 rise 2\n")
		if s.DNS {
			fmt.Fprintf(&b, "    server-template m 8 members.test:%d resolvers dns init-addr none resolve-prefer ipv4\n", memberPort)
		} else {
			for i := range members {
				fmt.Fprintf(&b, "    server m%d %s:%d\n", i+1, memberIP(i), memberPort)
			}
		}
		fmt.Fprintf(&b, "frontend main\n    bind %s backlog 4096\n    default_backend main\n", relayAddr(streamPort))
		if s.Proxy {
			// The header is awaited for the client's timeout (configuration.txt, accept-proxy).
			fmt.Fprintf(&b, "frontend proxied\n    bind %s backlog 4096 accept-proxy\n    timeout client 2s\n    default_backend main\n", relayAddr(proxyPort))
		}
		if s.SNI {
			fmt.Fprintf(&b, "frontend tls\n    bind %s backlog 4096\n    tcp-request inspect-delay 2s\n    tcp-request content accept if { req.ssl_hello_type 1 }\n    tcp-request content reject if !{ req.ssl_hello_type 1 }\n    use_backend main if { req.ssl_sni -i www.example.com }\n", relayAddr(sniPort))
		}
		return b.String(), ""
	},
	reload:   func(w *testbed) error { return renew(w, syscall.SIGUSR2, false, 5*time.Second) }, // again if a signal was lost while it executed itself
	nudge:    func(w *testbed) { syscall.Kill(w.service.First(), syscall.SIGUSR2) },
	counters: countHAProxy,
}

// nginx has two workers. Its upstreams are checked by the flows alone: that is what the free version has.
var nginx = &relay{
	name: "nginx", note: "stream module, 2 workers", udp: true,
	version: []string{"nginx", "-v"},
	file:    "nginx.conf",
	argv: func(s *setup) []string {
		return []string{"nginx", "-e", "stderr", "-c", filepath.Join(s.dir, "nginx.conf")}
	},
	config: func(s *setup) (string, string) {
		module, _ := peer.StreamModule()
		user := ""
		if os.Geteuid() == 0 && !s.NoCaps {
			user = "user root;\n"
		}
		files := s.Files
		if files == 0 {
			files = 20000
		}
		connections := files - 16
		if s.Memory > 0 { // two buffers of 16 KB a flow, which has two connections, in two workers
			connections = uint64(s.Memory-16<<20) / (32 << 10)
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s%sdaemon off;\nworker_processes 2;\npid %s/nginx.pid;\nerror_log %s;\n", module, user, s.dir, errorLog(s))
		if s.Files == 0 {
			fmt.Fprintf(&b, "worker_rlimit_nofile %d;\n", files)
		}
		fmt.Fprintf(&b, "events { worker_connections %d; }\n", connections)
		if s.Admin {
			fmt.Fprintf(&b, "http {\n    access_log off;\n    client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;\n    server { listen %[2]s; location / { stub_status; } }\n}\n", s.dir, relayAddr(adminPort))
		}
		fmt.Fprintf(&b, "stream {\n    proxy_connect_timeout 1s;\n    proxy_timeout 120s;\n    log_format one '$protocol $status';\n")
		switch s.Log {
		case "full", "fifo":
			fmt.Fprintf(&b, "    access_log %s one;\n", s.log)
		case "stderr":
			fmt.Fprintf(&b, "    access_log /dev/stderr one;\n")
		case "syslog":
			fmt.Fprintf(&b, "    access_log syslog:server=unix:%s one;\n", s.log)
		default:
			fmt.Fprintf(&b, "    access_log %s/status.log one;\n", s.dir)
		}
		to := "main"
		if s.DNS {
			// A name in a variable is resolved again when it has expired.
			fmt.Fprintf(&b, "    resolver %s valid=1s ipv6=off;\n    resolver_timeout 2s;\n    map $protocol $members { default members.test:%d; }\n", worldIP, memberPort)
			to = "$members"
		} else {
			fmt.Fprintf(&b, "    upstream main {\n")
			for i := range members {
				fmt.Fprintf(&b, "        server %s:%d max_fails=1 fail_timeout=1s;\n", memberIP(i), memberPort)
			}
			fmt.Fprintf(&b, "    }\n")
		}
		few := ""
		if s.Few {
			few = " proxy_responses 1;"
		}
		fmt.Fprintf(&b, "    server { listen %s backlog=4096; proxy_pass %s; }\n    server { listen %s udp reuseport; proxy_pass %s;%s }\n", relayAddr(streamPort), to, relayAddr(streamPort), to, few)
		if s.Proxy {
			fmt.Fprintf(&b, "    server { listen %s backlog=4096 proxy_protocol; proxy_protocol_timeout 2s; proxy_pass %s; }\n", relayAddr(proxyPort), to)
		}
		if s.SNI {
			fmt.Fprintf(&b, "    map $ssl_preread_server_name $named { www.example.com %s; }\n    server { listen %s backlog=4096; ssl_preread on; preread_timeout 2s; proxy_pass $named; }\n", to, relayAddr(sniPort))
		}
		fmt.Fprintf(&b, "}\n")
		return b.String(), ""
	},
	reload:   func(w *testbed) error { return renew(w, syscall.SIGHUP, true, 3*time.Second) },
	nudge:    func(w *testbed) { syscall.Kill(w.service.First(), syscall.SIGHUP) },
	counters: countNginx,
}

func errorLog(s *setup) string {
	if s.Log == "stderr" {
		return "stderr info"
	}
	return s.dir + "/error.log"
}
