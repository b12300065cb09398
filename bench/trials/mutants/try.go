package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
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
	// It was ended by a schedule of a random seed that fails without it, too: nobody knows.
	unknown outcome = "unknown"
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
		out, took, over, err := t.run(i, max(left, time.Second), args)
		used += took
		switch {
		case err == nil:
			continue
		case over && stage.random:
			continue // there was no time for more schedules
		}
		t.said = stage.run + ": " + first(out)
		if seed := seedOf(out); stage.random && seed != "" {
			if _, _, _, err := t.run(0, t.most, []string{"-test.run", stage.run, "-simulate.seed", seed, "-simulate.shrink=false"}); err != nil {
				return unknown, used
			}
		}
		if over || strings.Contains(out, "SIGQUIT") {
			return hangs, used
		}
		return dead, used
	}
	return lives, used
}

// run runs the binary, and ends it when it has used that much time of the processor, which is over then. One that waits for ever is
// ended, too.
func (t *trial) run(i int, most time.Duration, args []string) (said string, took time.Duration, over bool, err error) {
	c := exec.Command(t.binary, args...)
	c.Dir, c.Env = t.dir, append(os.Environ(), fmt.Sprintf("PENSTOCK_MUTANT=%d", i))
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		return "", 0, false, err
	}
	ended, watched := make(chan struct{}), make(chan bool, 1)
	go func() { watched <- watch(c.Process, most, ended) }()
	err = c.Wait()
	close(ended)
	return out.String(), c.ProcessState.UserTime() + c.ProcessState.SystemTime(), <-watched, err
}

// watch ends a process that has used too much time of the processor, or none for a while, and reports whether it was too much. A limit of
// the kernel's (RLIMIT_CPU) would not do: a Go program ignores SIGXCPU, and of SIGKILL nobody would know the reason.
func watch(p *os.Process, most time.Duration, ended <-chan struct{}) (over bool) {
	const patience = 60 // seconds
	last, still := time.Duration(0), 0
	for {
		select {
		case <-ended:
			return false
		case <-time.After(time.Second):
		}
		used := usedBy(p.Pid)
		if still++; used != last {
			last, still = used, 0
		}
		switch {
		case used >= most:
			p.Kill()
			return true
		case still >= patience:
			p.Signal(syscall.SIGQUIT)
			return false
		}
	}
}

// usedBy returns the time of the processor that a process has used: utime and stime of proc_pid_stat(5), in hundredths of a second.
func usedBy(pid int) (used time.Duration) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	for i := 11; i < 13 && i < len(f); i++ {
		n, _ := strconv.Atoi(f[i])
		used += time.Duration(n) * 10 * time.Millisecond
	}
	return used
}

// seedOf returns the seed of the schedule that has failed, or nothing.
func seedOf(out string) string {
	if m := failedSeed.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return ""
}

var failedSeed = regexp.MustCompile(`seed (\d+), step \d+: `)

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
