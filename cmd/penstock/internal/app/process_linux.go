package app

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// raiseFdLimit raises the limit on open descriptors as far as this process may,
// and returns it: to fs.nr_open with CAP_SYS_RESOURCE, to the hard limit without
// (getrlimit(2)).
func raiseFdLimit() (uint64, error) {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return 0, os.NewSyscallError("getrlimit", err)
	}
	if text, err := os.ReadFile("/proc/sys/fs/nr_open"); err == nil {
		most, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
		all := syscall.Rlimit{Cur: most, Max: most}
		if err == nil && most > lim.Max && syscall.Setrlimit(syscall.RLIMIT_NOFILE, &all) == nil {
			return most, nil
		}
	}
	lim.Cur = lim.Max
	return uint64(lim.Cur), os.NewSyscallError("setrlimit", syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim))
}

// maxFDs is the limit on open descriptors; 0: unknown.
func maxFDs() int64 {
	var lim syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim) != nil {
		return 0
	}
	return int64(lim.Cur)
}

// cpuTime is the user and system time of the process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
