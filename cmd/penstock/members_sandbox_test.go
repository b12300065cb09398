package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// inSandbox skips a test where the ports that a worker may connect to are not restricted.
func (k *kept) inSandbox() {
	k.t.Helper()
	if held, _ := k.line("sandbox")["held"].(string); !strings.Contains(held, "landlock-network") {
		k.t.Skip("Landlock does not hold here: " + held)
	}
}

// Members that operators add or move to ports that the configuration does not have are served, by another worker, whose sandbox has the
// ports: at once, after a crash, an upgrade, and reloads of the file. No flow ends, and a member is never said to be up while the sandbox
// refuses it.
func TestMembersBeyondSandbox(t *testing.T) {
	t.Parallel()
	one, two, three := speak(t, "one"), speak(t, "two"), speak(t, "three")
	const text = `
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {balance: round-robin, members: [{name: one, to: "{0}"}], check: {tcp: {every: 100ms, timeout: 60s}}}}
`
	k := runKept(t, text, one.url())
	k.inSandbox()
	c := k.to("a")
	name(t, c)
	k.settled(1)
	// penstock runs a command, whose output has to say something.
	penstock := func(want string, args ...string) {
		t.Helper()
		if code, out := k.command(args...); code != 0 || !strings.Contains(out, want) {
			t.Fatalf("penstock %s: %d: %s", strings.Join(args, " "), code, out)
		}
	}
	// only waits until clients are served by these members, and none is refused.
	only := func(names ...string) {
		t.Helper()
		testwait.Until(t, "clients go to "+strings.Join(names, ", "), func() bool {
			seen := map[string]bool{}
			for range 2 * len(names) {
				seen[name(t, k.to("a"))] = true
			}
			return len(seen) == len(names) && !slices.ContainsFunc(names, func(n string) bool { return !seen[n] })
		})
		g, err := k.admin.Group(k.ctx(), "all")
		for _, m := range g.Members {
			if err == nil && (m.State != "up" && m.State != "drained" || m.Failures > 0) {
				t.Errorf("%s is %s (%s), with %d failures to connect", m.Name, m.State, m.Why, m.Failures)
			}
		}
	}
	penstock("all/extra tcp://", "members", "add", "all", two.url(), "--name", "extra")
	only("one", "two")
	penstock(": drained", "drain", "all/one")
	only("two")
	penstock("all/extra tcp://", "members", "set", "all/extra", "--address", three.url(), "--weight", "7")
	only("three")
	for _, next := range []func(){k.crash, k.upgrade, func() { k.reload() }, func() { k.write(t, text+keeperOfTests+"drain: 5s\n", one.url()); k.reload() }, k.crash} {
		next()
		only("three")
	}
	if g, err := k.admin.Group(k.ctx(), "all"); err != nil || len(g.Members) != 2 || g.Members[1].Weight != 7 {
		t.Errorf("%+v, %v", g.Members, err)
	}
	penstock(": up", "restore", "all/one")
	penstock("removed", "members", "remove", "all/extra")
	only("one")
	mustPing(t, c)
}

