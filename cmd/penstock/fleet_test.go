package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testwait"
)

// fleetPatience is longer than the lease of a relay that is killed.
const fleetPatience = time.Minute

// A relays is a fleet of daemons that have files, with their etcd.
type relays struct {
	*testing.T
	etcd    *testfleet.Server
	url     string
	text    string
	values  []any
	daemons []*configured
}

// newRelays starts n daemons, r0, r1 and so on, with a configuration.
func newRelays(t *testing.T, n int, text string, values ...any) *relays {
	t.Helper()
	server := testfleet.Etcd(t)
	f := &relays{T: t, etcd: server, url: "etcd://" + strings.TrimPrefix(server.URL, "http://") + "/penstock/test"}
	f.text = "registries: {main: {etcd: [\"" + server.URL + "\"]}}\nfleet: {etcd: /penstock/test, drain-grace: 100ms}\n" + text
	f.values = values
	for i := range n {
		f.start(fmt.Sprint("r", i))
	}
	return f
}

func (f *relays) start(node string) *configured {
	f.Helper()
	c := &configured{dir: shortDir(f.T)}
	c.file = c.dir + "/penstock.yaml"
	c.write(f.T, f.text, f.values...)
	c.begin(f.T, exec.Command(binary, "run", "-c", c.file, "--node", node, "--zone", "z"))
	f.daemons = append(f.daemons, c)
	return c
}

// command runs penstock fleet, and returns its output and its exit code.
func (f *relays) command(args ...string) (out string, code int) {
	f.Helper()
	cmd := exec.Command(binary, append([]string{"fleet"}, args...)...)
	cmd.Env = append(os.Environ(), "PENSTOCK_FLEET="+f.url, "GORACE=atexit_sleep_ms=0")
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		f.Fatal(err)
	}
	return text.String(), cmd.ProcessState.ExitCode()
}

func (f *relays) good(args ...string) string {
	f.Helper()
	out, code := f.command(args...)
	if code != 0 {
		f.Fatalf("penstock fleet %v: exit code %d: %s", args, code, out)
	}
	return out
}

// nodeState is what the tests read of penstock fleet status --json.
type nodeState struct {
	Node, State string
	Flows       int64
	Refused     *struct{ Error string }
	Drain       *struct{ By, Why string }
}

func (f *relays) nodes() (list []nodeState) {
	f.Helper()
	var all struct{ Nodes []nodeState }
	if err := json.Unmarshal([]byte(f.good("status", "--json")), &all); err != nil {
		f.Fatal(err)
	}
	return all.Nodes
}

// until waits until ok holds.
func (f *relays) until(what string, ok func() bool) {
	f.Helper()
	if !testwait.For(ok) {
		f.Fatalf("never: %s\n%s", what, f.good("status"))
	}
}

func (f *relays) ready(n int) {
	f.Helper()
	f.until(fmt.Sprint(n, " relays are ready"), func() bool {
		ready := 0
		for _, n := range f.nodes() {
			if n.State == "ready" {
				ready++
			}
		}
		return ready == n
	})
}

