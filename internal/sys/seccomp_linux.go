package sys

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FilterCalls installs a seccomp filter in all threads of the process, with and without cgo. no_new_privs must be set in
// this thread, and is then set in all. The error is ENOSYS if there is no list for this architecture, EINVAL if the kernel has no
// seccomp, and ESRCH if a thread has a filter of its own. seccomp(2), SECCOMP_FILTER_FLAG_TSYNC.
func FilterCalls(f CallFilter) error {
	p, err := assembleCalls(f, os.Getpid())
	if err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: unsafe.SliceData(p)}
	defer runtime.KeepAlive(p)
	// Kernels before 5.16 would also switch off a speculation of the processor, which only code in the same process can
	// exploit, and which makes everything slower. Before 5.7 a thread that cannot follow is returned as a number.
	const all, old, oldest = unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, unix.SECCOMP_FILTER_FLAG_TSYNC
	for _, flags := range []uintptr{all, old, oldest} {
		thread, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
		switch {
		case e == EINVAL:
			continue
		case e == 0 && thread != 0:
			e = unix.ESRCH
		case e == 0:
			return nil
		}
		return os.NewSyscallError("seccomp", e)
	}
	return os.NewSyscallError("seccomp", EINVAL)
}

// HasSeccomp reports whether the kernel has filters of system calls with all that FilterCalls needs. seccomp(2),
// SECCOMP_GET_ACTION_AVAIL, Linux 4.14.
func HasSeccomp() bool {
	action := uint32(unix.SECCOMP_RET_LOG)
	_, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	return e == 0
}
