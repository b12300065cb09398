package main

import (
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
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// runKeeper starts penstock run with a keeper that has further settings. At the end of the test no worker
// is left.
func runKeeper(t *testing.T, settings, text string, values ...any) *kept {
	t.Helper()
	k := &kept{configured: runFile(t, text+"\nkeeper: {keep-after: 0, healthy-after: 0, "+settings+"}\n", values...)}
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	return k
}

func sendSignal(pid int, s os.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Signal(s)
}

// flowsOf is a TCP flow to a speaker, a Unix flow and a UDP flow, and how each is asked.
type flowsOf struct {
	t    *testing.T
	list []net.Conn
}

const threeListeners = `
listeners:
  tcp: {listen: "tcp://127.0.0.1:0", to: "{0}"}
  unix: {listen: "unix://{dir}/in.sock", to: "echo:"}
  udp: {listen: "udp://127.0.0.1:0", to: "echo:"}
`

// threeFlows opens a flow to each of threeListeners and waits until all are held.
func threeFlows(k *kept) *flowsOf {
	k.t.Helper()
	f := &flowsOf{t: k.t}
	c := testnet.Dial(k.t, k.at("tcp"))
	if name(k.t, c) == "" {
		k.t.Fatal("the upstream has no name")
	}
	l, err := k.admin.Listeners(k.ctx())
	if err != nil {
		k.t.Fatal(err)
	}
	i := slices.IndexFunc(l.Listeners, func(l api.Listener) bool { return l.Name == "udp" })
	u, err := net.Dial("udp", strings.TrimPrefix(l.Listeners[i].Address, "udp://"))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { u.Close() })
	f.list = []net.Conn{c, testnet.Dial(k.t, &net.UnixAddr{Net: "unix", Name: k.dir + "/in.sock"}), u}
	f.answer("begin")
	k.holds(len(f.list))
	return f
}

// answer checks that each flow brings back what it is sent.
func (f *flowsOf) answer(text string) {
	f.t.Helper()
	for i, c := range f.list {
		c.SetDeadline(time.Now().Add(patience))
		sent := fmt.Sprintf("%s to flow %d", text, i)
		if _, err := c.Write([]byte(sent)); err != nil {
			f.t.Fatalf("flow %d, %s: %v", i, text, err)
		}
		b := make([]byte, len(sent))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != sent {
			f.t.Fatalf("flow %d, %s: %q, %v", i, text, b, err)
		}
	}
}

// holds waits until the keeper holds this many flows.
func (k *kept) holds(n int) {
	k.t.Helper()
	testwait.Until(k.t, "the flows are held", func() bool {
		s, err := k.admin.Status(k.ctx())
		return err == nil && s.Keeper != nil && s.Keeper.Flows >= int64(n)
	})
}

// started waits for the n-th start of a worker after the first one.
func (k *kept) started(n int64) (w api.WorkerStart) {
	k.t.Helper()
	testwait.Until(k.t, fmt.Sprintf("worker %d after the first is ready", n), func() bool {
		s, err := k.admin.Status(k.ctx())
		if err != nil || s.Keeper == nil || s.Keeper.Last == nil || s.Keeper.Last.Number < n {
			return false
		}
		w = *s.Keeper.Last
		return true
	})
	return w
}

// executed waits until the keeper has executed the binary of an upgrade.
func (k *kept) executed() {
	k.t.Helper()
	testwait.Until(k.t, "the keeper has replaced itself", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return slices.ContainsFunc(k.lines, func(l map[string]any) bool { return l["event"] == "keeper-upgraded" })
	})
}

// end sends the worker a signal.
func (k *kept) end(s syscall.Signal) {
	k.t.Helper()
	worker := 0
	testwait.Until(k.t, "there is one worker", func() bool { worker = k.worker(); return worker != 0 })
	if err := sendSignal(worker, s); err != nil {
		k.t.Fatal(err)
	}
}