// What an operator does with a fleet.
func TestFleet(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	f := newRelays(t, 3, `
listeners: {web: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {members: [{name: one, to: "{0}"}, {name: two, to: "{1}"}]}}
`, one.url(), two.url())
	f.ready(3)
	var conns []net.Conn
	for _, d := range f.daemons {
		for range 2 {
			c := d.to("web")
			name(t, c)
			conns = append(conns, c)
		}
	}
	var flows struct {
		Matched int64
		Relays  int
		Silent  []string
		Flows   []struct{ Node, Member string }
	}
	if err := json.Unmarshal([]byte(f.good("flows", "--member", "one", "--timeout", fleetPatience.String(), "--json")), &flows); err != nil {
		t.Fatal(err)
	}
	if flows.Matched != 3 || flows.Relays != 3 || len(flows.Silent) != 0 || len(flows.Flows) != 3 || flows.Flows[0].Member != "one" {
		t.Errorf("%+v", flows)
	}

	d := f.daemons[0]
	at := d.at("web")
	if out, code := f.command("drain", "r0", "r1", "--max-unavailable", "50%"); code == 0 || !strings.Contains(out, "2 of 3 relays would not be ready") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := f.command("drain", "nobody"); code == 0 || !strings.Contains(out, `no relay "nobody" is present`) {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.good("drain", "r0", "--why", "new disk", "--max-unavailable", "1")
	f.until("the relay is drained", func() bool { return f.nodes()[0].State == "drained" })
	if n := f.nodes()[0]; n.Drain == nil || n.Drain.Why != "new disk" {
		t.Errorf("%+v", n)
	}
	f.until("nobody is accepted", func() bool {
		c, err := net.Dial("tcp", at.String())
		if err == nil {
			c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	if s, err := d.admin.Status(d.ctx()); err != nil || s.State != api.StateDrained || s.Fleet == nil || !s.Fleet.Present {
		t.Errorf("%+v, %v", s, err)
	}
	for _, c := range conns {
		mustPing(t, c)
	}
	d.reload() // with listeners that are closed
	f.good("undrain", "r0", "--wait", fleetPatience.String())
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()

	// One relay refuses its configuration: the others are not told to reload after it.
	f.daemons[1].write(t, "nonsense", 0)
	if out, code := f.command("reload", "--max-unavailable", "1", "--timeout", fleetPatience.String()); code == 0 || !strings.Contains(out, "1 of 3 relays reloaded") || !strings.Contains(out, "r1: ") {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.until("its report says so", func() bool { return f.nodes()[1].Refused != nil })
	if out := f.good("status", "--refused"); strings.Contains(out, "\nr0 ") || !strings.Contains(out, "\nr1 ") {
		t.Error(out)
	}
	f.daemons[1].write(t, f.text, f.values...)
	f.good("reload", "--timeout", fleetPatience.String())

	for _, c := range conns {
		c.Close()
	}
	if out, code := f.command("undrain", "r22"); code != 1 || !strings.Contains(out, "no relay \"r22\" is present or drained") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out := f.good("log"); !strings.Contains(out, "new disk") || !strings.Contains(out, "undrain") {
		t.Error(out)
	}

	// A relay that is killed is gone when its lease is; one that ends says so.
	f.daemons[2].cmd.Process.Kill()
	f.daemons[1].signal(syscall.SIGTERM)
	f.daemons[1].mustExit(0)
	f.until("one is left", func() bool { n := f.nodes(); return len(n) == 1 && n[0].Node == "r0" })
}

// The shell loop of docs/fleet.md upgrades one relay after the other while each is drained, leaves out one that somebody
// else has drained, and ends where a host fails, whose relay stays drained.
func TestRollingUpgrade(t *testing.T) {
	need(t, "sh", "grep")
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "fleet.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Rolling work\n")
	_, loop, _ := strings.Cut(section, "```sh\n")
	loop, _, _ = strings.Cut(loop, "```")
	names := strings.NewReplacer("relay-1", "r0", "relay-2", "r1", "relay-3", "r2")
	one := speak(t, "one")
	f := newRelays(t, 3, `
listeners: {web: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {members: ["{0}"]}}
`, one.url())
	f.ready(3)
	dir := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(dir, "penstock")); err != nil {
		t.Fatal(err)
	}
	run := func(loop, ssh string) (visited string, out []byte, err error) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "ssh"), []byte("#!/bin/sh\n"+ssh), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("timeout", fmt.Sprint(4*int(fleetPatience.Seconds())), "sh", "-c", loop)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "PENSTOCK_FLEET="+f.url, "GORACE=atexit_sleep_ms=0")
		out, err = cmd.CombinedOutput()
		list, _ := os.ReadFile(filepath.Join(dir, "visited"))
		os.Remove(filepath.Join(dir, "visited"))
		return string(list), out, err
	}
	const drained = `penstock fleet status "$1" --json | grep -q '"state": "drained"' && echo $1 >>visited` + "\n"
	loop = names.Replace(loop)
	if visited, out, err := run(loop, drained); err != nil || visited != "r0\nr1\nr2\n" {
		t.Errorf("visited while drained: %q, %v\n%s", visited, err, out)
	}
	f.ready(3)
	f.good("drain", "r1", "--why", "broken disk")
	if visited, out, err := run(strings.ReplaceAll(loop, "--max-unavailable 1", "--max-unavailable 2"), drained); err != nil || visited != "r0\nr2\n" {
		t.Errorf("with one that is drained: %q, %v\n%s", visited, err, out)
	}
	if n := f.nodes()[1]; n.Drain == nil || n.Drain.Why != "broken disk" {
		t.Errorf("somebody else's order was taken back: %+v", n)
	}
	f.good("undrain", "r1", "--wait", fleetPatience.String())
	if visited, out, err := run(loop, drained+"exit 7\n"); err == nil || visited != "r0\n" {
		t.Errorf("of hosts that fail, visited: %q, %v\n%s", visited, err, out)
	}
	if n := f.nodes(); n[0].Drain == nil || n[1].Drain != nil || n[2].Drain != nil {
		t.Errorf("%+v", n)
	}
}

// Relays check members for each other, and for themselves when etcd is away.
func TestFleetSharesChecks(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	f := newRelays(t, 4, `
listeners: {web: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {check: {tcp: {every: 100ms, timeout: 30s, fall: 2, rise: 1, shared: 2}}, members: [{name: one, to: "{0}"}, {name: two, to: "{1}"}]}}
`, one.url(), two.url())
	states := func() (checkers int, up, down int) {
		for _, d := range f.daemons {
			s, err := d.admin.Status(d.ctx())
			if err != nil || s.Fleet == nil {
				return 0, 0, 0
			}
			checkers += s.Fleet.CheckedMembers
			g, err := d.admin.Groups(d.ctx())
			if err != nil {
				return 0, 0, 0
			}
			for _, m := range g.Groups[0].Members {
				switch m.State {
				case "up":
					up++
				case "down":
					down++
				}
			}
		}
		return checkers, up, down
	}
	shared := func(up, down int) func() bool {
		return func() bool { c, u, d := states(); return c == 4 && u == up && d == down }
	}
	f.until("two relays check each member, and all know that they are up", shared(8, 0))
	two.Close()
	f.until("all know that a member is down", shared(4, 4))
	f.etcd.Kill()
	f.until("each relay checks for itself, and nothing changes by that", func() bool {
		c, u, d := states()
		if u != 4 || d != 4 {
			t.Fatalf("%d up, %d down", u, d)
		}
		return c == 8
	})
	f.etcd.Restart()
	f.until("checks are shared again", shared(4, 4))
}
