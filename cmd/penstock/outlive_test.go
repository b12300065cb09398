package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

// kept is a daemon that runs under a keeper: its worker can be killed and upgraded.
type kept struct{ *configured }

// keeperOfTests holds each flow at once, and upgrades do not take longer than they must; a worker may be slow, as on a busy machine.
const keeperOfTests = "\nkeeper: {keep-after: 0s, healthy-after: 100ms, watchdog: 10m, start-timeout: 10m}\n"

// runKept starts penstock run with a configuration and a keeper, which holds each flow at once.
func runKept(t *testing.T, text string, values ...any) *kept {
	t.Helper()
	k := &kept{configured: runFile(t, text+keeperOfTests, values...)}
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	return k
}

// endWorker ends the worker at the end of the test, if it still runs: it outlives its keeper, too.
func (k *kept) endWorker(t *testing.T) {
	t.Cleanup(func() {
		if k.cmd.Process.Signal(syscall.SIGSTOP) != nil {
			return // it has exited, and so has the worker
		}
		for _, pid := range k.children() {
			if p, err := os.FindProcess(pid); err == nil {
				p.Kill()
			}
		}
	})
}

func (k *kept) answers() bool {
	_, err := k.admin.Status(k.ctx())
	return err == nil
}

// worker returns the process that relays, or 0 if there is none for now, or more than one.
func (k *kept) worker() int {
	if all := k.children(); len(all) == 1 {
		return all[0]
	}
	return 0
}

// children returns the processes that the keeper has started and that have not ended.
func (k *kept) children() []int { return childrenOf(k.cmd.Process.Pid) }

// childrenOf returns the processes that a process has started and that have not ended.
func childrenOf(pid int) (pids []int) {
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, f := range strings.Fields(string(text)) {
			stat, _ := os.ReadFile("/proc/" + f + "/stat")
			if i := strings.LastIndex(string(stat), ") "); i >= 0 && stat[i+2] != 'Z' {
				pid, _ := strconv.Atoi(f)
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// settled waits until this many flows would go on after a crash.
func (k *kept) settled(flows int64) {
	k.t.Helper()
	testwait.Until(k.t, "the flows are held", func() bool {
		s, err := k.admin.Status(k.ctx())
		return err == nil && s.Keeper != nil && s.Keeper.Flows >= flows
	})
}

// crash kills the worker and waits for the next one.
func (k *kept) crash() {
	k.t.Helper()
	k.replaced(func(worker int) {
		p, err := os.FindProcess(worker)
		if err == nil {
			err = p.Kill()
		}
		if err != nil {
			k.t.Fatal(err)
		}
	})
}

// upgrade upgrades the daemon to the binary that it already runs.
func (k *kept) upgrade() {
	k.t.Helper()
	k.replaced(func(int) {
		// The daemon calls itself healthy a moment before the keeper does, for which the last upgrade goes on until then.
		testwait.Until(k.t, "an upgrade is possible", func() bool {
			out, err := exec.Command(binary, "upgrade", "--admin", "unix://"+k.dir+"/admin.sock").CombinedOutput()
			if err != nil && !strings.Contains(string(out), "another upgrade is under way") {
				k.t.Fatalf("penstock upgrade: %v\n%s", err, out)
			}
			return err == nil
		})
	})
}

// replaced waits until another worker than before answers. Soon after an upgrade the keeper has another child
// for a moment, which it asks whether it can replace the keeper.
func (k *kept) replaced(do func(worker int)) {
	k.t.Helper()
	before := 0
	testwait.Until(k.t, "there is one worker", func() bool { before = k.worker(); return before != 0 })
	do(before)
	testwait.Until(k.t, "another worker answers", func() bool {
		now := k.worker()
		return now != 0 && now != before && k.answers()
	})
}
