package testattack

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

type errno = syscall.Errno

// attempt is one of them, with the errors that a sandbox answers with.
type attempt struct {
	name string
	want []errno
	do   func(t Target) errno
}

// Run makes all attempts on the calling thread.
func Run(t Target) (results []Result) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, a := range slices.Concat(files, processes, sockets, memory, privileges, ofArch) {
		e := a.do(t)
		results = append(results, Result{Name: a.name, Errno: int(e), Text: e.Error(), Refused: slices.Contains(a.want, e)})
	}
	return results
}

func refuse(name string, do func(t Target) errno) attempt {
	return attempt{name, []errno{unix.EPERM}, do}
}

// call makes a system call that must be refused before its arguments are looked at.
func call(name string, nr uintptr, args ...uintptr) attempt {
	return refuse(name, func(Target) errno {
		var a [6]uintptr
		copy(a[:], args)
		_, _, e := syscall.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		return e
	})
}

func raw(nr, a1, a2, a3 uintptr) errno {
	_, _, e := syscall.RawSyscall(nr, a1, a2, a3)
	return e
}

const bad = ^uintptr(0)

func code(err error) errno {
	if e, ok := err.(errno); ok {
		return e
	}
	if err != nil {
		return unix.EINVAL
	}
	return 0
}

// open opens a file, and closes it again.
func open(path string, flags int) errno {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err == nil {
		unix.Close(fd)
	}
	return code(err)
}

// opens is an attempt to open a file, which Landlock answers.
func opens(name string, flags int, path func(t Target) string) attempt {
	return attempt{name, []errno{unix.EACCES}, func(t Target) errno { return open(path(t), flags) }}
}

func at(path string) func(Target) string { return func(Target) string { return path } }

