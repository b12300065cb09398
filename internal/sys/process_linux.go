package sys

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ETOOMANYREFS means that too many descriptors are on their way. unix(7).
const ETOOMANYREFS = syscall.ETOOMANYREFS

// StartProcess starts a program with the given descriptors as 0, 1, 2 and so on, in a process group of its
// own, so that a terminal's Ctrl-C reaches it only through its parent. No signal is blocked in it. An
// empty dir is the directory of this process. It waits until the program has been loaded. fork(2), execve(2).
func StartProcess(path string, argv, env []string, dir string, files []int) (pid int, errno Errno) {
	attr := &syscall.ProcAttr{Dir: dir, Env: env, Sys: &syscall.SysProcAttr{Setpgid: true}}
	for _, fd := range files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	runtime.LockOSThread() // a child has the signal mask of the thread that makes it
	defer runtime.UnlockOSThread()
	old := mask(unix.SIG_UNBLOCK)
	pid, err := syscall.ForkExec(path, argv, attr)
	setMask(old)
	if err != nil {
		return 0, errnoOf(err)
	}
	return pid, 0
}

// StartProgram is [StartProcess] of the program that is open at a descriptor.
func StartProgram(program int, argv, env []string, dir string, files []int) (pid int, errno Errno) {
	// In the child, package syscall moves descriptors to their places, over what is there: to the numbers of files, and on the way to those right
	// above all of them, one for each and one for a pipe of its own (forkAndExecInChild1 of Go 1.26). The program is found after that.
	moved := len(files)
	for _, fd := range files {
		moved = max(moved, fd)
	}
	moved += len(files) + 3
	if program <= moved {
		if high, err := unix.FcntlInt(uintptr(program), unix.F_DUPFD_CLOEXEC, moved+1); err == nil { // otherwise there is no room above
			defer unix.Close(high)
			program = high
		}
	}
	return StartProcess("/proc/self/fd/"+strconv.Itoa(program), argv, env, dir, files)
}

// Execute replaces the program of this process. Descriptors without FD_CLOEXEC stay open. It returns only if
// it failed. SIGTERM and SIGINT, of which the caller wants to be told no more, end this process from here on. SIGUSR1 and SIGUSR2, which
// would end the new program before it has its handlers, are blocked in it until package os/signal is asked for them. The others are blocked until Go's runtime starts there. execve(2).
func Execute(path string, argv, env []string) Errno {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old := mask(unix.SIG_BLOCK)
	undo := func() {}
	if os.Getpid() != 1 { // for which the kernel discards signals without a handler
		undo = makeFatal(syscall.SIGTERM, syscall.SIGINT)
	}
	err := syscall.Exec(path, argv, env)
	undo()
	setMask(old)
	return errnoOf(err)
}

// mask blocks or unblocks the signals that a keeper handles, on this thread, and returns the mask before.
func mask(how int) (old unix.Sigset_t) {
	var set unix.Sigset_t
	bits := unsafe.Sizeof(set.Val[0]) * 8
	for _, s := range []uintptr{uintptr(unix.SIGHUP), uintptr(unix.SIGINT), uintptr(unix.SIGTERM), uintptr(unix.SIGUSR1), uintptr(unix.SIGUSR2)} {
		set.Val[(s-1)/bits] |= 1 << ((s - 1) % bits)
	}
	if unix.PthreadSigmask(how, &set, &old) != nil {
		return unix.Sigset_t{}
	}
	return old
}

func setMask(set unix.Sigset_t) { unix.PthreadSigmask(unix.SIG_SETMASK, &set, nil) }

// WaitExit waits until a child has ended, and leaves it to [Reap]. It returns ECHILD if there is no such
// child. waitid(2), WNOWAIT.
func WaitExit(pid int) Errno {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			return 0
		}
		if err != EINTR {
			return errnoOf(err)
		}
	}
}

