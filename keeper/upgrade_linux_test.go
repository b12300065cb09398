package keeper

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// upgrade makes w ask for an upgrade, and follows it to the ready new worker.
func (w *testWorker) upgrade(binary string) *testWorker {
	r := w.rig
	r.Helper()
	w.do("handler")
	w.order(command{Do: "upgrade-async", Text: binary})
	next := r.worker()
	next.send(command{Do: "prepared", Text: "new"})
	w.do("wait-hand-over")
	w.do("handed-over")
	w.send(command{Do: "exit", N: 3})
	next.Start = next.reply().Start
	next.do("ready")
	return next
}

func TestUpgrade(t *testing.T) {
	r := newRig(t)
	w := r.runningWorker()
	w.order(command{Do: "pipe", Key: 7, Text: "hello"})
	w.order(command{Do: "pipe", Key: 8, Label: "early", Text: "early"})
	w.do("handler")
	w.order(command{Do: "upgrade-async", Text: r.binary("next")})
	next := r.worker()
	if next.Reason != Upgraded {
		t.Errorf("started because of %v", next.Reason)
	}
	if held := next.do("held"); len(held.Items) != 1 || held.Items[0].Label != "early" {
		t.Errorf("on standby: %+v", held.Items)
	}
	next.send(command{Do: "prepared", Text: "version 2"})
	w.do("wait-hand-over")
	// Until it has handed over, the old worker may change what is held.
	w.order(command{Do: "pipe", Key: 9, Text: "late"})
	w.do("handed-over")
	w.send(command{Do: "exit", N: 3})
	next.Start = next.reply().Start
	if u := next.Start.Upgrade; u.State != Starting || u.Info != "version 2" || filepath.Base(u.Binary) != "next" || u.ID != 1 {
		t.Errorf("upgrade: %+v", u)
	}
	if next.Downtime <= 0 || next.Died.Code != 3 {
		t.Errorf("start: %+v", next.Start)
	}
	if held := next.do("held"); len(held.Items) != 3 || held.Missing != 0 {
		t.Errorf("after go: %+v", held.Items)
	}
	for key, want := range map[uint64]string{7: "hello", 8: "early", 9: "late"} {
		if got := next.order(command{Do: "read", Key: key}); got.Text != want {
			t.Errorf("pipe %d has %q", key, got.Text)
		}
	}
	next.do("ready")
	r.event("upgrade 1", ": done")
	if exe, _ := os.Readlink("/proc/" + itoa(next.pid) + "/exe"); filepath.Base(exe) != "next" {
		t.Errorf("the worker is %s", exe)
	}
	if comm, _ := os.ReadFile("/proc/" + itoa(next.pid) + "/comm"); strings.TrimSpace(string(comm)) != "keeper" { // its os.Args[0]
		t.Errorf("the worker's name is %q", comm)
	}
	// A crash after that is a crash of the new binary.
	next.kill()
	after := r.runningWorker()
	if after.Reason != Crash || after.Start.Upgrade.State != Done {
		t.Errorf("after the upgrade: %+v", after.Start)
	}
}

// learns waits until the worker knows an upgrade of which f is true.
func (w *testWorker) learns(f func(u Upgrade) bool) {
	w.rig.Helper()
	w.rig.settled("what the worker knows of the upgrade", func() bool { return f(w.do("last-upgrade").Upgrade) })
}

func TestDryRun(t *testing.T) {
	r := newRig(t)
	w := r.runningWorker()
	w.send(command{Do: "upgrade", Text: r.binary("next"), DryRun: true})
	next := r.worker()
	next.send(command{Do: "prepared", Text: "fine"})
	got := w.reply()
	if got.Upgrade.State != Checked || got.Upgrade.Info != "fine" || !slices.Equal(got.Steps, []string{"checking", "checked"}) {
		t.Errorf("%+v", got)
	}
	// The worker goes on.
	w.order(command{Do: "pipe", Key: 1})
}

