//go:build linux && (amd64 || arm64)

package sys

import "golang.org/x/sys/unix"

// CallsKnown reports whether this package has a list of calls for this architecture.
const CallsKnown = true

// goThread are the flags with which the Go runtime makes a thread (runtime, os_linux.go, cloneFlags), and libcThread those that a C
// library may add. Without CLONE_THREAD there would be a process.
const (
	goThread   = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD
	libcThread = unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID | unix.CLONE_DETACHED
)

// setID are the bits of a mode with which a program runs as its owner, or as the owner's group.
const setID = unix.S_ISUID | unix.S_ISGID

// CallFilter says how the list of calls depends on the policy.
type CallFilter struct {
	Log        bool // let everything pass, and log what would be refused
	Modes      bool // chmod
	Multipath  bool // sockets of multipath TCP
	Unix       bool // Unix sockets, other than pairs
	NoFastOpen bool // no connection begins with a send, which Landlock does not see
}

// hotCalls are called for each event or flow. They are compared first, for kernels that do not remember which calls are always allowed.
var hotCalls = []uint32{
	unix.SYS_SPLICE, unix.SYS_RECVFROM, unix.SYS_SENDTO, unix.SYS_RECVMMSG, unix.SYS_SENDMMSG, unix.SYS_EPOLL_PWAIT, unix.SYS_READ, unix.SYS_WRITE,
	unix.SYS_ACCEPT4, unix.SYS_CONNECT, unix.SYS_CLOSE, unix.SYS_EPOLL_CTL, unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKOPT, unix.SYS_SHUTDOWN, unix.SYS_FUTEX, unix.SYS_SOCKET,
}