// Reap removes a child that has ended, and returns its exit code, or the signal that ended it. ok is false
// if it has not ended, or is no child. wait4(2).
func Reap(pid int) (code, signal int, ok bool) {
	var ws unix.WaitStatus
	for {
		got, err := unix.Wait4(pid, &ws, unix.WNOHANG, nil)
		switch {
		case err == EINTR:
			continue
		case err != nil || got != pid:
			return 0, 0, false
		case ws.Signaled():
			return 0, int(ws.Signal()), true
		}
		return ws.ExitStatus(), 0, true
	}
}

// ReapOthers removes children that have ended, up to the first that is one of own. The first process of a
// container is made the parent of every orphan. waitid(2).
func ReapOthers(own func(pid int) bool) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		// struct siginfo: three ints, then a union aligned as a pointer, which begins with si_pid.
		pid := int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), (3*4+alignTo-1)&^(alignTo-1))))
		if err == EINTR {
			continue
		}
		if err != nil || pid == 0 || own(pid) {
			return
		}
		unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}

// Signal sends a signal to a process. The caller knows that the process was not reaped. kill(2).
func Signal(pid int, s syscall.Signal) Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_KILL, uintptr(pid), uintptr(s), 0)
	return e
}

// SetCloseOnExec sets or clears FD_CLOEXEC. fcntl(2), F_SETFD.
func SetCloseOnExec(fd int, on bool) Errno {
	flags := uintptr(0)
	if on {
		flags = unix.FD_CLOEXEC
	}
	_, _, e := syscall.RawSyscall(unix.SYS_FCNTL, uintptr(fd), unix.F_SETFD, flags)
	return e
}

// firstHigh is above the descriptors that a program gives its children.
const firstHigh = 128

// OpenProgram opens a file to be executed by its descriptor, close-on-exec. EACCES means that it is no
// program. open(2).
func OpenProgram(path string) (int, Errno) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, errnoOf(err)
	}
	defer Linux{}.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, errnoOf(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0 {
		return -1, unix.EACCES
	}
	// Preparing the descriptors of a child must not overwrite it.
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, min(firstHigh, DescriptorLimit()/2))
	if err != nil {
		return -1, errnoOf(err)
	}
	return high, 0
}

// MoveOutput makes the descriptors first and the one after it this process's standard output and standard error, to which it
// writes text. dup3(2).
func MoveOutput(first int, text string) {
	for i := range 2 {
		if unix.Dup3(first+i, 1+i, 0) == nil {
			Linux{}.Close(first + i)
		}
	}
	for len(text) > 0 {
		n, err := unix.Write(2, []byte(text))
		if err != nil && err != unix.EINTR {
			return
		}
		text = text[max(n, 0):]
	}
}

// CloseMayWait closes a descriptor when closing may block, as it does for a socket with SO_LINGER that has
// unsent data: only this thread waits then. close(2).
func CloseMayWait(fd int) { unix.Close(fd) }

// DescriptorLimit returns how many descriptors this process may have. getrlimit(2), RLIMIT_NOFILE.
func DescriptorLimit() int {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return 1024
	}
	return int(min(r.Cur, 1<<30))
}

// SetDescriptorLimit sets how many descriptors this process may have. Lowering it affects none that is open.
func SetDescriptorLimit(n int) Errno {
	var r unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r)
	if err == nil {
		r.Cur = uint64(n)
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &r)
	}
	if err != nil {
		return errnoOf(err)
	}
	return 0
}

// IsPair reports whether fd is a connected Unix socket of type SOCK_SEQPACKET. unix(7).
func IsPair(fd int) bool {
	domain, e1 := GetInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	typ, e2 := GetInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	listens, e3 := GetInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return e1 == 0 && e2 == 0 && e3 == 0 && domain == unix.AF_UNIX && typ == unix.SOCK_SEQPACKET && listens == 0
}

// Writable reports whether a send to fd would not wait. ppoll(2).
func Writable(fd int) bool {
	pfd := unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}
	var now unix.Timespec
	n, _, e := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&pfd)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return e == 0 && n > 0
}
