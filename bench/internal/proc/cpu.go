//go:build linux

// Package proc observes other processes: their CPU time, their memory, their children. It starts and ends relays, of which it
// keeps a list, and sets up where a measurement runs: limits, CPUs, network namespaces.
package proc

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// cpuClockSched selects the scheduler's own clock of a process, the sum of the run time of all its
// threads, including those that have ended (include/linux/posix-timers.h, CPUCLOCK_SCHED;
// clock_getcpuclockid(3) makes the same id).
const cpuClockSched = 2

// CPU returns the user and system time of the processes so far, in nanoseconds.
//
// It is the figure that /proc/PID/stat rounds to ticks of 10 ms: on a kernel with tick accounting,
// fs/proc/array.c scales utime and stime so that their sum is this clock. Work that the kernel does
// in a soft interrupt counts for the process that happened to be running; on loopback that is the
// sender.
func CPU(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		var ts unix.Timespec
		if err := unix.ClockGettime(int32(^pid)<<3|cpuClockSched, &ts); err != nil {
			return 0, fmt.Errorf("read the CPU clock of process %d: %w", pid, err)
		}
		sum += time.Duration(ts.Nano())
	}
	return sum, nil
}