var files = []attempt{
	refuse("a program that runs as its owner", func(Target) errno {
		_, err := unix.Openat(unix.AT_FDCWD, "/nonexistent/program", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, unix.S_ISUID|0o755)
		return code(err)
	}),
	refuse("an open file that becomes one", func(Target) errno {
		_, _, e := syscall.Syscall(unix.SYS_FCHMOD, bad, unix.S_ISUID|0o755, 0)
		return e
	}),
	refuse("a program that runs as its group", func(Target) errno {
		_, _, e := syscall.Syscall(unix.SYS_FCHMOD, bad, unix.S_ISGID|0o755, 0)
		return e
	}),
	refuse("a folder that gives its group", func(Target) errno {
		return code(unix.Mkdirat(unix.AT_FDCWD, "/nonexistent/folder", unix.S_ISGID|0o755))
	}),
	opens("open /etc/shadow", unix.O_RDONLY, at("/etc/shadow")),
	opens("open a file", unix.O_RDONLY, func(t Target) string { return t.File }),
	opens("open a file to write", unix.O_WRONLY, func(t Target) string { return t.File }),
	opens("truncate a file while opening it", unix.O_WRONLY|unix.O_TRUNC, func(t Target) string { return t.File }),
	opens("open a folder", unix.O_RDONLY|unix.O_DIRECTORY, func(t Target) string { return t.Folder }),
	opens("open /", unix.O_RDONLY|unix.O_DIRECTORY, at("/")),
	opens("open a file by /proc/self/root", unix.O_RDONLY, func(t Target) string { return "/proc/self/root" + t.File }),
	opens("open a file by ..", unix.O_RDONLY, func(t Target) string { return "/proc/self/../.." + t.File }),
	opens("open the memory of another process", unix.O_RDWR, func(t Target) string { return "/proc/" + strconv.Itoa(t.PID) + "/mem" }),
	opens("read the environment of another process", unix.O_RDONLY, func(t Target) string { return "/proc/" + strconv.Itoa(t.PID) + "/environ" }),
	opens("read the memory map of another process", unix.O_RDONLY, func(t Target) string { return "/proc/" + strconv.Itoa(t.PID) + "/maps" }),
	opens("open a descriptor of another process", unix.O_RDONLY, func(t Target) string { return "/proc/" + strconv.Itoa(t.PID) + "/fd/0" }),
	opens("open / of another process", unix.O_RDONLY|unix.O_DIRECTORY, func(t Target) string { return "/proc/" + strconv.Itoa(t.PID) + "/root/" }),
	opens("open its own memory", unix.O_RDWR, at("/proc/self/mem")),
	opens("open a device", unix.O_RDWR, at("/dev/full")),
	opens("open a setting of the kernel to write", unix.O_WRONLY, at("/proc/sys/kernel/core_pattern")),
	{"make a file", []errno{unix.EACCES}, func(t Target) errno {
		path := t.Folder + "/made-" + strconv.Itoa(unix.Gettid())
		e := open(path, unix.O_CREAT|unix.O_WRONLY)
		if e == 0 {
			unix.Unlink(path)
		}
		return e
	}},
	{"make a folder", []errno{unix.EACCES}, func(t Target) errno {
		path := t.Folder + "/made-" + strconv.Itoa(unix.Gettid())
		err := unix.Mkdir(path, 0o700)
		if err == nil {
			unix.Rmdir(path)
		}
		return code(err)
	}},
	{"remove a file", []errno{unix.EACCES, unix.EPERM, unix.EROFS}, func(t Target) errno {
		path := t.Folder + "/victim-" + strconv.Itoa(unix.Gettid())
		if open(path, unix.O_CREAT|unix.O_WRONLY) != 0 {
			path = t.File
		}
		return code(unix.Unlink(path))
	}},
	{"rename a file", []errno{unix.EACCES, unix.EXDEV}, func(t Target) errno {
		err := unix.Rename(t.File, t.File+".renamed")
		if err == nil {
			unix.Rename(t.File+".renamed", t.File)
		}
		return code(err)
	}},
	{"bind a Unix socket", []errno{unix.EACCES, unix.EPERM}, func(t Target) errno {
		path := t.Folder + "/socket-" + strconv.Itoa(unix.Gettid())
		return withSocket(unix.AF_UNIX, unix.SOCK_STREAM, 0, func(fd int) error {
			err := unix.Bind(fd, &unix.SockaddrUnix{Name: path})
			if err == nil {
				unix.Unlink(path)
			}
			return err
		})
	}},
	refuse("chmod", func(t Target) errno { return code(unix.Chmod(t.File, 0o666)) }),
	refuse("chown", func(t Target) errno { return code(unix.Lchown(t.File, -1, -1)) }),
	refuse("set times", func(t Target) errno { return code(unix.UtimesNanoAt(unix.AT_FDCWD, t.File, nil, 0)) }),
	refuse("set an attribute", func(t Target) errno { return code(unix.Setxattr(t.File, "user.x", []byte("x"), 0)) }),
	refuse("truncate by path", func(t Target) errno { return code(unix.Truncate(t.File, 0)) }),
	refuse("link", func(t Target) errno {
		err := unix.Link(t.File, t.File+".link")
		if err == nil {
			unix.Unlink(t.File + ".link")
		}
		return code(err)
	}),
	refuse("symlink", func(t Target) errno {
		err := unix.Symlink(t.File, t.File+".symlink")
		if err == nil {
			unix.Unlink(t.File + ".symlink")
		}
		return code(err)
	}),
	refuse("make a device", func(t Target) errno {
		path := t.Folder + "/device-" + strconv.Itoa(unix.Gettid())
		err := unix.Mknod(path, unix.S_IFCHR|0o600, 1<<8|3)
		if err == nil {
			unix.Unlink(path)
		}
		return code(err)
	}),
	call("change the folder", unix.SYS_CHDIR, bad),
	call("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, bad, bad, 0),
	call("name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, bad, bad, bad, bad, 0),
	call("mount", unix.SYS_MOUNT, bad, bad, bad, 0, 0),
	call("umount2", unix.SYS_UMOUNT2, bad, 0),
	call("pivot_root", unix.SYS_PIVOT_ROOT, bad, bad),
	call("chroot", unix.SYS_CHROOT, bad),
	call("fsopen", unix.SYS_FSOPEN, bad, 0),
	call("open_tree", unix.SYS_OPEN_TREE, bad, bad, 0),
	call("move_mount", unix.SYS_MOVE_MOUNT, bad, bad, bad, bad, bad),
	call("mount_setattr", unix.SYS_MOUNT_SETATTR, bad, bad, 0, bad, 64),
	call("fanotify_init", unix.SYS_FANOTIFY_INIT, bad, bad),
	call("quotactl", unix.SYS_QUOTACTL, bad, bad, 0, 0),
	call("swapon", unix.SYS_SWAPON, bad, 0),
	call("acct", unix.SYS_ACCT, bad),
	call("openat2", unix.SYS_OPENAT2, bad, bad, bad, 24),
}

var processes = []attempt{
	refuse("execve", func(Target) errno {
		return code(syscall.Exec("/nonexistent/program", []string{"program"}, nil))
	}),
	call("execveat", unix.SYS_EXECVEAT, bad, bad, bad, bad, unix.AT_EMPTY_PATH),
	// A kernel that would make a process finds that the flags contradict each other.
	refuse("fork", func(Target) errno { return clone(uintptr(unix.SIGCHLD) | unix.CLONE_SIGHAND) }),
	refuse("clone in a namespace of users", func(Target) errno { return clone(uintptr(unix.SIGCHLD) | unix.CLONE_NEWUSER | unix.CLONE_FS) }),
	refuse("a thread with other flags", func(Target) errno { return clone(unix.CLONE_VM | unix.CLONE_THREAD) }),
	{"clone3", []errno{unix.ENOSYS}, func(Target) errno {
		_, _, e := syscall.Syscall(unix.SYS_CLONE3, bad, 88, 0)
		return e
	}},
	call("unshare", unix.SYS_UNSHARE, bad),
	call("setns", unix.SYS_SETNS, bad, 0),
	refuse("ptrace", func(t Target) errno {
		_, _, e := syscall.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(t.PID), 0, 0, 0, 0)
		if e == 0 { // only a tracee that has stopped can be let go; otherwise the next thread finds it traced
			syscall.Syscall6(unix.SYS_PTRACE, unix.PTRACE_INTERRUPT, uintptr(t.PID), 0, 0, 0, 0)
			unix.Wait4(t.PID, nil, unix.WALL, nil)
			syscall.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(t.PID), 0, 0, 0, 0)
		}
		return e
	}),
	refuse("be traced", func(Target) errno {
		_, _, e := syscall.Syscall6(unix.SYS_PTRACE, 77777, 0, 0, 0, 0, 0)
		return e
	}),
	refuse("process_vm_readv", func(t Target) errno {
		_, _, e := syscall.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(t.PID), 0, 0, 0, 0, 0)
		return e
	}),
	refuse("process_vm_writev", func(t Target) errno {
		_, _, e := syscall.Syscall6(unix.SYS_PROCESS_VM_WRITEV, uintptr(t.PID), 0, 0, 0, 0, 0)
		return e
	}),
	call("process_madvise", unix.SYS_PROCESS_MADVISE, bad, bad, 0, 0, 0),
	refuse("kill another process", func(t Target) errno { return code(unix.Kill(t.PID, 0)) }),
	refuse("kill the parent", func(Target) errno { return code(unix.Kill(unix.Getppid(), 0)) }),
	refuse("kill the group", func(Target) errno { return code(unix.Kill(0, 0)) }),
	refuse("kill all", func(Target) errno { return code(unix.Kill(-1, 0)) }),
	refuse("tgkill", func(t Target) errno { return code(unix.Tgkill(t.PID, t.PID, 0)) }),
	call("tkill", unix.SYS_TKILL, 1, 0),
	call("rt_sigqueueinfo", unix.SYS_RT_SIGQUEUEINFO, 1, 0, bad),
	call("rt_tgsigqueueinfo", unix.SYS_RT_TGSIGQUEUEINFO, 1, 1, 0, bad),
	{"pidfd_open", []errno{unix.ENOSYS}, func(t Target) errno {
		fd, err := unix.PidfdOpen(t.PID, 0)
		if err == nil {
			unix.Close(fd)
		}
		return code(err)
	}},
	{"pidfd_send_signal", []errno{unix.ENOSYS}, func(Target) errno { return code(unix.PidfdSendSignal(-1, 0, nil, 0)) }},
	call("pidfd_getfd", unix.SYS_PIDFD_GETFD, bad, 0, 0),
	refuse("owner of a descriptor", func(t Target) errno {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETOWN, t.PID)
			return err
		})
	}),
	refuse("owner of a socket", func(t Target) errno {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error { return unix.IoctlSetPointerInt(fd, unix.SIOCSPGRP, t.PID) })
	}),
	refuse("limits of another process", func(t Target) errno {
		return code(unix.Prlimit(t.PID, unix.RLIMIT_NOFILE, nil, &unix.Rlimit{}))
	}),
	refuse("setrlimit", func(Target) errno {
		var r unix.Rlimit
		unix.Getrlimit(unix.RLIMIT_NOFILE, &r)
		return code(unix.Prlimit(0, unix.RLIMIT_NOFILE, &r, nil))
	}),
	refuse("setpriority", func(Target) errno { return code(unix.Setpriority(unix.PRIO_PROCESS, 0, 0)) }),
	call("sched_setscheduler", unix.SYS_SCHED_SETSCHEDULER, 0, bad, bad),
	call("ioprio_set", unix.SYS_IOPRIO_SET, bad, 0, 0),
	refuse("kcmp", func(Target) errno {
		_, _, e := syscall.Syscall6(unix.SYS_KCMP, uintptr(unix.Getpid()), uintptr(unix.Getpid()), bad, 0, 0, 0)
		return e
	}),
}

