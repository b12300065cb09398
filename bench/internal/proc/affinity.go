//go:build linux

package proc

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Pin binds the calling thread, and whatever it starts, to the CPUs in a list such as "0" or "0,1".
func Pin(cpus string) error {
	var set unix.CPUSet
	for s := range strings.SplitSeq(cpus, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return fmt.Errorf("CPU list %q: want numbers with commas between them, such as 0,1", cpus)
		}
		set.Set(n)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to the CPUs %s: %w", cpus, err)
	}
	return nil
}

// Count returns the number of CPUs in a list; an empty list means all.
func Count(cpus string) int {
	if cpus == "" {
		return runtime.NumCPU()
	}
	return strings.Count(cpus, ",") + 1
}

// Idle returns the total idle time, since the machine started, of the CPUs in a list, from
// /proc/stat: fields 4 and 5 of a cpuN line, idle and iowait, in ticks of 10 ms (proc_stat(5)). It
// does not include time that a hypervisor took away.
func Idle(cpus string) (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	wanted := strings.Split(cpus, ",")
	var ticks int64
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		n, ok := strings.CutPrefix(line, "cpu")
		n, _, _ = strings.Cut(n, " ")
		if !ok || n == "" || len(f) < 6 || cpus != "" && !slices.Contains(wanted, n) {
			continue
		}
		for _, s := range f[4:6] {
			v, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/stat: %w", err)
			}
			ticks += v
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}
