package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// attacked runs a daemon that attacks from inside, and returns it with the folder that it was given.
func attacked(t *testing.T, settings, more string) (*daemon, string) {
	t.Helper()
	dir := shortDir(t)
	member, other := testnet.Listen(t, "tcp4"), testnet.Listen(t, "tcp4")
	for _, folder := range []string{"etc", "log", "elsewhere"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// As package testattack wants them: what only the sandbox refuses.
	if err := os.Chmod(filepath.Join(dir, "elsewhere"), 0o777); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%s\naccess-log: {to: %s/log/access.log}\nlisteners: {web: {listen: 'tcp://127.0.0.1:0', to: 'tcp://%s'}}\n", settings, dir, member.Addr())
	for name, text := range map[string]string{"etc/penstock.yaml": text, "elsewhere/secret": "secret"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", "@"+filepath.Base(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	cmd := exec.Command(binary, "run", "-c", filepath.Join(dir, "etc/penstock.yaml"))
	cmd.Env = append(os.Environ(), fmt.Sprintf("PENSTOCK_ATTACK=%s %s %s%s", dir, member.Addr(), other.Addr(), more))
	d := launch(t, cmd)
	t.Cleanup(func() { // the keeper ends its worker, which would outlive it
		cmd.Process.Signal(syscall.SIGTERM)
		d.exit()
	})
	return d, dir
}

// mustBeRefused checks what came of the attempts, but for those that may succeed. It skips what a kernel, or a binary linked with cgo, cannot hold.
func mustBeRefused(t *testing.T, d *daemon, allowed ...string) {
	t.Helper()
	held, _ := d.line("sandbox")["held"].(string)
	for _, layer := range []string{"no-new-privs", "capabilities", "landlock-files", "seccomp"} {
		if !strings.Contains(held, layer) {
			t.Skipf("%s does not hold here: %s", layer, held)
		}
	}
	if !strings.Contains(held, "landlock-network") {
		allowed = append(allowed, "connect", "bind")
	}
	if n, _ := d.line("attack over")["attempts"].(float64); n < 200 {
		t.Errorf("only %v attempts were made", n)
	}
	for _, line := range d.wait("attack", len(allowed)) {
		what, _ := line["what"].(string)
		if line["error"] != nil {
			t.Errorf("it cannot do what it must: %v", line)
		} else if !slices.ContainsFunc(allowed, func(a string) bool { return strings.HasPrefix(what, a) }) {
			t.Errorf("%s: %v, errno %v", what, line["result"], line["errno"])
		}
	}
}

// Whoever has taken over a worker gets nothing that the worker does not need.
func TestAttack(t *testing.T) {
	t.Parallel()
	d, _ := attacked(t, "keeper: {}", "")
	mustBeRefused(t, d, "bind a port")
}

// Without a keeper, what later configurations may need stays possible, and nothing else.
func TestAttackWithoutKeeper(t *testing.T) {
	t.Parallel()
	d, _ := attacked(t, "keeper: none", "")
	mustBeRefused(t, d, "bind a port", "bind a low port", "connect", "open /etc/shadow", "a Unix socket", "a pair of datagram sockets")
}

// What a worker leaves to the next one, and how it ends, gives that one nothing that it did not have itself.
func TestAttackOnNextWorker(t *testing.T) {
	t.Parallel()
	d, dir := attacked(t, "keeper: {}", " leave")
	held, _ := d.line("sandbox")["held"].(string)
	if !strings.Contains(held, "landlock-files") {
		t.Skip("Landlock does not hold here: " + held)
	}
	if left, _ := d.line("attack")["left"].(bool); !left {
		t.Error("nothing was left")
	}
	d.line("attack over") // by the next worker, which has started
	if _, err := os.Lstat(filepath.Join(dir, "elsewhere/access.log")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it has made a log where it could not: %v", err)
	}
}

// Without a keeper, a reload that needs what was given up is refused, and says what and how.
func TestReloadNeedsMore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, folder := range []string{"etc", "elsewhere"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "etc/penstock.yaml")
	write := func(more string) {
		if err := os.WriteFile(file, []byte("admin: {listen: 'unix://"+dir+"/etc/admin.sock'}\nlisteners: {web: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\n"+more), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	d := run(t, exec.Command(binary, "run", "-c", file))
	if held, _ := d.line("sandbox")["held"].(string); !strings.Contains(held, "landlock-files") {
		t.Skip("Landlock does not hold here: " + held)
	}
	c := d.dial()
	mustPing(t, c)
	write("access-log: {to: " + dir + "/elsewhere/access.log}\n")
	out, err := exec.Command(binary, "reload", "--admin", "unix://"+dir+"/etc/admin.sock").CombinedOutput()
	for _, want := range []string{"gave up", "writing " + dir + "/elsewhere (access-log.to)", "keeper: {}", "restart"} {
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: no %q in: %s", err, want, out)
		}
	}
	mustPing(t, c)
	write("drain: 5s\n")
	if out, err := exec.Command(binary, "reload", "--admin", "unix://"+dir+"/etc/admin.sock").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	mustPing(t, c)
}

// A worker that has lost its keeper still reloads what it can: only what the configuration itself needs is compared with its sandbox.
func TestReloadAfterKeeperIsGone(t *testing.T) {
	t.Parallel()
	const text = "listeners: {tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\n"
	k := runKeeper(t, "watchdog: never", text)
	worker := k.worker()
	t.Cleanup(func() { sendSignal(worker, syscall.SIGKILL) })
	if err := k.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	k.line("the keeper is gone: flows end with this process, and it cannot be upgraded")
	k.write(t, text+"keeper: {keep-after: 0, healthy-after: 0, watchdog: never}\ndrain: 5s\n")
	if code, out := k.command("reload"); code != 0 || !strings.Contains(out, "drain") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// With a keeper, another worker takes over, which begins with what the reload needs, and no flow ends.
func TestReloadReplacesWorker(t *testing.T) {
	t.Parallel()
	k := runKeeper(t, "watchdog: never", "listeners:\n  tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}\n")
	a := testnet.Dial(t, k.at("tcp"))
	mustPing(t, a)
	k.holds(1)
	s, err := k.admin.Status(k.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if s.Sandbox == nil {
		t.Fatal("no sandbox")
	}
	for _, l := range s.Sandbox.Layers {
		if l.Name == "landlock-network" && !l.Held {
			t.Skip("Landlock does not hold here: " + l.Why)
		}
	}
	member := testnet.Listen(t, "tcp4")
	go func() {
		for {
			c, err := member.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("member"))
			c.Close()
		}
	}()
	folder := filepath.Join(k.dir, "log")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	k.write(t, "listeners:\n  tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}\n  more: {listen: 'tcp://127.0.0.1:0', to: 'tcp://"+member.Addr().String()+"'}\nkeeper: {keep-after: 0}\naccess-log: {to: "+folder+"/a.log}\n")
	if code, out := k.command("reload"); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	if w := k.started(1); w.Reason != "restart" || w.Restored != 1 || w.TotalLost() != 0 {
		t.Errorf("%+v", w)
	}
	mustPing(t, a)
	b := testnet.Dial(t, k.at("more"))
	text, err := io.ReadAll(b)
	if err != nil || string(text) != "member" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Stat(folder + "/a.log"); err != nil {
		t.Error(err)
	}
}

// A configuration behind links that are replaced, as Kubernetes mounts a ConfigMap, and a folder of files to which another one is added, are read again by
// the same worker.
func TestReloadBehindLinks(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	// mount makes a version of the folder, and has the links lead to it.
	mount := func(version, drain string) {
		t.Helper()
		folder := filepath.Join(dir, "etc", version)
		text := "keeper: {}\nadmin: {listen: 'unix://" + dir + "/run/admin.sock'}\ninclude: ../conf.d\ndrain: " + drain + "\nlisteners: {web: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\n"
		err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(folder+"/penstock.yaml", []byte(text), 0o600),
			os.Symlink(version, dir+"/etc/next"), os.Rename(dir+"/etc/next", dir+"/etc/..data"))
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{"etc", "conf.d", "run"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mount("..1", "1s")
	file := filepath.Join(dir, "etc/penstock.yaml")
	if err := os.Symlink("..data/penstock.yaml", file); err != nil {
		t.Fatal(err)
	}
	k := &kept{configured: &configured{dir: dir + "/run", file: file}}
	k.begin(t, exec.Command(binary, "run", "-c", file))
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	before := k.status(t).PID
	mount("..2", "2s")
	if err := os.WriteFile(dir+"/conf.d/more.yaml", []byte("listeners: {more: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.reload()
	c := testnet.Dial(t, k.at("more"))
	mustPing(t, c)
	if now := k.status(t).PID; now != before {
		t.Errorf("another worker has taken over: %d, before %d", now, before)
	}
}

// A process that was started as root becomes another user, who may read nothing of the configuration, and everything goes on by the keeper: logs are
// opened again, the configuration is read again, another worker takes over, and starts after a crash.
func TestSandboxUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir := shortDir(t)
	if err := errors.Join(os.Mkdir(dir+"/conf.d", 0o700), os.WriteFile(dir+"/conf.d/a.yaml", []byte("listeners: {tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	const text = "include: conf.d/*.yaml\nlisteners: {path: {listen: 'unix://{dir}/path.sock', to: 'echo:', mode: '0666'}}\naccess-log: {to: '{dir}/a.log'}\nsandbox: {user: '65534:65534'}\nkeeper: {keep-after: 0, healthy-after: 0, max-restart-delay: 100ms}\n"
	k := &kept{configured: &configured{dir: dir, file: dir + "/penstock.yaml"}}
	k.write(t, text)
	k.begin(t, exec.Command(binary, "run", "-c", k.file))
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	becomes := func() {
		t.Helper()
		s, err := k.admin.Status(k.ctx())
		if err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID))
		if err != nil || !strings.Contains(string(status), "Uid:\t65534\t65534\t65534\t65534\n") {
			t.Errorf("the worker is not that user: %v\n%s", err, status)
		}
	}
	becomes()
	// logged waits for the record of a flow in the log of a name.
	logged := func(name string) {
		t.Helper()
		c := testnet.Dial(t, k.at("tcp"))
		mustPing(t, c)
		c.Close()
		testwait.Until(t, "the flow is in "+name, func() bool {
			text, err := os.ReadFile(filepath.Join(k.dir, name))
			return err == nil && len(text) > 0
		})
	}
	rotate := func(to string) {
		t.Helper()
		logged("a.log")
		if err := os.Rename(k.dir+"/a.log", k.dir+"/"+to); err != nil {
			t.Fatal(err)
		}
		s, err := k.admin.Status(k.ctx())
		if err == nil {
			err = sendSignal(s.PID, syscall.SIGUSR1)
		}
		if err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "the log is there again", func() bool { _, err := os.Stat(k.dir + "/a.log"); return err == nil })
		logged("a.log")
	}
	rotate("a.1")
	a := testnet.Dial(t, k.at("tcp"))
	mustPing(t, a)
	k.holds(1)
	k.end(syscall.SIGKILL)
	mustPing(t, a)
	if w := k.started(1); w.Reason != "crash" || w.TotalLost() != 0 {
		t.Errorf("%+v", w)
	}
	becomes()
	rotate("a.2")
	k.write(t, text+"drain: 5s\n")
	if code, out := k.command("reload"); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := k.command("upgrade"); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	mustPing(t, a)
	becomes()
	rotate("a.3")
	// The permissions of root's path are changed by a worker that begins as root.
	k.write(t, strings.Replace(text, "0666", "0660", 1))
	if code, out := k.command("reload"); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	testwait.Until(t, "the socket has its new mode", func() bool {
		info, err := os.Stat(k.dir + "/path.sock")
		return err == nil && info.Mode().Perm() == 0o660
	})
	mustPing(t, a)
}

// A worker in its sandbox does not choose a program that it could have written, and may choose others.
func TestUpgradeToOwnFile(t *testing.T) {
	t.Parallel()
	k := runKeeper(t, "watchdog: never", "listeners: {tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\n")
	if held, _ := k.line("sandbox")["held"].(string); !strings.Contains(held, "landlock-files") {
		t.Skip("Landlock does not hold here: " + held)
	}
	own := filepath.Join(k.dir, "own")
	if err := os.WriteFile(own, []byte("#!/bin/sh\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if code, out := k.command("upgrade", "--binary", own); code != 1 || !strings.Contains(out, "can write at "+k.dir) {
		t.Errorf("exit code %d: %s", code, out)
	}
	if code, out := k.command("upgrade", "--dry-run", "--binary", binary); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// A worker that cannot start after a crash loses nothing: the next one that can has the listeners, which it may not bind in its sandbox, and the flows.
func TestStartFailsAfterCrash(t *testing.T) {
	need(t, "prlimit")
	t.Parallel()
	dir := shortDir(t)
	k := &kept{configured: &configured{dir: dir, file: dir + "/penstock.yaml"}}
	if testnet.RaceEnabled {
		t.Skip("the race detector takes more memory than this test leaves")
	}
	k.write(t, "listeners: {tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\nkeeper: {keep-after: 0, healthy-after: 0, max-restart-delay: 100ms}\n")
	k.begin(t, exec.Command(binary, "run", "-c", k.file))
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	at := k.at("tcp")
	a := testnet.Dial(t, at)
	mustPing(t, a)
	k.holds(1)
	// The keeper's limit is that of the workers that it starts: they have no address space for the ledger of a loop.
	limit := func(bytes string) {
		t.Helper()
		if out, err := exec.Command("prlimit", "--pid", strconv.Itoa(k.cmd.Process.Pid), "--as="+bytes+":").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	limit("8589934592")
	k.end(syscall.SIGKILL)
	for _, line := range k.wait("cannot start", 2) {
		if why, _ := line["error"].(string); !strings.Contains(why, "memory") {
			t.Errorf("it cannot start for another reason: %s", why)
		}
	}
	testwait.Until(t, "status says that there is no worker", func() bool { // the keeper answers in the pauses
		code, out := k.command("status")
		return code == 1 && strings.Contains(out, "no worker runs: worker died (exit code 1 (")
	})
	limit("unlimited")
	mustPing(t, a)
	mustPing(t, testnet.Dial(t, at))
}

// A file that the sandbox does not allow is told as such, with the path to which links lead.
func TestSandboxSaysWhichFile(t *testing.T) {
	t.Parallel()
	d := &configured{dir: shortDir(t)}
	d.file = d.dir + "/etc/penstock.yaml"
	for _, folder := range []string{"etc", "certs", "elsewhere"} {
		if err := os.Mkdir(filepath.Join(d.dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	authority := testcerts.Authority(t, "authority")
	one, two := authority.Issue(t, "a.example"), authority.Issue(t, "b.example")
	file, other := filepath.Join(d.dir, "certs/a.pem"), filepath.Join(d.dir, "elsewhere/b.pem")
	if err := errors.Join(os.WriteFile(file, append(one.PEM(), one.KeyPEM(t)...), 0o600), os.WriteFile(other, append(two.PEM(), two.KeyPEM(t)...), 0o600)); err != nil {
		t.Fatal(err)
	}
	text := "listeners: {a: {listen: 'tcp://127.0.0.1:0', to: 'echo:', tls: {certificates: [{certificate: '" + file + "'}]}}}\n"
	if err := os.WriteFile(d.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d.daemon = run(t, exec.Command(binary, "run", "-c", d.file))
	if held, _ := d.line("sandbox")["held"].(string); !strings.Contains(held, "landlock-files") {
		t.Skip("Landlock does not hold here: " + held)
	}
	if err := errors.Join(os.Symlink(other, file+".next"), os.Rename(file+".next", file)); err != nil {
		t.Fatal(err)
	}
	if e := d.line("a changed file cannot be used; what was read before stays")["error"]; !strings.HasSuffix(fmt.Sprint(e), "permission denied (the sandbox has no file "+other+")") {
		t.Errorf("the log has %v", e)
	}
}
