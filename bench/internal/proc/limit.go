//go:build linux

package proc

import (
	"fmt"
	"syscall"
)

// RaiseFiles raises the limit on open files to want, for this process and all that it starts, and
// returns the new limit. A limit above the hard limit requires CAP_SYS_RESOURCE; without it,
// RaiseFiles sets the hard limit.
func RaiseFiles(want uint64) (int, error) {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	hard := lim.Max
	lim.Max = max(hard, want)
	lim.Cur = lim.Max
	// This uses syscall.Setrlimit instead of x/sys, because package syscall otherwise gives the
	// children the limit that this process was started with.
	err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim)
	if err == syscall.EPERM {
		lim.Max, lim.Cur = hard, hard
		err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim)
	}
	if err != nil {
		return 0, fmt.Errorf("raise the limit of open files to %d: %w", lim.Cur, err)
	}
	return int(lim.Cur), nil
}