func TestUpgradeRefused(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.ConnectTimeout = 500 * time.Millisecond })
	// Under load a good worker may need longer than that: then it is simply started again.
	w := r.runningWorker()
	refused := func(binary, want string, during func()) {
		t.Helper()
		w.send(command{Do: "upgrade", Text: binary})
		if during != nil {
			during()
		}
		if got := w.reply(); got.Upgrade.State != Refused || !strings.Contains(got.Upgrade.Reason, want) {
			t.Errorf("%s: %+v", filepath.Base(binary), got.Upgrade)
		}
	}
	refused(filepath.Join(r.dir, "missing"), "no such file", nil)
	refused(r.dir, "", nil)
	text := filepath.Join(r.dir, "text")
	os.WriteFile(text, []byte("not a program"), 0o755)
	refused(text, "exec format error; it is not a program for linux/", nil)
	refused(r.binary("mute"), "not connected in time", nil)
	os.Chmod(text, 0o644)
	refused(text, "permission denied", nil)
	w.order(command{Do: "pipe", Key: 1})
}

// A new binary that exits on standby, also while another upgrade is asked for.
func TestUpgradeExits(t *testing.T) {
	r := newRig(t)
	w := r.runningWorker()
	w.send(command{Do: "upgrade", Text: r.binary("next")})
	next := r.worker()
	sys.Signal(r.cmd.Process.Pid, syscall.SIGUSR2)
	r.event("another upgrade is under way")
	next.send(command{Do: "exit", N: 4})
	if got := w.reply(); got.Upgrade.State != Refused || !strings.Contains(got.Upgrade.Reason, "exit code 4") {
		t.Errorf("%+v", got.Upgrade)
	}
	w.order(command{Do: "pipe", Key: 1})
}

// The new worker fails at each step after the old one has handed over; the old binary continues.
func TestRollback(t *testing.T) {
	for _, step := range []string{"before the old one has gone", "before go", "before ready", "after ready"} {
		t.Run(step, func(t *testing.T) {
			r := newRig(t, func(c *childConfig) { c.Config.Healthy = time.Hour })
			w := r.runningWorker()
			w.order(command{Do: "pipe", Key: 7, Text: "hello"})
			w.do("handler")
			w.order(command{Do: "upgrade-async", Text: r.binary("next")})
			next := r.worker()
			next.send(command{Do: "prepared"})
			w.do("wait-hand-over")
			if step == "before the old one has gone" {
				next.kill()
				r.event("ended: signal 9")
			}
			w.do("handed-over")
			switch step {
			case "before go":
				sys.Signal(next.pid, syscall.SIGSTOP)
				w.send(command{Do: "exit"})
				r.event("starting")
				next.kill()
			case "before ready":
				w.send(command{Do: "exit"})
				next.reply()
				next.kill()
			case "after ready":
				w.send(command{Do: "exit"})
				next.reply()
				next.do("ready")
				r.event("proving")
				next.send(command{Do: "exit", N: 9})
			default:
				w.send(command{Do: "exit"})
			}
			old := r.runningWorker()
			if old.Reason != Rollback || old.Start.Upgrade.State != RolledBack || old.Start.Upgrade.Reason == "" {
				t.Errorf("%+v", old.Start)
			}
			if exe, _ := os.Readlink("/proc/" + itoa(old.pid) + "/exe"); filepath.Base(exe) != "worker" {
				t.Errorf("%s runs", exe)
			}
			old.do("held")
			if got := old.order(command{Do: "read", Key: 7}); got.Text != "hello" {
				t.Errorf("the pipe has %q", got.Text)
			}
			if u := old.do("last-upgrade").Upgrade; u.State != RolledBack {
				t.Errorf("%+v", u)
			}
			// And the next upgrade works.
			old.upgrade(r.binary("next"))
		})
	}
}

// A new worker that is not ready in time, and an old one that does not hand over in time.
func TestUpgradeHangs(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.HandOverTimeout = 100 * time.Millisecond })
	w := r.runningWorker()
	w.do("handler")
	w.order(command{Do: "upgrade-async", Text: r.binary("next")})
	next := r.worker()
	next.send(command{Do: "prepared"})
	r.event("worker-killed", "not handed over in time")
	next.reply()
	next.do("ready")
	r.event(": done")

	// A worker that does not know what handing over is: it is killed at once.
	next.order(command{Do: "upgrade-async", Text: r.binary("next")})
	third := r.worker()
	third.send(command{Do: "prepared"})
	r.event("worker-killed", "does not end itself")
	third.reply()
	third.do("ready")
	r.event(": done")
}

