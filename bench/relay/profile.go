//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/penstock/penstock/bench/internal/proc"
)

// startProfile samples the relay's processes with perf(1) through the window.
// The function that it returns waits for the end, and writes the two usual
// reports, by own and by inclusive time, while the relay's binary is still there.
func (b *bench) startProfile(l namedLoad, s subject, pid int) (wait func() error, err error) {
	var pids []string
	for _, p := range proc.Tree(pid) {
		pids = append(pids, strconv.Itoa(p))
	}
	data := filepath.Join(b.dir, "perf.data")
	// cpu-clock: a guest often has no hardware counters. perf itself may run on
	// every CPU: beside a load that fills the relay's it gets no sample.
	record := exec.Command("taskset", "-c", fmt.Sprintf("0-%d", runtime.NumCPU()-1), "perf", "record", "-q", "-e", "cpu-clock", "-F", "1999", "-g", "-D", strconv.Itoa(int(b.warm.Milliseconds())),
		"-o", data, "-p", strings.Join(pids, ","), "--", "sleep", fmt.Sprint((b.warm + b.window).Seconds()))
	record.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	record.Stderr = os.Stderr
	if err := record.Start(); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return func() error {
		if err := record.Wait(); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		var text []byte
		for _, how := range []string{"--no-children", "--children"} {
			out, err := exec.Command("perf", "report", "-i", data, "--stdio", how, "-g", "none", "--percent-limit", "0.7", "--sort", "sym").Output()
			if err != nil {
				return fmt.Errorf("profile: %w", err)
			}
			text = append(text, out...)
		}
		return os.WriteFile(filepath.Join(b.profile, fmt.Sprintf("profile-%s-%s.txt", l.text, s.Name)), text, 0o644)
	}, nil
}