// command runs penstock with the daemon's admin listener.
func (k *kept) command(args ...string) (code int, out string) {
	k.t.Helper()
	cmd := exec.Command(binary, append(args, "--admin", "unix://"+k.dir+"/admin.sock")...)
	b, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		k.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

// Flows of every network continue when the worker is killed or ends by itself, twice in a row, and the
// daemon says what happened.
func TestWorkerDies(t *testing.T) {
	t.Parallel()
	k := runKeeper(t, "max-restart-delay: 100ms", threeListeners, speak(t, "one").url())
	f := threeFlows(k)
	for i, c := range []struct {
		signal syscall.Signal
		cause  string
	}{{syscall.SIGKILL, "signal 9"}, {syscall.SIGKILL, "signal 9"}, {syscall.SIGQUIT, "exit code 2"}} {
		k.end(c.signal)
		f.answer(c.cause)
		w := k.started(int64(i + 1))
		if w.Reason != "crash" || w.Cause != c.cause || w.Restored != 3 || w.TotalLost() != 0 || w.Pause <= 0 {
			t.Errorf("%+v", w)
		}
	}
	s, err := k.admin.Status(k.ctx())
	if err != nil || s.Totals.Flows != 3 || s.Totals.Begun != 3 || !s.Keeper.Up || s.Keeper.PID != k.cmd.Process.Pid || s.Keeper.Total.Restored != 9 {
		t.Errorf("%+v, %+v, %v", s.Totals, s.Keeper, err)
	}
	events, err := k.admin.Events(k.ctx(), 0)
	if err != nil || !slices.ContainsFunc(events.Events, func(e api.Event) bool {
		return e.Kind == "worker" && strings.HasPrefix(e.Message, "worker restarted after exit code 2: 3 flows continue, 0 lost")
	}) {
		t.Errorf("%+v, %v", events, err)
	}
	f.answer("end")
}

// A file that was changed and not reloaded, or that is broken, is not the next worker's configuration.
func TestWorkerDiesWithBrokenFile(t *testing.T) {
	t.Parallel()
	k := runKeeper(t, "max-restart-delay: 100ms", threeListeners, speak(t, "one").url())
	f := threeFlows(k)
	k.write(t, "listeners: {broken")
	k.end(syscall.SIGKILL)
	f.answer("after the crash")
	k.started(1)
	if line := k.line("the configuration is that of the worker before"); !strings.Contains(fmt.Sprint(line["why"]), k.file) {
		t.Errorf("%v", line)
	}
	if code, out := k.command("reload"); code == 0 {
		t.Errorf("a broken file was reloaded: %s", out)
	}
	if code, out := k.command("upgrade"); code != 1 || !strings.Contains(out, "nothing was changed") || !strings.Contains(out, k.file+":3:1: ") {
		t.Errorf("the answer to an upgrade does not say what is wrong with the file: exit code %d: %s", code, out)
	}
	events, err := k.admin.Events(k.ctx(), 0)
	for _, want := range []string{"the configuration is that of the worker before: " + k.file + ":3:1: ", "upgrade refused: the new worker ended: exit code 2 (" + k.file + ":3:1: "} {
		if err != nil || !slices.ContainsFunc(events.Events, func(e api.Event) bool { return strings.HasPrefix(e.Message, want) }) {
			t.Errorf("no event %q: %+v, %v", want, events, err)
		}
	}
	f.answer("end")
}

// script returns a program that a shell runs.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "penstock")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	k := runKeeper(t, "max-restart-delay: 100ms", threeListeners, speak(t, "one").url())
	f := threeFlows(k)
	before := k.worker()
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"dry run", []string{"--dry-run"}, 0, "could take over"},
		{"a binary that exits at once", []string{"--binary", script(t, "exit 7")}, 1, "nothing was changed"},
		{"no binary", []string{"--binary", "/nonexistent"}, 1, "nothing was changed"},
	} {
		if code, out := k.command(append([]string{"upgrade"}, c.args...)...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d, want %d and %q: %s", c.name, code, c.code, c.want, out)
		}
		f.answer(c.name)
		if now := k.worker(); now != before {
			t.Errorf("%s: another worker", c.name)
		}
	}
	for n := range int64(2) {
		if code, out := k.command("upgrade", "--binary", binary); code != 0 || !strings.Contains(out, "3 flows continued, 0 lost") {
			t.Errorf("exit code %d: %s", code, out)
		}
		f.answer("upgraded")
		if w := k.started(n + 1); w.Reason != "upgrade" || w.Restored != 3 {
			t.Errorf("%+v", w)
		}
	}
	// The API answers before the keeper knows that the worker is ready, and then the keeper replaces itself: a signal
	// that comes meanwhile may have no effect.
	sent := time.Time{}
	testwait.Until(t, "SIGUSR2 upgrades", func() bool {
		if time.Since(sent) > 2*time.Second {
			k.signal(syscall.SIGUSR2)
			sent = time.Now()
		}
		s, err := k.admin.Status(k.ctx())
		return err == nil && s.Keeper != nil && s.Keeper.Last != nil && s.Keeper.Last.Number >= 3
	})
	if w := k.started(3); w.Reason != "upgrade" || w.Restored != 3 {
		t.Errorf("SIGUSR2: %+v", w)
	}
	f.answer("end")
}

