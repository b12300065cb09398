package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// make docker sets it: it needs root, and changes the host's bridges for a while.
var realDocker = flag.Bool("docker", false, "find members in a real Docker daemon (dockerd, docker)")

// A dockerDaemon is a Docker daemon with a bridge of its own. Its containers outlive it, as with live-restore.
type dockerDaemon struct {
	t      *testing.T
	dir    string
	socket string
	cmd    *exec.Cmd
}

func newDockerDaemon(t *testing.T) *dockerDaemon {
	dir, err := os.MkdirTemp("", "docker") // t.TempDir would be too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &dockerDaemon{t: t, dir: dir, socket: filepath.Join(dir, "docker.sock")}
	d.start()
	t.Cleanup(func() {
		d.docker("sh", "-c", "docker rm -f $(docker ps -aq); docker network rm front")
		d.stop()
	})
	// The network's bridge is known to this host only.
	d.must("network", "create", "--subnet", "172.31.251.0/24", "front")
	root := filepath.Join(dir, "image")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(binary, filepath.Join(root, "penstock")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "healthy.yaml"), []byte("listeners: {echo: {listen: 'tcp://:7000', to: 'echo:'}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, code := d.docker("sh", "-c", fmt.Sprintf(`tar -C %s -c . | docker import -c 'ENTRYPOINT ["/penstock"]' - penstock`, root)); code != 0 {
		t.Fatal(out)
	}
	return d
}

func (d *dockerDaemon) start() {
	in := func(name string) string { return filepath.Join(d.dir, name) }
	log, err := os.OpenFile(in("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command("dockerd", "--host", "unix://"+d.socket, "--data-root", in("data"), "--exec-root", in("exec"), "--pidfile", in("pid"),
		"--bridge", "none", "--iptables=false", "--ip6tables=false", "--storage-driver", "vfs", "--live-restore")
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	if !testwait.For(func() bool { _, code := d.docker("docker", "version"); return code == 0 }) {
		text, _ := os.ReadFile(in("log"))
		d.t.Fatalf("dockerd does not answer: %s", text)
	}
}

func (d *dockerDaemon) stop() {
	d.cmd.Process.Signal(syscall.SIGTERM)
	d.cmd.Wait()
}

// docker runs a command with this daemon.
func (d *dockerDaemon) docker(name string, args ...string) (out string, code int) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+d.socket)
	b, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		d.t.Fatal(err)
	}
	return strings.TrimSpace(string(b)), cmd.ProcessState.ExitCode()
}

func (d *dockerDaemon) must(args ...string) string {
	d.t.Helper()
	out, code := d.docker("docker", args...)
	if code != 0 {
		d.t.Fatalf("docker %v: %s", args, out)
	}
	return out
}

// run starts a container that echoes at port 7000.
func (d *dockerDaemon) run(name string, args ...string) {
	d.t.Helper()
	args = append([]string{"run", "-d", "--name", name, "--network", "front", "--label", "penstock.group=web", "--label", "penstock.port=7000"}, args...)
	d.must(append(args, "penstock", "relay", "tcp://:7000", "echo:")...)
}

// TestDocker: containers of a real daemon come, drain when they are stopped, become unhealthy, and stay while the daemon is away.
func TestDocker(t *testing.T) {
	if !*realDocker {
		t.Skip("make docker runs this")
	}
	docker := newDockerDaemon(t)
	docker.run("one")
	docker.run("two", "--label", "penstock.weight=3")
	docker.run("other", "--label", "penstock.group=api")
	d := runFile(t, `
reload: {watch: false}
registries: {docker: {docker: "unix:{0}"}}
listeners: {web: {listen: "tcp://127.0.0.1:0", to: web}}
groups: {web: {balance: least-connections, discover: [{docker: web}]}}
`, docker.socket)
	members := func() string {
		groups, err := d.admin.Groups(d.ctx())
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, m := range groups.Groups[0].Members {
			var meta struct{ Container string }
			if err := json.Unmarshal(m.Metadata, &meta); err != nil {
				t.Fatalf("%s: %v", m.Metadata, err)
			}
			list = append(list, fmt.Sprintf("%s %s*%d", meta.Container, m.State, m.Weight))
		}
		slices.Sort(list)
		return strings.Join(list, ", ")
	}
	wants := func(want string) {
		t.Helper()
		var seen []string
		if !testwait.For(func() bool {
			if now := members(); len(seen) == 0 || seen[len(seen)-1] != now {
				seen = append(seen, now)
			}
			return seen[len(seen)-1] == want
		}) {
			t.Fatalf("members were %q, want %q", seen, want)
		}
	}
	echo := func(c net.Conn) {
		t.Helper()
		b := make([]byte, 6)
		if _, err := io.WriteString(c, "hello\n"); err != nil {
			t.Error(err)
		} else if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello\n" {
			t.Errorf("%q, %v", b, err)
		}
	}
	flow := func() net.Conn {
		t.Helper()
		c := testnet.Dial(t, d.at("web"))
		echo(c)
		return c
	}
	wants("one up*1, two up*3")

	// One is stopped while flows are open: it drains, they go on, and it goes with the last one.
	var flows []net.Conn
	for range 8 {
		flows = append(flows, flow())
	}
	stopped := make(chan string, 1)
	go func() { out, _ := docker.docker("docker", "stop", "-t", "600", "one"); stopped <- out }()
	wants("one drained*1, two up*3")
	for range 8 {
		flow().Close()
	}
	for _, c := range flows {
		echo(c)
		c.Close()
	}
	wants("two up*3")
	if out := <-stopped; out != "one" {
		t.Errorf("docker stop: %s", out)
	}

	// A container with a check is a member while it is healthy.
	docker.must("commit", "-c", `HEALTHCHECK --interval=1s --retries=1 CMD ["/penstock", "check", "-c", "/healthy.yaml"]`, "two", "checked")
	docker.must("run", "-d", "--name", "three", "--network", "front", "--label", "penstock.group=api, web", "--label", "penstock.weight=1", "--label", "penstock.port=7000", "checked", "relay", "tcp://:7000", "echo:")
	wants("three up*1, two up*3")
	bad := filepath.Join(docker.dir, "healthy.yaml")
	if err := os.WriteFile(bad, []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	docker.must("cp", bad, "three:/healthy.yaml")
	wants("two up*3")

	// The daemon is away: members and flows stay. It is back: what has happened meanwhile is seen.
	open := flow()
	docker.stop()
	d.wait("lookup failed; its members stay", 1)
	flow().Close()
	wants("two up*3")
	docker.start()
	docker.run("four")
	wants("four up*1, two up*3")
	echo(open)
}
