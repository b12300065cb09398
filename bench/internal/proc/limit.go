//go:build linux

package proc

import (
	"fmt"
	"syscall"
)

// RaiseFiles lifts the limit of open files to want, for this process and all
// that it starts, and returns the limit that holds then. A limit above the hard
// one takes CAP_SYS_RESOURCE; without it the hard limit is what there is.
func RaiseFiles(want uint64) (int, error) {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	hard := lim.Max
	lim.Max = max(hard, want)
	lim.Cur = lim.Max
	// syscall.Setrlimit and not x/sys: package syscall otherwise gives the
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
