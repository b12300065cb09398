package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// said waits for a line of the log whose message begins with text.
func (k *kept) said(text string) {
	k.t.Helper()
	testwait.Until(k.t, text, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return slices.ContainsFunc(k.lines, func(l map[string]any) bool { return strings.HasPrefix(fmt.Sprint(l["msg"]), text) })
	})
}

// A worker whose flows the keeper cannot take all, because it is full, refuses an upgrade and goes on. When there
// are fewer flows, the upgrade succeeds.
func TestUpgradeWithFullKeeper(t *testing.T) {
	t.Parallel()
	k := &kept{configured: &configured{dir: shortDir(t)}}
	k.file = filepath.Join(k.dir, "penstock.yaml")
	k.write(t, "listeners: {tcp: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\nengine: {loops: 1}\nkeeper: {keep-after: 1h, healthy-after: 0}\n")
	k.begin(t, exec.Command("sh", "-c", `ulimit -n 300; exec "$0" run -c "$1"`, binary, k.file))
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	var flows []net.Conn
	for range 160 {
		c := testnet.Dial(t, k.at("tcp"))
		mustPing(t, c)
		flows = append(flows, c)
	}
	before := k.worker()
	code, out := k.command("upgrade", "--binary", binary)
	if code != 1 || !strings.Contains(out, "the worker cannot hand over") || !strings.Contains(out, "limit of held items or descriptors reached") || !strings.Contains(out, "nothing was changed") {
		t.Errorf("exit code %d: %s", code, out)
	}
	k.said("this worker goes on, because it cannot hand over")
	testwait.Until(t, "the worker is alone", func() bool { return k.worker() != 0 })
	if now := k.worker(); now != before {
		t.Errorf("the worker is %d, and was %d", now, before)
	}
	for _, c := range flows {
		mustPing(t, c)
	}
	flows = append(flows, testnet.Dial(t, k.at("tcp"))) // it accepts again
	mustPing(t, flows[160])
	k.said("some flows are not held, and would end with this worker")
	for _, c := range flows[:100] {
		c.Close()
	}
	testwait.Until(t, "the flows have ended", func() bool {
		s, err := k.admin.Status(k.ctx())
		return err == nil && s.Totals.Flows == 61
	})
	testwait.Until(t, "an upgrade succeeds", func() bool { // the keeper drops what has ended a little later
		code, out = k.command("upgrade", "--binary", binary)
		return code == 0
	})
	if !strings.Contains(out, "61 flows continued, 0 lost") {
		t.Error(out)
	}
	for _, c := range flows[100:] {
		mustPing(t, c)
	}
}

