//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// patience bounds each wait.
const patience = trial.Patience

// event is what happens to a relay while it carries flows.
type event struct {
	name string
	note string
}

func (e event) called() string { return e.name }

var events = []event{
	{"crash", "SIGKILL to every process that carries traffic; a service manager restarts what ends altogether"},
	{"upgrade", "to the same program, as the manual says; an old process may linger"},
	{"upgrade-deadline", "the same, and an old process ends after the deadline"},
	{"ten", "ten upgrades in a row (nginx: reloads, since it takes no second upgrade while the old program lingers)"},
}

// relay is a program under test.
type relay struct {
	name   string
	note   string
	udp    bool
	events string // those that it has, in spaces

	ask func(b *bench) []string // prints its version

	// files returns the configuration, and argv the command line.
	files func(s setup) map[string]string
	argv  func(s setup) []string

	// upgrade upgrades it. Its service manager knows it by main.
	upgrade func(s setup, main int) error
	// reload takes the place of upgrade in the event "ten"; nil: upgrade does.
	reload func(s setup, main int) error
}

// setup is where a relay runs and for whom.
type setup struct {
	*bench
	dir         string
	listen      string // host:port, of TCP and UDP; "": one that is free on this host
	upstream    string
	upstreamUDP string
	deadline    time.Duration         // 0: none
	engine      string                // what penstock's section of that name has, as YAML
	keeper      string                // the section of penstock's configuration, "": {}
	start       func(*exec.Cmd) error // starts the relay elsewhere; nil: here
}

func (r *relay) called() string { return r.name }

func (r *relay) has(e event) bool { return strings.Contains(r.events, " "+e.name+" ") }

func (r *relay) missing(b *bench) error { return peer.Missing(r.ask(b)[0]) }

func (r *relay) version(b *bench) string {
	if err := r.missing(b); err != nil {
		return err.Error()
	}
	line, err := peer.FirstLine(r.ask(b))
	if err != nil {
		return err.Error()
	}
	return line
}

var relays = []*relay{
	penstock("penstock", "penstock run, keeper: {}", true),
	penstock("penstock-alone", "penstock run, without a keeper", false),
	haproxy(),
	nginx(),
}

func penstock(name, note string, keeper bool) *relay {
	r := &relay{
		name: name, note: note, udp: true, events: " crash ",
		ask: func(b *bench) []string { return []string{b.Penstock, "version"} },
		files: func(s setup) map[string]string {
			text := fmt.Sprintf("admin: {listen: \"unix://%s/admin.sock\"}\nlisteners:\n  stream: {listen: \"tcp://%s\", to: \"tcp://%s\"}\n  datagram: {listen: \"udp://%s\", to: \"udp://%s\"}\n",
				s.dir, s.listen, s.upstream, s.listen, s.upstreamUDP)
			text += "engine: {" + s.engine + "}\n"
			if keeper {
				text += "keeper: " + cmp.Or(s.keeper, "{}") + "\n"
			}
			return map[string]string{"penstock.yaml": text}
		},
		argv: func(s setup) []string {
			return []string{s.Penstock, "run", "-c", filepath.Join(s.dir, "penstock.yaml")}
		},
	}
	if keeper {
		r.events = " crash upgrade ten "
		r.upgrade = func(s setup, _ int) error {
			out, err := exec.Command(s.Penstock, "upgrade", "--admin", "unix://"+s.dir+"/admin.sock").CombinedOutput()
			if err != nil {
				return fmt.Errorf("penstock upgrade: %w\n%s", err, out)
			}
			return nil
		}
	}
	return r
}

// haproxy runs as a master with a worker. A reload executes the program again, so it is also how to
// upgrade (management.txt, 3.2 and 4).
func haproxy() *relay {
	return &relay{
		name: "haproxy", note: "haproxy -W, TCP only; SIGUSR2 to the master upgrades", events: " crash upgrade upgrade-deadline ten ",
		ask: func(*bench) []string { return []string{"haproxy", "-v"} },
		files: func(s setup) map[string]string {
			deadline := ""
			if s.deadline > 0 {
				deadline = fmt.Sprintf("    hard-stop-after %dms\n", s.deadline.Milliseconds())
			}
			return map[string]string{"haproxy.cfg": fmt.Sprintf("global\n    maxconn 8000\n    nbthread 2\n    stats socket %s/stats.sock expose-fd listeners\n%sdefaults\n    mode tcp\n    timeout connect 5s\n    timeout client 120s\n    timeout server 120s\nlisten relay\n    bind %s backlog 4096\n    server upstream %s\n",
				s.dir, deadline, s.listen, s.upstream)}
		},
		argv: func(s setup) []string {
			return []string{"haproxy", "-W", "-db", "-q", "-f", filepath.Join(s.dir, "haproxy.cfg")}
		},
		upgrade: func(s setup, main int) error {
			return proc.Renew(main, syscall.SIGUSR2, false, patience)
		},
	}
}

// nginx runs in the background, because in the foreground it ignores the signal to upgrade
// (src/os/unix/ngx_process.c, ngx_signal_handler).
func nginx() *relay {
	return &relay{
		name: "nginx", note: "stream module, 2 workers; SIGUSR2, then SIGQUIT to the old master upgrade", udp: true, events: " crash upgrade upgrade-deadline ten ",
		ask: func(*bench) []string { return []string{"nginx", "-v"} },
		files: func(s setup) map[string]string {
			module, _ := peer.StreamModule()
			deadline := ""
			if s.deadline > 0 {
				deadline = fmt.Sprintf("worker_shutdown_timeout %dms;\n", s.deadline.Milliseconds())
			}
			user := ""
			if os.Geteuid() == 0 {
				user = "user root;\n"
			}
			return map[string]string{"nginx.conf": fmt.Sprintf("%s%s%sworker_processes 2;\npid %s/nginx.pid;\nerror_log %s/error.log crit;\nevents { worker_connections 8000; }\nstream {\n    proxy_timeout 120s;\n    server { listen %s backlog=4096; proxy_pass %s; }\n    server { listen %s udp; proxy_pass %s; }\n}\n",
				module, user, deadline, s.dir, s.dir, s.listen, s.upstream, s.listen, s.upstreamUDP)}
		},
		// An upgrade executes the program as it was called: only a path is found again.
		argv: func(s setup) []string {
			path, _ := exec.LookPath("nginx")
			return []string{path, "-e", filepath.Join(s.dir, "error.log"), "-c", filepath.Join(s.dir, "nginx.conf")}
		},
		upgrade: func(s setup, main int) error {
			if err := syscall.Kill(main, syscall.SIGUSR2); err != nil {
				return err
			}
			if err := proc.Wait("a new master of nginx", patience, func() bool {
				now := proc.ReadPID(filepath.Join(s.dir, "nginx.pid"))
				return now != 0 && now != main && len(proc.Tree(now)) > 2
			}); err != nil {
				return err
			}
			return syscall.Kill(main, syscall.SIGQUIT)
		},
		reload: func(s setup, main int) error {
			return proc.Renew(main, syscall.SIGHUP, true, patience)
		},
	}
}
