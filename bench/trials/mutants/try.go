package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
)

// trial runs a test binary with one mutant after the other.
type trial struct {
	binary, dir string
	most        time.Duration
	said        string // what has failed in the last one
}

// stage is a run of some of the tests.
type stage struct {
	run, skip string
	random    bool // of schedules of random seeds, for a part of the time that is left
}

// stagesOf returns what a mutant is tried with, one stage after the other: schedules of what its file is about, those of the check first and then random ones.
func stagesOf(m *mutant) []stage {
	kinds, random := []string{streams, datagrams}, []stage(nil)
	if m != nil {
		switch name := filepath.Base(m.file); {
		case strings.HasPrefix(name, "datagram"):
			kinds = kinds[1:]
		case strings.HasPrefix(name, "stream"), filepath.Base(filepath.Dir(m.file)) == "pump":
			kinds = kinds[:1]
		}
	}
	var all []stage
	for _, kind := range kinds {
		all = append(all, stage{run: kind})
		random = append(random, stage{run: kind, random: true})
	}
	all = append(all, stage{run: tests, skip: "^TestSimulate(Datagrams)?$"})
	if m == nil {
		return all
	}
	return append(all, random...)
}

const (
	streams   = "^TestSimulate$"
	datagrams = "^TestSimulateDatagrams$"
)

// try tries a mutant, or none, and returns after how much time of the processor it was known what has become of it. A schedule of a
// random seed that fails without the mutant, too, says nothing of it.
func (t *trial) try(m *mutant) (how outcome, used time.Duration) {
	number := 0
	if m != nil {
		number = m.number
	}
	t.said = ""
	stages := stagesOf(m)
	for n := 0; n < len(stages); {
		stage := &stages[n]
		args := []string{"-test.run", stage.run, "-test.skip", stage.skip, "-test.failfast", "-test.timeout=0", "-simulate.shrink=false"}
		left := t.most - used
		if stage.random {
			if left /= time.Duration(len(stages) - n); left < time.Second {
				n++
				continue
			}
			args = append(args, "-simulate=24h")
		}
		out, took, over, err := t.run(number, max(left, time.Second), args)
		used += took
		switch seed := seedOf(out); {
		case err == nil, over && stage.random: // there was no time for more schedules
			n++
			continue
		case stage.random && seed != "" && t.failsAnyway(stage, seed):
			continue
		}
		t.said = stage.run + ": " + first(out)
		if over || strings.Contains(out, "SIGQUIT") {
			return hangs, used
		}
		return dead, used
	}
	return lives, used
}

// failsAnyway reports whether the schedule of a seed fails without a mutant.
func (t *trial) failsAnyway(s *stage, seed string) bool {
	_, _, _, err := t.run(0, t.most, []string{"-test.run", s.run, "-simulate.seed", seed, "-simulate.shrink=false"})
	return err != nil
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
	if at := failedSeed.FindStringIndex(out); at != nil {
		out = "_test.go: " + out[at[0]:]
	}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "_test.go:") || strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			return line[:min(len(line), 160)]
		}
	}
	return ""
}