// always are the calls that are allowed whatever their arguments are. They reach nothing that the process does not have, or
// are restricted by what else holds: Landlock for files, missing capabilities for the rest.
var always = []struct {
	nr  uint32
	why string
}{
	// Sockets and pipes.
	{unix.SYS_READ, "everything"},
	{unix.SYS_WRITE, "everything"},
	{unix.SYS_READV, "vectored reads"},
	{unix.SYS_WRITEV, "net.Buffers"},
	{unix.SYS_PREAD64, "files"},
	{unix.SYS_PWRITE64, "files"},
	{unix.SYS_CLOSE, "everything"},
	{unix.SYS_SPLICE, "the data path"},
	{unix.SYS_PIPE2, "the data path; the runtime's notifications"},
	{unix.SYS_RECVFROM, "the data path"},
	{unix.SYS_RECVMSG, "control messages; descriptors from the keeper"},
	{unix.SYS_RECVMMSG, "the data path"},
	{unix.SYS_ACCEPT4, "listeners"},
	{unix.SYS_CONNECT, "flows; Landlock restricts the ports"},
	{unix.SYS_BIND, "listeners, and sources of flows; Landlock restricts the ports"},
	{unix.SYS_LISTEN, "listeners"},
	{unix.SYS_SHUTDOWN, "half-closing"},
	{unix.SYS_SETSOCKOPT, "options of sockets"},
	{unix.SYS_GETSOCKOPT, "options of sockets, TCP_INFO"},
	{unix.SYS_GETSOCKNAME, "addresses"},
	{unix.SYS_GETPEERNAME, "addresses"},
	{unix.SYS_EPOLL_CREATE1, "loops, and the runtime's poller"},
	{unix.SYS_EPOLL_CTL, "loops, and the runtime's poller"},
	{unix.SYS_EPOLL_PWAIT, "loops, and the runtime's poller"},
	{unix.SYS_EPOLL_PWAIT2, "loops with timeouts below a millisecond"},
	{unix.SYS_PPOLL, "whether a socket is readable or writable now"},
	{unix.SYS_EVENTFD2, "mailboxes, and the runtime's poller"},
	{unix.SYS_SENDFILE, "net/http, and io.Copy from a file"},
	{unix.SYS_COPY_FILE_RANGE, "io.Copy from file to file"},

	// Files.
	{unix.SYS_NEWFSTATAT, "os.Stat"},
	{unix.SYS_FSTAT, "os.File"},
	{unix.SYS_STATX, "birth times; C libraries' stat"},
	{unix.SYS_STATFS, "free space of a disk"},
	{unix.SYS_FSTATFS, "free space of a disk"},
	{unix.SYS_LSEEK, "files"},
	{unix.SYS_GETDENTS64, "folders"},
	{unix.SYS_READLINKAT, "filepath.EvalSymlinks"},
	{unix.SYS_FACCESSAT, "the runtime, unix.Access"},
	{unix.SYS_FACCESSAT2, "unix.Access"},
	{unix.SYS_UNLINKAT, "Unix sockets, logs"},
	{unix.SYS_RENAMEAT, "files that are replaced at once"},
	{unix.SYS_RENAMEAT2, "files that are replaced at once"},
	{unix.SYS_FTRUNCATE, "logs; memory that is shared"},
	{unix.SYS_FALLOCATE, "giving back memory that is shared"},
	{unix.SYS_FSYNC, "files that must survive"},
	{unix.SYS_FDATASYNC, "files that must survive"},
	{unix.SYS_UMASK, "modes of sockets"},
	{unix.SYS_GETCWD, "paths"},
	{unix.SYS_DUP, "descriptors"},
	{unix.SYS_DUP3, "descriptors"},
	{unix.SYS_INOTIFY_INIT1, "watching configuration files"},
	{unix.SYS_INOTIFY_ADD_WATCH, "watching configuration files"},
	{unix.SYS_INOTIFY_RM_WATCH, "watching configuration files"},
	{unix.SYS_MEMFD_CREATE, "ledgers"},

	// Memory.
	{unix.SYS_MUNMAP, "the runtime; shared memory"},
	{unix.SYS_MADVISE, "the runtime's garbage collector"},
	{unix.SYS_MINCORE, "the runtime, trimming"},
	{unix.SYS_BRK, "C libraries"},
	{unix.SYS_MREMAP, "C libraries; it changes no protection"},
	{unix.SYS_MSYNC, "shared memory"},

	// Threads and signals.
	{unix.SYS_FUTEX, "the runtime"},
	{unix.SYS_SCHED_YIELD, "the runtime"},
	{unix.SYS_SCHED_GETAFFINITY, "the runtime counts processors, again and again since Go 1.25"},
	{unix.SYS_NANOSLEEP, "the runtime"},
	{unix.SYS_CLOCK_NANOSLEEP, "C libraries"},
	{unix.SYS_CLOCK_GETTIME, "where the vDSO cannot answer"},
	{unix.SYS_CLOCK_GETRES, "C libraries"},
	{unix.SYS_GETTIMEOFDAY, "where the vDSO cannot answer"},
	{unix.SYS_RT_SIGACTION, "the runtime"},
	{unix.SYS_RT_SIGPROCMASK, "the runtime"},
	{unix.SYS_RT_SIGRETURN, "the runtime's signal handlers"},
	{unix.SYS_SIGALTSTACK, "the runtime's threads"},
	{unix.SYS_SETITIMER, "CPU profiles"},
	{unix.SYS_TIMER_CREATE, "CPU profiles of threads"},
	{unix.SYS_TIMER_SETTIME, "CPU profiles of threads"},
	{unix.SYS_TIMER_DELETE, "CPU profiles of threads"},
	{unix.SYS_RESTART_SYSCALL, "the kernel continues a call after a stop"},
	{unix.SYS_MEMBARRIER, "race detectors, C libraries"},
	{unix.SYS_RSEQ, "C libraries' threads"},
	{unix.SYS_SET_ROBUST_LIST, "C libraries' threads"},
	{unix.SYS_SET_TID_ADDRESS, "C libraries' threads"},
	{unix.SYS_EXIT, "the end of a thread"},
	{unix.SYS_EXIT_GROUP, "the end of the process"},

	// What the process is.
	{unix.SYS_GETPID, "names of things"},
	{unix.SYS_GETPPID, "whether the keeper is there"},
	{unix.SYS_GETTID, "the runtime"},
	{unix.SYS_GETUID, "os.Getuid"},
	{unix.SYS_GETEUID, "os.Geteuid"},
	{unix.SYS_GETGID, "os.Getgid"},
	{unix.SYS_GETEGID, "os.Getegid"},
	{unix.SYS_GETGROUPS, "os.Getgroups"},
	{unix.SYS_GETRUSAGE, "CPU time"},
	{unix.SYS_GETRLIMIT, "limits"},
	{unix.SYS_UNAME, "the kernel's version, the host's name"},
	{unix.SYS_SYSINFO, "memory of the machine"},
	{unix.SYS_GETRANDOM, "crypto/rand, maps"},
	{unix.SYS_CAPGET, "which capabilities are left"},
}