// A new worker that never says that it is ready, because it waits for its configuration, is given up, and the old one goes on.
func TestUpgradeHangs(t *testing.T) {
	need(t, "mkfifo")
	t.Parallel()
	one := speak(t, "one")
	k := runKeeper(t, "", threeListeners, one.url())
	f := threeFlows(k)
	k.write(t, threeListeners+"\nkeeper: {keep-after: 0, healthy-after: 0, start-timeout: 3s}\n", one.url()) // for the next worker only
	k.reload()
	(&steps{kept: k, held: k.file}).fifo()
	if code, out := k.command("upgrade"); code != 1 || !strings.Contains(out, "(not prepared in time); nothing was changed") {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.answer("end")
}

// What a running worker cannot change, another one does.
func TestReloadChangesEngine(t *testing.T) {
	t.Parallel()
	k := runKeeper(t, "max-restart-delay: 100ms", threeListeners, speak(t, "one").url())
	f := threeFlows(k)
	text, err := os.ReadFile(k.file)
	if err != nil {
		t.Fatal(err)
	}
	// More loops than before: with fewer ones the engine keeps those that have flows.
	s, err := k.admin.Status(k.ctx())
	if err != nil {
		t.Fatal(err)
	}
	loops := len(s.Loops) + 1
	if err := os.WriteFile(k.file, append(text, fmt.Sprintf("engine: {loops: %d}\n", loops)...), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out := k.command("reload")
	if code != 0 || !strings.Contains(out, "a new worker takes over") || strings.Contains(out, "needs a restart") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if w := k.started(1); w.Reason != "restart" || w.Restored != 3 || w.TotalLost() != 0 {
		t.Errorf("%+v", w)
	}
	f.answer("end")
	if s, err := k.admin.Status(k.ctx()); err != nil || len(s.Loops) != loops {
		t.Errorf("%d loops, want %d: %v", len(s.Loops), loops, err)
	}
}

// Reloads that follow each other while the last new worker is still on trial have new workers, too.
func TestReloadsChangeEngine(t *testing.T) {
	t.Parallel()
	const text = "listeners: {tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\nengine: {loops: 1}\n"
	k := &kept{configured: runFile(t, text+"keeper: {keep-after: 0, healthy-after: 1h}\n")}
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	began, err := k.admin.Status(k.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for n := int64(1); n <= 3; n++ {
		file, err := os.ReadFile(k.file)
		if err != nil {
			t.Fatal(err)
		}
		file = []byte(strings.Replace(string(file), fmt.Sprintf("loops: %d", n), fmt.Sprintf("loops: %d", n+1), 1))
		if err := os.WriteFile(k.file, file, 0o644); err != nil {
			t.Fatal(err)
		}
		if code, out := k.command("reload"); code != 0 {
			t.Fatalf("exit code %d: %s", code, out)
		}
		if w := k.started(n); w.Reason != "restart" {
			t.Errorf("%+v", w)
		}
		s, err := k.admin.Status(k.ctx())
		if err != nil || len(s.Loops) != int(n+1) {
			t.Fatalf("%d loops, want %d: %v", len(s.Loops), n+1, err)
		}
		if !s.Keeper.Since.Equal(began.Keeper.Since) {
			t.Errorf("counts begin at %v, and began at %v", s.Keeper.Since, began.Keeper.Since)
		}
	}
	// What runs has crashed when it dies on trial: nobody has upgraded, and the configuration stays.
	k.end(syscall.SIGKILL)
	if w := k.started(4); w.Reason != "crash" || w.Cause != "signal 9" {
		t.Errorf("%+v", w)
	}
	k.said("worker restarted after signal 9, soon after it had taken over for a change of the configuration: ")
	if s, err := k.admin.Status(k.ctx()); err != nil || len(s.Loops) != 4 {
		t.Errorf("%d loops after the crash: %v", len(s.Loops), err)
	}
	k.end(syscall.SIGKILL)
	k.started(5)
	k.said("worker restarted after signal 9: ")
}

// Signals and exit codes are those of a daemon without a keeper.
func TestKeeperSignals(t *testing.T) {
	t.Parallel()
	const text = "drain: {0}\nlisteners: {tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\n"
	t.Run("drained", func(t *testing.T) {
		k := runKeeper(t, "", text, "1h")
		k.signal(syscall.SIGHUP)
		k.line("reloaded")
		k.signal(syscall.SIGUSR1)
		k.line("log files reopened")
		c := testnet.Dial(t, k.at("tcp"))
		mustPing(t, c)
		k.signal(syscall.SIGTERM)
		k.line("draining")
		mustPing(t, c)
		c.Close()
		k.mustExit(0)
		if _, err := os.Stat(k.dir + "/admin.sock"); err == nil {
			t.Error("the admin socket's path is still there")
		}
	})
	t.Run("deadline", func(t *testing.T) {
		k := runKeeper(t, "", text, "10ms")
		mustPing(t, testnet.Dial(t, k.at("tcp")))
		k.signal(syscall.SIGTERM)
		k.mustExit(3)
	})
	t.Run("second signal", func(t *testing.T) {
		k := runKeeper(t, "", text, "1h")
		mustPing(t, testnet.Dial(t, k.at("tcp")))
		k.signal(syscall.SIGTERM)
		k.line("draining")
		k.signal(syscall.SIGINT)
		k.mustExit(4)
	})
	t.Run("cannot start", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		dir := shortDir(t)
		file := filepath.Join(dir, "penstock.yaml")
		config := "keeper: {}\nadmin: {listen: 'unix://" + dir + "/admin.sock'}\nlisteners: {tcp: {listen: 'tcp://" + l.Addr().String() + "', to: 'echo:'}}\n"
		if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(binary, "run", "-c", file)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "address already in use") {
			t.Errorf("exit code %d: %s", code, out)
		}
		if _, err := os.Stat(dir + "/admin.sock"); err == nil {
			t.Error("the admin socket's path is still there")
		}
	})
}

// Without its keeper the worker goes on, and says so.
func TestKeeperDies(t *testing.T) {
	t.Parallel()
	k := runKeeper(t, "", threeListeners, speak(t, "one").url())
	f := threeFlows(k)
	worker := k.worker()
	t.Cleanup(func() { sendSignal(worker, syscall.SIGKILL) })
	if err := k.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	k.line("the keeper is gone: flows end with this process, and it cannot be upgraded")
	f.answer("alone")
	s, err := k.admin.Status(k.ctx())
	if err != nil || s.Keeper == nil || s.Keeper.Up {
		t.Errorf("%+v, %v", s.Keeper, err)
	}
	if code, out := k.command("upgrade"); code != 1 || !strings.Contains(out, "the keeper is gone") {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.answer("end")
}

// The keeper is small, and so is its name.
func TestKeeperIsSmall(t *testing.T) {
	if testnet.RaceEnabled {
		t.Skip("the race detector takes memory of its own")
	}
	k := runKeeper(t, "", "listeners: {tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\n")
	read := func(name string) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", k.cmd.Process.Pid, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if args := strings.ReplaceAll(read("cmdline"), "\x00", " "); !strings.HasPrefix(args, "penstock: keeper run -c ") {
		t.Errorf("it calls itself %q", args)
	}
	if comm := read("comm"); comm != "penstock-keeper\n" {
		t.Errorf("it is called %q", comm)
	}
	_, rest, _ := strings.Cut(read("status"), "RssAnon:")
	anon, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil || anon > 4<<10 {
		t.Errorf("%d KB of its own, %v", anon, err)
	}
}

// A configuration from standard input is that of every worker.
func TestKeeperStdin(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	cmd := exec.Command(binary, "run", "-c", "-")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		io.WriteString(in, "keeper: {keep-after: 0}\nadmin: {listen: 'unix://"+dir+"/admin.sock'}\nlisteners: {tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\n")
		in.Close()
	}()
	k := &kept{configured: &configured{dir: dir}}
	k.begin(t, cmd)
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	c := testnet.Dial(t, k.at("tcp"))
	mustPing(t, c)
	k.holds(1)
	k.end(syscall.SIGKILL)
	mustPing(t, c)
	k.started(1)
	if code, out := k.command("upgrade", "--dry-run"); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	mustPing(t, c)
}

