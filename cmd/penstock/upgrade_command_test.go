package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// Who interrupts penstock upgrade learns that the upgrade goes on, and it does.
func TestUpgradeInterrupted(t *testing.T) {
	t.Parallel()
	k := &kept{configured: runFile(t, threeListeners+"\nkeeper: {keep-after: 0, healthy-after: 1h}\n", speak(t, "one").url())}
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	f := threeFlows(k)
	cmd := exec.Command(binary, "upgrade", "--admin", "unix://"+k.dir+"/admin.sock")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(4*patience, func() { cmd.Process.Kill() })
	defer late.Stop()
	var said strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "the old binary comes back if it ends soon") {
			cmd.Process.Signal(os.Interrupt)
		}
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(said.String(), "penstock: interrupted; the upgrade goes on") {
		t.Errorf("exit code %d, %s", code, said.String())
	}
	if w := k.started(1); w.Reason != "upgrade" || w.Restored != 3 {
		t.Errorf("%+v", w)
	}
	f.answer("after the upgrade")
	// The trial goes on, too: a death brings the old binary back.
	k.end(syscall.SIGKILL)
	if w := k.started(2); w.Reason != "rollback" || w.Restored != 3 {
		t.Errorf("%+v", w)
	}
	f.answer("end")
}

// A service may see other files than the command: then the error says so.
func TestUpgradeToHiddenFile(t *testing.T) {
	need(t, "unshare")
	if os.Getuid() != 0 {
		t.Skip("only root can mount a folder that the daemon does not see")
	}
	t.Parallel()
	k := runKeeper(t, "", threeListeners, speak(t, "one").url())
	dir := filepath.Join(k.dir, "hidden")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("unshare", "-m", "sh", "-c", `mount -t tmpfs tmpfs "$0" && cp "$1" "$0"/penstock && exec "$1" upgrade --admin "$2" --binary "$0"/penstock`,
		dir, binary, "unix://"+k.dir+"/admin.sock").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no such file or directory; the daemon does not see this file") {
		t.Errorf("%v: %s", err, out)
	}
}

// Without a keeper, an upgrade is refused with what to do, and SIGUSR2 tells it in the log.
func TestUpgradeWithoutKeeper(t *testing.T) {
	t.Parallel()
	c := runFile(t, threeListeners, speak(t, "one").url())
	out, err := exec.Command(binary, "upgrade", "--admin", "unix://"+c.dir+"/admin.sock").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no keeper") || !strings.Contains(string(out), "keeper: {}") {
		t.Errorf("%v: %s", err, out)
	}
	c.signal(syscall.SIGUSR2)
	c.line("SIGUSR2 has no effect: an upgrade needs a keeper (keeper: {} in the configuration)")
	if s, err := c.admin.Status(c.ctx()); err != nil || s.State != api.StateReady {
		t.Errorf("%+v, %v", s, err)
	}
}