// clone has flags that no kernel accepts.
func clone(flags uintptr) errno { return raw(unix.SYS_CLONE, flags, 0, 0) }

func withSocket(family, kind, proto int, f func(fd int) error) errno {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return code(err)
	}
	defer unix.Close(fd)
	return code(f(fd))
}

func socket(name string, family, kind, proto int) attempt {
	return refuse(name, func(Target) errno { return withSocket(family, kind, proto, func(int) error { return nil }) })
}

func local(port int) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
}

// connecting takes EINPROGRESS for success.
func connecting(err error) error {
	if err == unix.EINPROGRESS || err == unix.EAGAIN {
		return nil
	}
	return err
}

// connects is an attempt to connect to a port that the policy does not have.
func connects(name string, want errno, do func(fd int, t Target) error) attempt {
	return attempt{name, []errno{want}, func(t Target) errno {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error { return connecting(do(fd, t)) })
	}}
}

var sockets = []attempt{
	connects("connect to a port", unix.EACCES, func(fd int, t Target) error { return unix.Connect(fd, local(t.Port)) }),
	connects("connect later", unix.EACCES, func(fd int, t Target) error {
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1)
		return unix.Connect(fd, local(t.Port))
	}),
	{"connect over IPv6", []errno{unix.EACCES, unix.EAFNOSUPPORT}, func(t Target) errno {
		return withSocket(unix.AF_INET6, unix.SOCK_STREAM, 0, func(fd int) error {
			mapped := [16]byte{10: 255, 11: 255, 12: 127, 15: 1}
			return connecting(unix.Connect(fd, &unix.SockaddrInet6{Port: t.Port, Addr: mapped}))
		})
	}},
	connects("connect by sendto", unix.EPERM, func(fd int, t Target) error {
		return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL, local(t.Port))
	}),
	connects("connect by sendmsg", unix.EPERM, func(fd int, t Target) error {
		return unix.Sendmsg(fd, []byte("x"), nil, local(t.Port), unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL)
	}),
	connects("connect by sendmmsg", unix.EPERM, func(fd int, t Target) error {
		_, _, e := syscall.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), bad, 1, unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL, 0, 0)
		if e != 0 {
			return e
		}
		return nil
	}),
	{"connect with multipath TCP", []errno{unix.EPERM}, func(t Target) errno {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, func(fd int) error { return connecting(unix.Connect(fd, local(t.Port))) })
	}},
	{"bind a port", []errno{unix.EACCES}, func(Target) errno {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error { return unix.Bind(fd, local(0)) })
	}},
	{"bind a low port", []errno{unix.EACCES}, func(Target) errno {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error { return unix.Bind(fd, local(7)) })
	}},
	socket("a Unix socket", unix.AF_UNIX, unix.SOCK_STREAM, 0),
	refuse("a pair of datagram sockets", func(Target) errno {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			unix.Close(fds[0])
			unix.Close(fds[1])
		}
		return code(err)
	}),
	{"an abstract Unix socket", []errno{unix.EPERM}, func(t Target) errno {
		return withSocket(unix.AF_UNIX, unix.SOCK_STREAM, 0, func(fd int) error { return unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + t.Abstract}) })
	}},
	socket("a raw socket", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
	socket("a raw socket of IPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6),
	socket("a socket of pings", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP),
	socket("a packet socket", unix.AF_PACKET, unix.SOCK_RAW, 0),
	socket("netlink of the firewall", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER),
	socket("netlink of audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT),
	socket("a socket of ciphers", unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
	socket("a socket of virtual machines", unix.AF_VSOCK, unix.SOCK_STREAM, 0),
	socket("an XDP socket", unix.AF_XDP, unix.SOCK_RAW, 0),
	socket("a Bluetooth socket", unix.AF_BLUETOOTH, unix.SOCK_RAW, 0),
	socket("SCTP", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP),
	socket("SMC", unix.AF_INET, unix.SOCK_STREAM, 256),
	refuse("type into a terminal", func(Target) errno { return ioctl(0, unix.TIOCSTI) }),
	refuse("paste into a terminal", func(Target) errno { return ioctl(0, 0x541c /* TIOCLINUX */) }),
	refuse("a terminal of its own", func(Target) errno { return ioctl(0, unix.TIOCSCTTY) }),
	refuse("an ioctl of devices", func(Target) errno { return ioctl(0, unix.BLKRRPART) }),
}

func ioctl(fd int, request uint) errno {
	_, _, e := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), bad)
	return e
}

var memory = []attempt{
	refuse("memory that is code", func(Target) errno {
		b, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err == nil {
			unix.Munmap(b)
		}
		return code(err)
	}),
	refuse("memory that becomes code", func(Target) errno {
		b, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return 0
		}
		defer unix.Munmap(b)
		return code(unix.Mprotect(b, unix.PROT_READ|unix.PROT_EXEC))
	}),
	call("pkey_mprotect", unix.SYS_PKEY_MPROTECT, bad, 1, unix.PROT_EXEC, bad),
	call("remap_file_pages", unix.SYS_REMAP_FILE_PAGES, bad, 0, 0, 0, 0),
	call("shmget", unix.SYS_SHMGET, bad, 0, bad),
	call("userfaultfd", unix.SYS_USERFAULTFD, bad),
	call("vmsplice", unix.SYS_VMSPLICE, bad, 0, 0, 0),
	refuse("personality", func(Target) errno {
		_, _, e := syscall.Syscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0)
		return e
	}),
	call("io_uring_setup", unix.SYS_IO_URING_SETUP, 0, 0),
	call("io_uring_enter", unix.SYS_IO_URING_ENTER, bad),
	call("io_setup", unix.SYS_IO_SETUP, 0, bad),
}

