//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/proc"
)

// counted lists the events of a profile: the name in perf-stat(1), and ours.
var counted = [][2]string{
	{"context-switches", "switches"},
	{"raw_syscalls:sys_enter", "calls"},
	{"syscalls:sys_enter_splice", "splices"},
	{"syscalls:sys_enter_epoll_wait", "epoll_waits"},
	{"syscalls:sys_enter_epoll_pwait", "epoll_pwaits"},
	{"syscalls:sys_enter_epoll_ctl", "epoll_ctls"},
}

// profile samples and counts what the processes of a relay do in the window.
type profile struct {
	b            *bench
	l            namedLoad
	s            subject
	data, counts string // files
	record, stat *exec.Cmd
}

func (b *bench) startProfile(l namedLoad, s subject, pid int) (*profile, error) {
	var pids []string
	for _, p := range proc.Tree(pid) {
		pids = append(pids, strconv.Itoa(p))
	}
	p := &profile{b: b, l: l, s: s, data: filepath.Join(b.Dir, "perf.data"), counts: filepath.Join(b.Dir, "perf.stat")}
	common := []string{"-p", strings.Join(pids, ",")}
	sleep := []string{"--", "sleep", fmt.Sprint((b.Warm + b.Window).Seconds())}
	var events []string
	for _, c := range counted {
		events = append(events, c[0])
	}
	// cpu-clock is used because virtual machines often have no hardware counters. Sampling includes
	// the warm-up: with a delay there were often no samples at all.
	p.record = perf("record", []string{"-q", "-e", "cpu-clock", "-F", "1999", "-g", "-o", p.data}, common, sleep)
	p.stat = perf("stat", []string{"-D", strconv.Itoa(int(b.Warm.Milliseconds())), "-x", ",", "-e", strings.Join(events, ","), "-o", p.counts}, common, sleep)
	if err := p.record.Start(); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if err := p.stat.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("profile: %w", err), p.record.Wait())
	}
	return p, nil
}

// perf itself may run on every CPU: sharing the relay's CPU with a full load, it gets no samples.
func perf(how string, args ...[]string) *exec.Cmd {
	all := []string{"-c", fmt.Sprintf("0-%d", runtime.NumCPU()-1), "perf", how}
	for _, a := range args {
		all = append(all, a...)
	}
	cmd := exec.Command("taskset", all...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// end waits for perf, writes the two usual reports, by own and by inclusive time, while the relay's
// binary still exists, and prints the counts.
func (p *profile) end(r load.Result) error {
	if err := errors.Join(p.record.Wait(), p.stat.Wait()); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	var text []byte
	for _, how := range []string{"--no-children", "--children"} {
		out, err := exec.Command("perf", "report", "-i", p.data, "--stdio", how, "-g", "none", "--percent-limit", "0.7", "--sort", "sym").Output()
		if err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		text = append(text, out...)
	}
	unit, units := "op", float64(r.Ops)
	if p.l.Kind == load.Bulk {
		unit, units = "GB", float64(r.Bytes)/1e9
	}
	counts, err := os.ReadFile(p.counts)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	fmt.Fprintf(p.b.Out, "BenchmarkCalls/load=%s/peer=%s/loops=%d\t1", p.l.text, p.s.Name, p.s.loops)
	for line := range bytes.Lines(counts) {
		// COUNT,unit,EVENT,...; an event that the kernel cannot count has no number.
		f := strings.Split(string(line), ",")
		for _, c := range counted {
			if n, err := strconv.ParseFloat(f[0], 64); err == nil && len(f) > 2 && f[2] == c[0] {
				fmt.Fprintf(p.b.Out, "\t%.4g %s/%s", n/units, c[1], unit)
			}
		}
	}
	fmt.Fprintln(p.b.Out)
	return os.WriteFile(filepath.Join(p.b.profile, fmt.Sprintf("profile-%s-%s.txt", p.l.text, p.s.Name)), text, 0o644)
}
