package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// outcome is what has become of a mutant.
type outcome string

const (
	lives outcome = "lives"
	dead  outcome = "dead"
	hangs outcome = "hangs" // it did not come to an end; dead, too
)

// trial runs a test binary with one mutant after the other.
type trial struct {
	binary, dir string
	most        time.Duration
	said        string // what has failed in the last one
}

// stages are run one after the other. The last ones are run with random seeds, for what is left of the time.
var stages = []struct {
	run, skip string
	random    bool
}{
	{run: streams},
	{run: datagrams},
	{run: tests, skip: "^TestSimulate(Datagrams)?$"},
	{run: streams, random: true},
	{run: datagrams, random: true},
}

const (
	streams   = "^TestSimulate$"
	datagrams = "^TestSimulateDatagrams$"
)

// try tries mutant number i, and returns after how much time of the processor it was known what has become of it.
func (t *trial) try(i int) (outcome, time.Duration) {
	var used time.Duration
	t.said = ""
	for n, stage := range stages {
		args := []string{"-test.run", stage.run, "-test.skip", stage.skip, "-test.failfast", "-test.timeout=0", "-simulate.shrink=false"}
		left := t.most - used
		if stage.random {
			if left /= time.Duration(len(stages) - n); i == 0 || left < time.Second {
				continue
			}
			args = append(args, "-simulate=24h")
		}
		out, took, err := t.run(i, max(left, time.Second), args)
		used += took
		switch {
		case err == nil:
			continue
		case strings.Contains(out, "SIGXCPU") && stage.random:
			continue // there was no time for more schedules
		}
		t.said = stage.run + ": " + first(out)
		if strings.Contains(out, "SIGXCPU") || strings.Contains(out, "SIGQUIT") {
			return hangs, used
		}
		return dead, used
	}
	return lives, used
}

// run runs the binary for at most that much time of the processor. One that waits for ever is ended, too.
func (t *trial) run(i int, most time.Duration, args []string) (said string, took time.Duration, err error) {
	script := fmt.Sprintf(`ulimit -S -t %d; exec "$0" "$@"`, int(most.Seconds()))
	c := exec.Command("sh", append([]string{"-c", script, t.binary}, args...)...)
	c.Dir, c.Env = t.dir, append(os.Environ(), fmt.Sprintf("PENSTOCK_MUTANT=%d", i))
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		return "", 0, err
	}
	ended := make(chan struct{})
	go t.watch(c.Process, ended)
	err = c.Wait()
	close(ended)
	return out.String(), c.ProcessState.UserTime() + c.ProcessState.SystemTime(), err
}

// watch ends a process that has used no time of the processor for a while.
func (t *trial) watch(p *os.Process, ended <-chan struct{}) {
	const every, patience = 10 * time.Second, 6
	last, still := "", 0
	for {
		select {
		case <-ended:
			return
		case <-time.After(every):
		}
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
		now := ""
		if f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])); len(f) > 12 {
			now = f[11] // utime: proc_pid_stat(5)
		}
		if still++; now != last {
			last, still = now, 0
		}
		if still >= patience {
			p.Signal(syscall.SIGQUIT)
			return
		}
	}
}

// first returns the line of a test's output that says what has failed.
func first(out string) string {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "_test.go:") || strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			return line[:min(len(line), 160)]
		}
	}
	return ""
}