// The configuration that a worker after a crash has is the last one, whoever applied it, and each worker uses
// the same memory for it.
func TestReloadBetweenCrashes(t *testing.T) {
	t.Parallel()
	const one = "listeners:\n  tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}\n"
	const settings = "keeper: {keep-after: 0, healthy-after: 0, max-restart-delay: 100ms}\n"
	k := runKeeper(t, "max-restart-delay: 100ms", one)
	a := testnet.Dial(t, k.at("tcp"))
	mustPing(t, a)
	k.holds(1)
	k.end(syscall.SIGKILL)
	k.started(1)
	k.write(t, one+"  later: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}\n"+settings)
	if code, out := k.command("reload"); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	b := testnet.Dial(t, k.at("later"))
	mustPing(t, b)
	k.holds(2)
	held := func() int64 {
		s, err := k.admin.Status(k.ctx())
		if err != nil {
			t.Fatal(err)
		}
		return s.Keeper.Held
	}
	before := held()
	for n := range int64(3) {
		k.end(syscall.SIGKILL)
		mustPing(t, b)
		if w := k.started(n + 2); w.Restored != 2 || w.TotalLost() != 0 {
			t.Errorf("%+v", w)
		}
		mustPing(t, a)
	}
	if code, out := k.command("upgrade"); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	k.started(5)
	testwait.Until(t, "the keeper holds no more than before", func() bool { return held() <= before })
	mustPing(t, testnet.Dial(t, k.at("later")))
}