// ifArguments are the calls that are allowed with some arguments.
func ifArguments(f CallFilter, pid uint32) []listed {
	streams := []uint32{0, unix.IPPROTO_TCP}
	if f.Multipath {
		streams = append(streams, unix.IPPROTO_MPTCP)
	}
	const kind = ^uint32(unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK)
	sockets := rule{
		{argIs(0, unix.AF_INET, unix.AF_INET6), bits32(1, kind, unix.SOCK_STREAM), argIs(2, streams...)},
		{argIs(0, unix.AF_INET, unix.AF_INET6), bits32(1, kind, unix.SOCK_DGRAM), argIs(2, 0, unix.IPPROTO_UDP)},
		{argIs(0, unix.AF_NETLINK), bits32(1, kind, unix.SOCK_RAW, unix.SOCK_DGRAM), argIs(2, unix.NETLINK_ROUTE)},
	}
	if f.Unix {
		sockets = append(sockets, []condition{argIs(0, unix.AF_UNIX), bits32(1, kind, unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET), argIs(2, 0)})
	}
	calls := []listed{
		// Sockets of streams and datagrams: no raw sockets, no packets, no netlink but for the routing tables that package net reads,
		// and no protocol that Landlock does not know.
		{unix.SYS_SOCKET, sockets},
		// A pair of datagram sockets could be connected elsewhere.
		{unix.SYS_SOCKETPAIR, rule{{argIs(0, unix.AF_UNIX), bits32(1, kind, unix.SOCK_STREAM, unix.SOCK_SEQPACKET), argIs(2, 0)}}},
		// Threads, and no processes or namespaces.
		{unix.SYS_CLONE, rule{{bits32(0, ^uint32(libcThread), goThread)}}},
		// Files, of which Landlock restricts which, and their modes on an open file. A worker that is root's, without a capability, makes none
		// that gives root to whoever runs it.
		{unix.SYS_OPENAT, rule{{bits32(3, setID, 0)}}},
		{unix.SYS_FCHMOD, rule{{bits32(1, setID, 0)}}},
		{unix.SYS_MKDIRAT, rule{{bits32(2, setID, 0)}}},
		// Memory never becomes code.
		{unix.SYS_MMAP, rule{{bits32(2, unix.PROT_EXEC, 0)}}},
		{unix.SYS_MPROTECT, rule{{bits32(2, unix.PROT_EXEC, 0)}}},
		// Signals to itself: preemption of goroutines, os/signal, crashes.
		{unix.SYS_KILL, rule{{argIs(0, pid)}}},
		{unix.SYS_TGKILL, rule{{argIs(0, pid)}}},
		// Limits are read, not set.
		{unix.SYS_PRLIMIT64, rule{{argIs(0, 0, pid), null(2)}}},
		{unix.SYS_FCNTL, rule{{argIs(1, unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL,
			unix.F_GETPIPE_SZ, unix.F_SETPIPE_SZ, unix.F_ADD_SEALS, unix.F_GET_SEALS)}}},
		{unix.SYS_IOCTL, rule{{argIs(1, unix.TIOCINQ, unix.TIOCOUTQ, unix.SIOCATMARK, unix.TIOCGWINSZ, unix.TCGETS)}}},
		{unix.SYS_PRCTL, rule{{argIs(0, unix.PR_SET_VMA, unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_GET_NO_NEW_PRIVS, unix.PR_CAPBSET_READ)}}},
	}
	if f.Modes {
		calls = append(calls, listed{unix.SYS_FCHMODAT, rule{{bits32(2, setID, 0)}}}, listed{unix.SYS_FCHMODAT2, rule{{bits32(2, setID, 0)}}})
	}
	sends := []struct {
		nr    uint32
		flags int
	}{{unix.SYS_SENDTO, 3}, {unix.SYS_SENDMSG, 2}, {unix.SYS_SENDMMSG, 3}}
	for _, s := range sends {
		var r rule
		if f.NoFastOpen {
			r = rule{{bits32(s.flags, unix.MSG_FASTOPEN, 0)}}
		}
		calls = append(calls, listed{s.nr, r})
	}
	return calls
}

// absentCalls are answered as by a kernel that does not have them: C libraries and package os have another way.
var absentCalls = []uint32{unix.SYS_CLONE3, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL}

// newerCalls is above the calls that were known when the list was made.
const newerCalls = 480

// assembleCalls returns the program for a process.
func assembleCalls(f CallFilter, pid int) ([]unix.SockFilter, error) {
	return assemble(callFilter(f, pid))
}

// callFilter returns the filter for a process.
func callFilter(f CallFilter, pid int) *filter {
	to := &filter{arch: auditArch, tooHigh: otherABI, newer: newerCalls, hot: hotCalls, absent: absentCalls,
		deny: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM), missing: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS), foreign: unix.SECCOMP_RET_KILL_PROCESS,
		calls: ifArguments(f, uint32(pid))}
	if f.Log {
		to.deny, to.missing, to.foreign = unix.SECCOMP_RET_LOG, unix.SECCOMP_RET_LOG, unix.SECCOMP_RET_LOG
	}
	for _, c := range always {
		to.calls = append(to.calls, listed{c.nr, nil})
	}
	to.calls = append(to.calls, ofArch...)
	return to
}