// Members that no other worker would have are refused, and say why: those with Unix sockets, because a worker that was taken over could
// want them, and those for which no worker can take over. Nothing has changed then.
func TestMembersRefusedBySandbox(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	const text = `
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {members: [{name: one, to: "{0}"}]}}
`
	k := runKept(t, text, one.url())
	k.inSandbox()
	_, port, err := net.SplitHostPort(two.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	refused := func(want []string, args ...string) {
		t.Helper()
		code, out := k.command(args...)
		for _, w := range want {
			if code != 1 || !strings.Contains(out, w) {
				t.Errorf("penstock %s: no %q: %d: %s", strings.Join(args, " "), w, code, out)
			}
		}
		g, err := k.admin.Group(k.ctx(), "all")
		if err != nil || len(g.Members) != 1 || g.Members[0].Address != one.url() || g.Members[0].State != "up" {
			t.Errorf("%+v, %v", g.Members, err)
		}
	}
	refused([]string{"Unix sockets (groups.all, at run time)", "sandbox", "the member in the configuration"}, "members", "add", "all", "unix:///run/other.sock")
	// Another worker cannot take over: it would not be able to read its configuration.
	k.write(t, "listeners: {broken")
	refused([]string{"another worker was to take over, and could not", k.file + ":3:1"}, "members", "add", "all", two.url())
	refused([]string{"another worker was to take over, and could not"}, "members", "set", "all/one", "--address", two.url())
	// And neither can it when there is no keeper any more.
	worker := k.worker()
	t.Cleanup(func() { sendSignal(worker, syscall.SIGKILL) })
	if err := k.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	k.line("the keeper is gone: flows end with this process, and it cannot be upgraded")
	refused([]string{"the member needs what this process gave up when it started (sandbox): connecting to port " + port, "keeper: {}"}, "members", "add", "all", two.url())
	if n := name(t, testnet.Dial(t, k.at("a"))); n != "one" {
		t.Errorf("served by %q", n)
	}
}

// A worker that dies while another one is to take over with a member leaves it to the next one, which is in the sandbox of the dead one and
// has another worker take over.
func TestMembersAfterCrashBeyondSandbox(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	k := &kept{configured: runFile(t, `
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {members: [{name: one, to: "{0}"}]}}
keeper: {keep-after: 0s, healthy-after: 1h}
`, one.url())}
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	k.inSandbox()
	upgrade := exec.Command(binary, "upgrade", "--admin", "unix://"+k.dir+"/admin.sock")
	if err := upgrade.Start(); err != nil {
		t.Fatal(err)
	}
	defer upgrade.Wait()
	k.started(1) // on trial for an hour: no other worker takes over before its end
	if m, err := k.admin.SetMember(k.ctx(), "all", "one", api.MemberChange{Address: two.url()}); err != nil || !m.NewWorker {
		t.Fatalf("%+v, %v", m, err)
	}
	if n := name(t, k.to("a")); n != "one" {
		t.Errorf("served by %q", n)
	}
	k.end(syscall.SIGKILL)
	testwait.Until(t, "the member has moved", func() bool {
		g, err := k.admin.Group(k.ctx(), "all")
		return err == nil && len(g.Members) == 1 && g.Members[0].Address == two.url()
	})
	if n := name(t, k.to("a")); n != "two" {
		t.Errorf("served by %q", n)
	}
}

// Whatever the sandbox refuses, each tool says that it was the sandbox, and what that does not have.
func TestSandboxSaysWhatItRefuses(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	_, port, err := net.SplitHostPort(two.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	d := &configured{dir: dir, file: dir + "/penstock.yaml"}
	d.write(t, `
listeners:
  a: {listen: "tcp://127.0.0.1:0", to: unchecked}
  b: {listen: "tcp://127.0.0.1:0", to: checked}
log: {flows: all}
groups:
  unchecked: {members: [{name: two, to: "{1}"}]}
  checked: {members: [{name: one, to: "{0}"}], check: {tcp: {every: 100ms, port: `+port+`}}}
keeper: {}
`, one.url(), two.url())
	cmd := exec.Command(binary, "run", "-c", d.file)
	cmd.Env = append(os.Environ(), "PENSTOCK_NARROW="+port)
	d.begin(t, cmd)
	k := &kept{configured: d}
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	k.inSandbox()
	want := "permission denied (the sandbox has no port " + port + ")"
	d.mustTurnAway("a", "")
	if e := d.records(1)[0]["error"]; !strings.HasSuffix(fmt.Sprint(e), want) {
		t.Errorf("the access log has %v", e)
	}
	if e := d.line("flow")["error"]; !strings.HasSuffix(fmt.Sprint(e), want) {
		t.Errorf("the log has %v", e)
	}
	for _, args := range [][]string{{"ended"}, {"groups"}, {"groups", "--json"}} {
		testwait.Until(t, "penstock "+strings.Join(args, " ")+" says it", func() bool {
			_, out := k.command(args...)
			return strings.Contains(out, want)
		})
	}
}