var privileges = []attempt{
	refuse("become root", func(Target) errno {
		_, _, e := syscall.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0)
		return e
	}),
	refuse("become the group of root", func(Target) errno {
		_, _, e := syscall.RawSyscall(unix.SYS_SETRESGID, 0, 0, 0)
		return e
	}),
	refuse("setfsuid", func(Target) errno {
		_, _, e := syscall.RawSyscall(unix.SYS_SETFSUID, bad, 0, 0)
		if e == 0 { // it has no errors
			return 0
		}
		return e
	}),
	call("setgroups", unix.SYS_SETGROUPS, bad>>1, bad),
	call("capset", unix.SYS_CAPSET, bad, bad),
	refuse("ambient capabilities", func(Target) errno {
		return code(unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, unix.CAP_CHOWN, 0, 0))
	}),
	refuse("securebits", func(Target) errno { return code(unix.Prctl(unix.PR_SET_SECUREBITS, 0, 0, 0, 0)) }),
	refuse("be dumpable", func(Target) errno { return code(unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)) }),
	refuse("be traced by all", func(Target) errno { return code(unix.Prctl(unix.PR_SET_PTRACER, bad, 0, 0, 0)) }),
	refuse("a signal when the parent dies", func(Target) errno { return code(unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)) }),
	call("another filter", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, bad),
	call("another Landlock", unix.SYS_LANDLOCK_RESTRICT_SELF, bad, 0),
	call("keyctl", unix.SYS_KEYCTL, bad, 0, 0, 0, 0),
	call("add_key", unix.SYS_ADD_KEY, bad, bad, 0, 0, 0),
	call("request_key", unix.SYS_REQUEST_KEY, bad, bad, 0, 0),
	call("bpf", unix.SYS_BPF, bad, 0, 0),
	call("perf_event_open", unix.SYS_PERF_EVENT_OPEN, 0, bad, bad, bad, bad),
	call("init_module", unix.SYS_INIT_MODULE, bad, 0, bad),
	call("finit_module", unix.SYS_FINIT_MODULE, bad, bad, 0),
	call("delete_module", unix.SYS_DELETE_MODULE, bad, 0),
	call("kexec_load", unix.SYS_KEXEC_LOAD, 0, bad, bad, bad),
	call("reboot", unix.SYS_REBOOT, 0, 0, 0, 0),
	call("syslog", unix.SYS_SYSLOG, bad, 0, 0),
	call("sethostname", unix.SYS_SETHOSTNAME, bad, bad>>1),
	call("clock_settime", unix.SYS_CLOCK_SETTIME, 0, bad),
	call("adjtimex", unix.SYS_ADJTIMEX, bad),
	{"a call that is not known", []errno{unix.ENOSYS}, func(Target) errno {
		_, _, e := syscall.RawSyscall(4000, 0, 0, 0)
		return e
	}},
}