// The keeper's times change by a reload, without another worker; a worker that hangs is replaced, and its flows
// continue.
func TestWatchdogOfHungWorker(t *testing.T) {
	t.Parallel()
	k := &kept{configured: runFile(t, threeListeners+"keeper: {keep-after: 0, healthy-after: 1h, watchdog: 1h}\n", speak(t, "one").url())}
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	f := threeFlows(k)
	before := k.worker()
	text, err := os.ReadFile(k.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(k.file, []byte(strings.Replace(string(text), "watchdog: 1h", "watchdog: 10s, max-restart-delay: 200ms", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out := k.command("reload")
	if code != 0 || strings.Contains(out, "restart") && !strings.Contains(out, "max-restart-delay") || strings.Contains(out, "new worker") || !strings.Contains(out, "keeper.watchdog") {
		t.Errorf("exit code %d: %s", code, out)
	}
	f.answer("reloaded")
	if now := k.worker(); now != before {
		t.Errorf("the worker is %d, and was %d", now, before)
	}
	k.end(syscall.SIGSTOP)
	f.answer("after the watchdog")
	if w := k.started(1); w.Reason != "crash" || w.Cause != "signal 9 (watchdog)" || w.TotalLost() != 0 {
		t.Errorf("%+v", w)
	}
}

// A new binary that dies right after the hand-over, or while it is on trial: the old one continues, and nothing is
// lost.
func TestNewWorkerDies(t *testing.T) {
	t.Parallel()
	k := &kept{configured: runFile(t, threeListeners+"keeper: {keep-after: 0, healthy-after: 1h, max-restart-delay: 100ms}\n", speak(t, "one").url())}
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	f := threeFlows(k)
	exe := func() string {
		testwait.Until(t, "there is one worker", func() bool { return k.worker() != 0 })
		path, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", k.worker()))
		return path
	}
	old := exe()
	other := filepath.Join(t.TempDir(), "other") // where the worker cannot write
	b, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, b, 0o755); err != nil {
		t.Fatal(err)
	}
	number := int64(0)
	for _, c := range []struct {
		name string
		when func(before int) int // waits for the worker to kill
	}{
		{"at once", func(before int) (pid int) {
			testwait.Until(t, "the old worker has gone", func() bool {
				all := k.children()
				if len(all) == 1 && all[0] != before {
					pid = all[0]
				}
				return pid != 0
			})
			return pid
		}},
		{"on trial", func(before int) (pid int) {
			testwait.Until(t, "the new worker answers", func() bool {
				s, err := k.admin.Status(k.ctx())
				if err == nil && s.Keeper.Worker != before {
					pid = s.Keeper.Worker
				}
				return pid != 0
			})
			return pid
		}},
	} {
		testwait.Until(t, "there is one worker", func() bool { return k.worker() != 0 })
		before := k.worker()
		type result struct {
			code int
			out  string
		}
		done := make(chan result, 1)
		go func() {
			cmd := exec.Command(binary, "upgrade", "--binary", other, "--admin", "unix://"+k.dir+"/admin.sock")
			out, _ := cmd.CombinedOutput()
			done <- result{cmd.ProcessState.ExitCode(), string(out)}
		}()
		if err := sendSignal(c.when(before), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		f.answer(c.name)
		if r := <-done; r.code != 3 || !strings.Contains(r.out, "the old binary runs again") || !strings.Contains(r.out, "0 lost") {
			t.Errorf("%s: exit code %d: %s", c.name, r.code, r.out)
		}
		if w := k.started(number + 1); w.Reason != "rollback" || w.TotalLost() != 0 || w.Restored != 3 || w.Cause != "signal 9" {
			t.Errorf("%s: %+v", c.name, w)
		} else {
			number = w.Number
		}
		if path := exe(); path != old {
			t.Errorf("%s: the worker is %s", c.name, path)
		}
		f.answer("after the rollback")
	}
}

// Workers that die as soon as they run, again and again: flows continue with the first one that lives, and all starts
// are counted.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	k := runKeeper(t, "max-restart-delay: 100ms", threeListeners, speak(t, "one").url())
	f := threeFlows(k)
	const deaths = 6
	for dead := map[int]bool{}; len(dead) < deaths; {
		pid := 0
		testwait.Until(t, "there is another worker", func() bool { pid = k.worker(); return pid != 0 && !dead[pid] })
		dead[pid] = true
		if err := sendSignal(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	f.answer("after the crashes")
	w := k.started(deaths)
	if w.Reason != "crash" || w.Restored != 3 || w.TotalLost() != 0 || w.Number != deaths {
		t.Errorf("%+v", w)
	}
	s, err := k.admin.Status(k.ctx())
	if err != nil || !slices.Contains(s.Keeper.Starts, api.StartCount{Reason: "crash", Count: deaths}) {
		t.Errorf("%+v, %v", s.Keeper, err)
	}
	if !slices.ContainsFunc(k.wait("keeper", 1), func(l map[string]any) bool { return l["event"] == "start-delayed" }) {
		t.Error("the keeper does not wait between starts")
	}
}

// penstock relay --keep: flows outlive the worker, which has no admin listener.
func TestRelayKeep(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	k := &kept{configured: &configured{dir: dir}}
	k.begin(t, exec.Command(binary, "relay", "--keep", "--log-format=json", "unix://"+dir+"/in.sock", "echo:"))
	k.endWorker(t)
	dial := func() (c net.Conn) {
		testwait.Until(t, "it accepts", func() bool {
			var err error
			c, err = net.Dial("unix", dir+"/in.sock")
			return err == nil
		})
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := dial()
	mustPing(t, c)
	testwait.Until(t, "the keeper knows that the worker is ready", func() bool {
		return slices.ContainsFunc(k.wait("keeper", 1), func(l map[string]any) bool { return l["event"] == "worker-ready" })
	})
	k.signal(syscall.SIGUSR2) // hands over, and so settles, all flows
	k.said("upgraded to ")
	mustPing(t, c)
	k.end(syscall.SIGKILL)
	testwait.Until(t, "the next worker has the flow", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return slices.ContainsFunc(k.lines, func(l map[string]any) bool {
			msg := fmt.Sprint(l["msg"])
			// On a busy machine the trial of ten seconds may be over.
			return strings.HasPrefix(msg, "upgrade undone: the worker ended with signal 9: 1 flow continues, 0 lost") || strings.HasPrefix(msg, "worker restarted after signal 9: 1 flow continues, 0 lost")
		})
	})
	mustPing(t, c)
	mustPing(t, dial())
	k.signal(syscall.SIGTERM)
	c.Close()
}
