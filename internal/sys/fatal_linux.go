package sys

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is a struct sigaction of the kernel's, which is shorter on all architectures, and begins with the handler. All zero, it is the default.
type sigaction [8]uintptr

const ignored = 1 // SIG_IGN, in place of a handler

// makeFatal makes signals end this process at once, as if it had no handlers. A Go program ends by them in a handler otherwise, on any thread, and
// one that executes another program meanwhile loses such a thread with its signal. It waits until no thread is in a handler, for
// handlersMost at most. undo puts the handlers back. rt_sigaction(2).
func makeFatal(signals ...syscall.Signal) (undo func()) {
	old := make([]sigaction, len(signals))
	for i, s := range signals {
		if action(s, nil, &old[i]); old[i][0] != ignored {
			action(s, new(sigaction), nil)
		}
	}
	for end := time.Now().Add(handlersMost); inHandler(signals) && time.Now().Before(end); {
		time.Sleep(100 * time.Microsecond)
	}
	return func() {
		for i, s := range signals {
			action(s, &old[i], nil)
		}
	}
}

const handlersMost = time.Second

func action(s syscall.Signal, next, old *sigaction) {
	const setSize = 8 // of signals, but on MIPS, where this does nothing
	syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(old)), setSize, 0, 0)
}

// inHandler reports whether another thread of this process has one of the signals blocked, as the runtime's handlers have. proc_pid_status(5), SigBlk.
func inHandler(signals []syscall.Signal) bool {
	threads, _ := os.ReadDir("/proc/self/task")
	own := strconv.Itoa(unix.Gettid())
	for _, t := range threads {
		status, _ := os.ReadFile("/proc/self/task/" + t.Name() + "/status")
		_, rest, found := bytes.Cut(status, []byte("SigBlk:\t"))
		if t.Name() == own || !found || len(rest) < 16 {
			continue
		}
		blocked, _ := strconv.ParseUint(string(rest[:16]), 16, 64)
		for _, s := range signals {
			if blocked>>(s-1)&1 != 0 {
				return true
			}
		}
	}
	return false
}
