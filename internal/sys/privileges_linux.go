package sys

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrCgo is returned by what cannot be done in all threads of a program that is linked with cgo: it may have threads that the Go
// runtime does not know.
var ErrCgo = errors.New("the program is linked with cgo")

// allThreads makes a system call in every thread. A failure in the first thread is returned, and is the only one
// that can be handled: if threads differ, the runtime ends the process.
func allThreads(name string, trap, a1, a2, a3 uintptr) error {
	_, _, e := syscall.AllThreadsSyscall6(trap, a1, a2, a3, 0, 0, 0)
	switch e {
	case 0:
		return nil
	case syscall.ENOTSUP:
		if LinkedWithCgo() {
			return ErrCgo
		}
	}
	return os.NewSyscallError(name, e)
}

// LinkedWithCgo reports whether system calls cannot be made in all threads. It asks with one that changes nothing.
func LinkedWithCgo() bool {
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0)
	return e == syscall.ENOTSUP
}

// SetNoNewPrivs sets no_new_privs in all threads. With cgo it sets it in this thread only, which the caller has locked: FilterCalls
// then sets it in the others. prctl(2).
func SetNoNewPrivs() error {
	err := allThreads("prctl", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
	if err == ErrCgo {
		if unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != nil {
			return err
		}
		return ErrCgo
	}
	return err
}

// NoNewPrivs reports whether this thread has no_new_privs.
func NoNewPrivs() bool {
	n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return err == nil && n == 1
}

// KeepCapabilities sets whether permitted capabilities outlive the change from root to another user, in all threads. prctl(2),
// PR_SET_KEEPCAPS.
func KeepCapabilities(on bool) error {
	return allThreads("prctl", unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, uintptr(asInt(on)), 0)
}

// BecomeUser changes user, group and groups of all threads, with and without cgo. setgroups(2), setresgid(2), setresuid(2).
func BecomeUser(uid, gid int, groups []int) error {
	if err := syscall.Setgroups(groups); err != nil {
		return os.NewSyscallError("setgroups", err)
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return os.NewSyscallError("setresgid", err)
	}
	return os.NewSyscallError("setresuid", syscall.Setresuid(uid, uid, uid))
}

// Credentials returns the effective user and group, and whether real and saved ones are the same.
func Credentials() (uid, gid int, same bool) {
	r, e, s := unix.Getresuid()
	rg, eg, sg := unix.Getresgid()
	return e, eg, r == e && e == s && rg == eg && eg == sg
}

// CapabilitySets returns the effective, permitted and inheritable capabilities of this thread. capget(2).
func CapabilitySets() (effective, permitted, inheritable uint64, err error) {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return 0, 0, 0, os.NewSyscallError("capget", err)
	}
	join := func(a, b uint32) uint64 { return uint64(a) | uint64(b)<<32 }
	return join(d[0].Effective, d[1].Effective), join(d[0].Permitted, d[1].Permitted), join(d[0].Inheritable, d[1].Inheritable), nil
}

// BoundCapabilities takes all capabilities but those of keep out of the bounding set of all threads. It needs CAP_SETPCAP. prctl(2),
// PR_CAPBSET_DROP.
func BoundCapabilities(keep uint64) error {
	for c := uintptr(0); c < 64; c++ {
		in, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			break // the kernel has no more
		}
		if in == 0 || keep&(1<<c) != 0 {
			continue
		}
		if err := allThreads("prctl", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); err != nil {
			return err
		}
	}
	return nil
}

// capabilities is what LimitCapabilities gives to the kernel. The threads read it one after the other, so it is not on a stack, which moves.
var capabilities struct {
	h unix.CapUserHeader
	d [2]unix.CapUserData
}

// LimitCapabilities leaves all threads the permitted and effective capabilities of keep, and no inheritable or ambient one. It must not be
// called by two goroutines at once. capset(2), prctl(2).
func LimitCapabilities(keep uint64) error {
	if err := allThreads("prctl", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil && !errors.Is(err, EINVAL) {
		return err
	}
	c := &capabilities
	c.h = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	c.d = [2]unix.CapUserData{{Effective: uint32(keep), Permitted: uint32(keep)}, {Effective: uint32(keep >> 32), Permitted: uint32(keep >> 32)}}
	return allThreads("capset", unix.SYS_CAPSET, uintptr(unsafe.Pointer(&c.h)), uintptr(unsafe.Pointer(&c.d)), 0)
}
