package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// As a service manager starts it: with a named socket, and with notifications.
func TestService(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	d := &configured{dir: shortDir(t)}
	d.file = filepath.Join(d.dir, "penstock.yaml")
	d.write(t, "listeners:\n  web: {inherit: http, to: \"{0}\"}\n", up.url())
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(d.dir, "notify")})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	heard := func(want string) string {
		t.Helper()
		manager.SetReadDeadline(time.Now().Add(patience))
		buf := make([]byte, 4096)
		for {
			n, err := manager.Read(buf)
			if err != nil {
				t.Fatalf("no %s: %v", want, err)
			}
			if text := string(buf[:n]); !strings.Contains(text, "WATCHDOG=1") {
				if !strings.HasPrefix(text, want+"=1\n") {
					t.Errorf("it says %q, want %s", text, want)
				}
				return text
			}
		}
	}
	l := testnet.Listen(t, "tcp4")
	file, err := testnet.Unwrap(l).(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=http NOTIFY_SOCKET="$1/notify" exec "$0" run -c "$1/penstock.yaml"`, binary, d.dir)
	cmd.ExtraFiles = []*os.File{file}
	d.begin(t, cmd)
	file.Close()
	heard("READY")
	c := d.to("web")
	if c.RemoteAddr().String() != l.Addr().String() {
		t.Errorf("it listens at %v, and was given %v", c.RemoteAddr(), l.Addr())
	}
	name(t, c)
	d.signal(syscall.SIGHUP)
	if text := heard("RELOADING"); !strings.Contains(text, "MONOTONIC_USEC=") {
		t.Errorf("%q", text)
	}
	heard("READY")
	mustPing(t, c)
	d.write(t, "nonsense", 0)
	d.signal(syscall.SIGHUP)
	heard("RELOADING")
	if text := heard("READY"); !strings.Contains(text, "the last reload failed") {
		t.Errorf("after a bad reload: %q", text)
	}
	d.signal(syscall.SIGTERM)
	heard("STOPPING")
	c.Close()
	d.mustExit(0)
}

// What operators do with the API.
func TestOperate(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	const text = `
reload: {watch: {2}}
listeners:
  a: {listen: "tcp://127.0.0.1:0", to: all}
  b: {listen: "tcp://127.0.0.1:0", routes: [{name: local, from: 127.0.0.0/8, to: "{0}"}]}
groups:
  all: {members: [{name: one, to: "{0}"}, {name: two, to: "{1}"}]}
`
	d := runFile(t, text, one.url(), two.url(), "false")
	open := func(l string, n int) (conns []net.Conn) {
		for range n {
			c := d.to(l)
			name(t, c)
			conns = append(conns, c)
		}
		return conns
	}
	as, bs := open("a", 4), open("b", 3)
	count := func(f api.Filter) int64 {
		t.Helper()
		l, err := d.admin.Flows(d.ctx(), f, api.Page{})
		if err != nil || l.Matched != int64(len(l.Flows)) {
			t.Fatalf("%v, %+v", err, l)
		}
		return l.Matched
	}
	for _, c := range []struct {
		f    api.Filter
		want int64
	}{
		{api.Filter{}, 7}, {api.Filter{Listener: "a"}, 4}, {api.Filter{Member: "two"}, 2}, {api.Filter{Route: "local"}, 3},
		{api.Filter{Source: netip.MustParsePrefix("127.0.0.0/8")}, 7}, {api.Filter{Source: netip.MustParsePrefix("192.0.2.0/24")}, 0},
		{api.Filter{Listener: "b", State: "relaying"}, 3}, {api.Filter{MinBytes: 1 << 20}, 0},
	} {
		if n := count(c.f); n != c.want {
			t.Errorf("%+v: %d flows, want %d", c.f, n, c.want)
		}
	}
	if n, err := d.admin.KillAll(d.ctx(), api.Filter{Listener: "b"}); n != 3 || err != nil {
		t.Errorf("%d killed, %v", n, err)
	}
	for _, c := range bs {
		mustEnd(t, c)
	}
	for _, r := range d.records(3) {
		mustBe(t, r, "cause", "killed", "reason", "killed", "listener", "b")
	}
	if n := d.metric("penstock_flows_ended_total", `cause="killed"`); n != 3 {
		t.Errorf("%v killed in the metrics", n)
	}
	if n := d.metric("penstock_flows_open", `listener="a"`); n != 4 {
		t.Errorf("%v open in the metrics", n)
	}

	m, err := d.admin.SetMember(d.ctx(), "all", "one", api.MemberChange{State: "drain"})
	if err != nil || m.Members[0].State != "drained" {
		t.Errorf("%v, %+v", err, m)
	}
	testwait.Until(t, "new flows go to the other", func() bool {
		before := one.came.Load()
		closeAll(open("a", 4))
		return one.came.Load() == before
	})
	for _, c := range as {
		mustPing(t, c)
	}
	if _, err := d.admin.SetMember(d.ctx(), "all", "one", api.MemberChange{State: "disable"}); err != nil {
		t.Error(err)
	}
	testwait.Until(t, "its flows have ended", func() bool { return count(api.Filter{Member: "one"}) == 0 })
	if _, err := d.admin.SetMember(d.ctx(), "all", "one", api.MemberChange{State: "file"}); err != nil {
		t.Error(err)
	}
	testwait.Until(t, "the drained load has ended", func() bool { return count(api.Filter{}) == 2 })

	// What a file would change, and what it does change.
	next := strings.Replace(text, `, {name: two, to: "{1}"}`, "", 1)
	diff, err := d.admin.Diff(d.ctx(), []byte(places(d.dir, next, []any{one.url(), two.url(), "true"})))
	if err != nil || diff.Applied || diff.Flows != 0 { // the route keeps them
		t.Errorf("%v, %+v", err, diff)
	}
	d.write(t, next, one.url(), two.url(), "true")
	out, code := command(t, "check", "-c", d.file, "--diff", "unix://"+d.dir+"/admin.sock")
	if code != 0 || !strings.Contains(out, "all/two") || !strings.Contains(out, "0 open flows") {
		t.Errorf("%d: %s", code, out)
	}
	diff = d.reload()
	for _, c := range diff.Changes {
		if c.Kind == "member" && (c.Name != "all/two" || c.What != "removed" || c.Flows != 0) {
			t.Errorf("%+v", c)
		}
	}
	if !diff.Applied || diff.Flows != 0 { // the route keeps them
		t.Errorf("%+v", diff)
	}
	// From now on the file is watched.
	d.write(t, strings.Replace(next, "name: local", "name: other", 1), one.url(), two.url(), "true")
	testwait.Until(t, "the file is taken", func() bool {
		l, err := d.admin.Listeners(d.ctx())
		return err == nil && l.Listeners[1].Routes[0].Name == "other"
	})
	d.write(t, "nonsense", 0)
	d.line(notTaken)
	if _, err := d.admin.StartDrain(d.ctx()); err != nil {
		t.Error(err)
	}
	closeAll(as)
	d.mustExit(0)
}

// With only the capability for low ports, it does everything that needs no other.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a right away and take all others")
	}
	need(t, "setpriv")
	t.Parallel()
	up := speak(t, "up")
	d := &configured{dir: shortDir(t)}
	d.file = filepath.Join(d.dir, "penstock.yaml")
	if err := errors.Join(os.Chmod(d.dir, 0o755), os.Chown(d.dir, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	pid := os.Getpid() // makes an address that no other run of this test uses
	d.write(t, "listeners:\n  low: {listen: \"tcp://{1}:443\", to: \"{0}\"}\n", up.url(), fmt.Sprintf("127.%d.%d.1", 64+pid>>8%64, pid%256))
	d.begin(t, exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs",
		"--inh-caps=-all,+net_bind_service", "--ambient-caps=-all,+net_bind_service", "--bounding-set=-all,+net_bind_service",
		binary, "run", "-c", d.file))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil || !strings.Contains(string(status), "CapEff:\t0000000000000400\n") { // capabilities(7): CAP_NET_BIND_SERVICE is 10
		t.Errorf("%v: %s", err, status)
	}
	c := d.to("low")
	name(t, c)
	d.signal(syscall.SIGHUP)
	d.line("reloaded")
	mustEcho(t, c, 4<<20, 256<<10)
	seen := 1
	mustBe(t, d.records(seen)[0], "cause", "end")
	untilSpliced(t, func() []map[string]any { // in its sandbox, too
		c := d.to("low")
		name(t, c)
		mustEcho(t, c, 4<<20, 256<<10)
		seen++
		return d.records(seen)[seen-1:]
	})
	d.signal(syscall.SIGTERM)
	d.mustExit(0)
}

// The unit does not mistake a crash for a wrong command line: the daemon is restarted.
func TestCrashRestarts(t *testing.T) {
	t.Parallel()
	d := relay(t, "tcp://127.0.0.1:0", "echo:")
	d.signal(syscall.SIGABRT) // the watchdog's
	code := fmt.Sprint(d.exit())
	unit, err := os.ReadFile("../../packaging/penstock.service")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(unit)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if (key == "SuccessExitStatus" || key == "RestartPreventExitStatus") && slices.Contains(strings.Fields(value), code) {
			t.Errorf("exit status %s is a crash's, and the unit has %s", code, strings.TrimSpace(line))
		}
	}
	if !strings.Contains(string(unit), "\nRestart=on-failure\n") {
		t.Error("the unit does not restart what fails")
	}
}

// A service that is stopped while it starts has not failed: the unit knows the exit status of a keeper whose worker SIGTERM has ended.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	file := filepath.Join(dir, "penstock.yaml")
	if err := os.WriteFile(file, []byte("listeners: {l: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\nkeeper: {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "run", "-c", file)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(patience, func() { cmd.Process.Kill() }).Stop()
	r := bufio.NewReader(log)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "worker-started") {
		t.Errorf("%v: the first line is %q", err, line)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	io.Copy(io.Discard, r)
	cmd.Wait()
	unit, err := os.ReadFile("../../packaging/penstock.service")
	if err != nil {
		t.Fatal(err)
	}
	_, good, _ := strings.Cut(string(unit), "\nSuccessExitStatus=")
	good, _, _ = strings.Cut(good, "\n")
	if code := cmd.ProcessState.ExitCode(); code != 0 && !slices.Contains(strings.Fields(good), fmt.Sprint(code)) {
		t.Errorf("exit status %d; those of success are %s", code, good)
	}
}

// If every flow would fail for lack of a capability, the start fails.
func TestRightsAreTriedAtTheStart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can take all rights away")
	}
	need(t, "setpriv")
	t.Parallel()
	for option, want := range map[string]string{"mark: 7": "group g: mark: ", "source: client": "group g: source client: "} {
		dir := shortDir(t)
		file := filepath.Join(dir, "penstock.yaml")
		text := "listeners: {l: {listen: 'tcp://127.0.0.1:0', to: g}}\ngroups: {g: {members: ['tcp://127.0.0.1:9'], " + option + "}}\n"
		if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		out, _ := exec.CommandContext(ctx, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs",
			"--inh-caps=-all", "--bounding-set=-all", binary, "run", "-c", file).CombinedOutput()
		cancel()
		if !strings.Contains(string(out), want) || !strings.Contains(string(out), "CAP_NET_ADMIN") || !strings.Contains(string(out), "cannot start") {
			t.Errorf("%s: %s", option, out)
		}
	}
}
