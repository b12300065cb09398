package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// kept is a daemon that runs under a keeper: its worker can be killed and upgraded.
type kept struct {
	*configured
	idle  int  // sockets that the keeper has without a flow
	alone bool // nothing happens to the worker
}

// restores says that this version restores flows and has penstock upgrade.
const restores = false

// runKept starts penstock run with a configuration and a keeper, which holds each flow at once.
func runKept(t *testing.T, text string, values ...any) *kept {
	t.Helper()
	k := &kept{configured: runFile(t, text+"\nkeeper: {keep-after: 0s}\n", values...)}
	t.Cleanup(func() { // the worker outlives its keeper, and the test waits for what both write
		if worker := k.worker(); worker != 0 {
			k.cmd.Process.Kill()
			if p, err := os.FindProcess(worker); err == nil {
				p.Kill()
			}
		}
	})
	eventually(t, "the API answers", k.answers)
	k.idle = k.sockets()
	k.alone = !restores
	return k
}

func (k *kept) answers() bool {
	_, err := k.admin.Status(k.ctx())
	return err == nil
}

// worker returns the process that relays, or 0 if there is none for now.
func (k *kept) worker() int {
	main := k.cmd.Process.Pid
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(main) + "/task/*/children")
	last := 0
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, f := range strings.Fields(string(text)) {
			pid, _ := strconv.Atoi(f)
			last = max(last, pid)
		}
	}
	return last
}

// sockets returns how many sockets the keeper has.
func (k *kept) sockets() (n int) {
	dir := "/proc/" + strconv.Itoa(k.cmd.Process.Pid) + "/fd"
	files, err := os.ReadDir(dir)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, f := range files {
		if to, _ := os.Readlink(filepath.Join(dir, f.Name())); strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// settled waits until the keeper holds this many sockets of flows.
func (k *kept) settled(n int) {
	k.t.Helper()
	if k.alone {
		return
	}
	eventually(k.t, "the flows are held", func() bool { return k.sockets() >= k.idle+n })
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
		if out, err := exec.Command(binary, "upgrade", "--admin", "unix://"+k.dir+"/admin.sock").CombinedOutput(); err != nil {
			k.t.Fatalf("penstock upgrade: %v\n%s", err, out)
		}
	})
}

// replaced waits until another worker than before answers.
func (k *kept) replaced(do func(worker int)) {
	k.t.Helper()
	if k.alone {
		return
	}
	before := k.worker()
	if before == 0 {
		k.t.Fatal("there is no worker")
	}
	do(before)
	eventually(k.t, "another worker answers", func() bool {
		now := k.worker()
		return now != 0 && now != before && k.answers()
	})
}