// A worker that cannot hand over says so, and goes on with what it has; the next upgrade may succeed.
func TestUpgradeStays(t *testing.T) {
	r := newRig(t)
	w := r.runningWorker()
	w.order(command{Do: "pipe", Key: 7, Text: "hello"})
	w.do("handler")
	w.order(command{Do: "upgrade-async", Text: r.binary("next")})
	r.worker().send(command{Do: "prepared"})
	w.do("wait-hand-over")
	w.order(command{Do: "stay", Text: "no room"})
	w.learns(func(u Upgrade) bool { return u.State == Refused && u.Reason == "the worker cannot hand over: no room" })
	r.event("worker-ended", "signal 9 (the worker cannot hand over: no room)")
	w.order(command{Do: "pipe", Key: 8, Text: "later"})
	next := w.upgrade(r.binary("next"))
	if held := next.do("held"); held.FDs != 2 || next.Reason != Upgraded || !maps.Equal(next.Starts, map[Reason]int{First: 1, Crash: 0, Upgraded: 1, Rollback: 0, Restart: 0}) {
		t.Errorf("%d items, %+v", held.FDs, next.Start)
	}
}

func TestRestart(t *testing.T) {
	r := newRig(t)
	w := r.runningWorker()
	w.do("handler")
	w.do("restart")
	next := r.worker()
	if next.Reason != Restart {
		t.Errorf("started because of %v", next.Reason)
	}
	next.send(command{Do: "prepared"})
	w.do("wait-hand-over")
	w.do("handed-over")
	w.send(command{Do: "exit"})
	next.reply()
	next.do("ready")
	r.event(": done")
	next.learns(func(u Upgrade) bool { return u.Restart && u.State == Done })
}

// A worker that takes over by a restart, and dies on trial, has crashed: there is no upgrade to undo.
func TestRestartDies(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.Healthy = time.Hour })
	w := r.runningWorker()
	w.do("handler")
	w.do("restart")
	next := r.worker()
	next.send(command{Do: "prepared"})
	w.do("wait-hand-over")
	w.do("handed-over")
	w.send(command{Do: "exit"})
	next.reply()
	next.do("ready")
	r.event("proving")
	next.kill()
	third := r.runningWorker()
	if u := third.Start.Upgrade; third.Reason != Crash || !u.Restart || u.State != RolledBack || !maps.Equal(third.Starts, map[Reason]int{First: 1, Crash: 1, Upgraded: 0, Rollback: 0, Restart: 1}) {
		t.Errorf("%+v", third.Start)
	}
}

// An upgrade by signal, after the file was replaced. The old binary was removed from disk, and still can be
// started.
func TestUpgradeBySignal(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.Healthy = time.Hour })
	w := r.runningWorker()
	path := r.binary("worker")
	os.Remove(path)
	w.kill()
	r.event("worker-died")
	r.runningWorker()
	r.event("worker-ready") // the keeper knows it, too
	os.Link(r.binary("next"), path)
	sys.Signal(r.cmd.Process.Pid, syscall.SIGUSR2)
	next := r.worker()
	next.send(command{Do: "prepared"})
	next.reply()
	next.do("ready")
	r.event("proving")
	next.kill()
	if w = r.runningWorker(); w.Reason != Rollback {
		t.Errorf("%+v", w.Start)
	}
}

// The keeper executes a new binary while a worker runs, which does not notice.
func TestKeeperUpgrade(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.KeepSelf = false })
	w := r.runningWorker()
	w.order(command{Do: "pipe", Key: 7, Text: "hello"})
	w.order(command{Do: "many", Key: 1000, N: 500})
	for i := range 3 {
		binary := r.binary("next" + itoa(i))
		w = w.upgrade(binary)
		r.event("keeper-upgraded")
		if exe, _ := os.Readlink("/proc/" + itoa(r.cmd.Process.Pid) + "/exe"); exe != binary {
			t.Fatalf("the keeper is %s", exe)
		}
		if comm, _ := os.ReadFile("/proc/" + itoa(r.cmd.Process.Pid) + "/comm"); strings.TrimSpace(string(comm)) != "keeper" {
			t.Errorf("the keeper's name is %q", comm)
		}
		// The same worker goes on with it.
		w.order(command{Do: "pipe", Key: 100 + uint64(i), Text: "later"})
		w.order(command{Do: "drop", Key: 1000 + 100*uint64(i), N: 100})
		w.learns(func(u Upgrade) bool { return u.Keeper == "upgraded" && u.State == Done })
	}
	w.kill()
	w = r.runningWorker()
	if held := w.do("held"); held.FDs != 1+3+200 || held.Missing != 0 {
		t.Errorf("%d items are held, %d missing", held.FDs, held.Missing)
	}
	if got := w.order(command{Do: "read", Key: 7}); got.Text != "hello" {
		t.Errorf("the pipe has %q", got.Text)
	}
	if w.Total != 1 || w.Reason != Crash {
		t.Errorf("%+v", w.Start)
	}
	// Standard descriptors, the runtime's, the connection, one or two binaries, and two of each item.
	r.settled("descriptors of the keeper", func() bool { return countFDs(r.cmd.Process.Pid) <= 204*2+20 })
	sys.Signal(r.cmd.Process.Pid, syscall.SIGTERM)
	if code := r.exit(); code != 128+15 { // of the worker, which has no handler
		t.Errorf("exit code %d", code)
	}
}

// A signal that is sent as soon as the keeper says that it was replaced reaches the worker.
func TestSignalAfterKeeperUpgrade(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.KeepSelf = false })
	w := r.runningWorker()
	for i := range 10 {
		w = w.upgrade(r.binary("next" + itoa(i%2)))
		w.do("catch")
		r.event("keeper-upgraded")
		sys.Signal(r.cmd.Process.Pid, syscall.SIGHUP)
		if got := w.do("signal").Text; got != "hangup" {
			t.Errorf("round %d: %s", i, got)
		}
	}
	sys.Signal(r.cmd.Process.Pid, syscall.SIGTERM)
	if got := w.do("signal").Text; got != "terminated" {
		t.Error(got)
	}
}

// An upgrade that is asked for by a signal in the middle of the keeper's own upgrade: the keeper goes on reading what its
// workers say.
func TestUpgradeWhileKeeperIsReplaced(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.KeepSelf = false })
	w := r.runningWorker()
	for i := range 16 {
		w = w.upgrade(r.binary("next" + itoa(i%2)))
		w.do("handler")
		time.Sleep(time.Duration(i) * 3 * time.Millisecond) // any moment of the replacement will do
		sys.Signal(r.cmd.Process.Pid, syscall.SIGUSR2)
		w.order(command{Do: "upgrade-async", Text: r.binary("next")}) // if the signal came just before execve
		next := r.worker()
		next.send(command{Do: "prepared"})
		w.do("wait-hand-over")
		w.do("handed-over")
		w.send(command{Do: "exit"})
		next.reply()
		next.do("ready")
		w = next
	}
}

// A binary that does not answer as a keeper does replaces the worker only.
func TestKeeperStays(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.KeepSelf = false })
	w := r.runningWorker()
	w = w.upgrade(r.binary("deaf"))
	r.event("keeper-kept", "does not know")
	w.kill()
	r.runningWorker()
}

// The worker dies in the middle of the keeper's own upgrade: it is started again, by the old keeper or the new one.
func TestWorkerDiesWhileKeeperIsReplaced(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.KeepSelf = false })
	w := r.runningWorker()
	w.order(command{Do: "pipe", Key: 7, Text: "hello"})
	for i := range 10 {
		w = w.upgrade(r.binary("next" + itoa(i%2)))
		time.Sleep(time.Duration(i) * 3 * time.Millisecond) // any moment of the replacement will do
		w.kill()
		w = r.runningWorker()
		if held := w.do("held"); held.FDs != 1 {
			t.Fatalf("%d items", held.FDs)
		}
		r.event("keeper-")
	}
}

// A keeper with few descriptors can open a binary, too.
func TestUpgradeWithFewDescriptors(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.KeeperLimit = 100 })
	w := r.runningWorker()
	r.event("worker-ready")
	w.send(command{Do: "upgrade", Text: r.binary("next"), DryRun: true})
	r.worker().send(command{Do: "prepared"})
	if u := w.reply().Upgrade; u.State != Checked {
		t.Errorf("%+v", u)
	}
}
