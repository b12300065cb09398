package sys

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func (Linux) Socket(family Family, mptcp bool) (int, Errno) {
	const stream = unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	if mptcp && family != Unix {
		fd, _, e := syscall.RawSyscall(unix.SYS_SOCKET, uintptr(family), stream, unix.IPPROTO_MPTCP)
		switch e {
		case 0:
			return int(fd), 0
		case unix.EPROTONOSUPPORT, unix.ENOPROTOOPT, unix.EINVAL:
			// The kernel has none, or net.mptcp.enabled is 0.
		default:
			return -1, e
		}
	}
	fd, _, e := syscall.RawSyscall(unix.SYS_SOCKET, uintptr(family), stream, 0)
	if e != 0 {
		return -1, e
	}
	return int(fd), 0
}

func (Linux) Connect(fd int, sa *Sockaddr) Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&sa.raw)), uintptr(sa.n))
	return e
}

func (Linux) Accept(fd int, sa *Sockaddr) (int, Errno) {
	sa.n = uint32(len(sa.raw))
	// accept4 has no MSG_DONTWAIT. An inherited listener's description is shared with the process
	// that bound it, which may make it blocking at any time. The runtime must know of the wait
	// then, so that it stops only this thread.
	nfd, _, e := syscall.Syscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&sa.raw)), uintptr(unsafe.Pointer(&sa.n)),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return -1, e
	}
	return int(nfd), 0
}

// Listen binds a non-blocking stream listener to sa. On TCP it sets SO_REUSEADDR, and SO_REUSEPORT
// if reusePort is set, so that several sockets share the port (socket(7)). A backlog of 0 means the
// kernel's maximum, net.core.somaxconn. options sets the options that accepted sockets inherit.
func Listen(k Kernel, sa *Sockaddr, reusePort, mptcp bool, backlog int, options func(fd int) error) (int, error) {
	fd, e := k.Socket(sa.Family(), mptcp)
	if e != 0 {
		return -1, e
	}
	fail := func(err error) (int, error) {
		k.Close(fd)
		return -1, err
	}
	if sa.Family() != Unix {
		if e := k.SetOption(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); e != 0 {
			return fail(e)
		}
		if reusePort {
			if e := k.SetOption(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); e != 0 {
				return fail(e)
			}
		}
	}
	if err := options(fd); err != nil {
		return fail(err)
	}
	if e := k.Bind(fd, sa); e != 0 {
		return fail(e)
	}
	if e := k.Listen(fd, backlog); e != 0 {
		return fail(e)
	}
	return fd, nil
}

// SetOwner makes a socket that of a user, or of this process's if uid is 0. The kernel has only sockets of one user share a port
// (SO_REUSEPORT), and the first error says nothing else than that they cannot. fchown(2); sockfs_setattr in net/socket.c, Linux 4.10
// (86741ec25462).
func SetOwner(fd, uid int) {
	if uid == 0 {
		uid = unix.Geteuid()
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && int(st.Uid) != uid {
		_ = unix.Fchown(fd, uid, -1)
	}
}

// LocalAddr fills sa with the address that fd is bound to.
func LocalAddr(fd int, sa *Sockaddr) Errno {
	sa.n = uint32(len(sa.raw))
	_, _, e := syscall.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&sa.raw)), uintptr(unsafe.Pointer(&sa.n)))
	return e
}

// originalDst is SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST of linux/netfilter_ipv4.h and linux/netfilter_ipv6/ip6_tables.h.
const originalDst = 80

// OriginalAddr fills sa with the address that the peer of an accepted TCP socket has connected to, before a rule of netfilter (REDIRECT, DNAT)
// brought it here. ENOENT means that netfilter does not know the connection, ENOPROTOOPT that it follows none. On an IPv6 socket it finds no
// IPv4 connections. net/netfilter/nf_conntrack_proto.c, getorigdst.
func OriginalAddr(fd int, sa *Sockaddr) Errno {
	if e := LocalAddr(fd, sa); e != 0 {
		return e
	}
	level := unix.SOL_IP
	if sa.Family() == IPv6 {
		level = unix.SOL_IPV6
	}
	n := uint32(len(sa.raw))
	_, _, e := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), originalDst, uintptr(unsafe.Pointer(&sa.raw)), uintptr(unsafe.Pointer(&n)), 0)
	if e == 0 {
		sa.n = n
	}
	return e
}

// PeerAddr fills sa with the address that fd is connected to.
func PeerAddr(fd int, sa *Sockaddr) Errno {
	sa.n = uint32(len(sa.raw))
	_, _, e := syscall.RawSyscall(unix.SYS_GETPEERNAME, uintptr(fd), uintptr(unsafe.Pointer(&sa.raw)), uintptr(unsafe.Pointer(&sa.n)))
	return e
}

// SocketKind returns a socket's family, its type (SOCK_STREAM …) and whether it listens. It returns
// an error if fd is not a socket.
func SocketKind(k Sockets, fd int) (family Family, typ int, listening bool, errno Errno) {
	f, e := k.Option(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if e != 0 {
		return 0, 0, false, e
	}
	t, e := k.Option(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if e != 0 {
		return 0, 0, false, e
	}
	l, e := k.Option(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return Family(f), t, l != 0, e
}

// SameSocket implements [Kernel]. Linux 4.12.
func (Linux) SameSocket(a, b int) bool {
	x, err := unix.GetsockoptUint64(a, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		return false
	}
	y, err := unix.GetsockoptUint64(b, unix.SOL_SOCKET, unix.SO_COOKIE)
	return err == nil && x == y
}

// SockStream is the type of a stream socket, as returned by SocketKind.
const SockStream = unix.SOCK_STREAM

// SockError returns and clears the pending error of a socket (SO_ERROR); 0 means none.
func SockError(k Sockets, fd int) Errno {
	v, e := k.Option(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if e != 0 {
		return e
	}
	return Errno(v)
}

// Readable reports whether a receive from fd would return something now. It is false if Poll fails. ppoll(2).
func Readable(k Sockets, fd int) bool {
	return k.Poll(fd, unix.POLLIN)&(unix.POLLIN|unix.POLLNVAL) == unix.POLLIN
}

// SetNoDelay switches Nagle's algorithm off, or on again. tcp(7).
func SetNoDelay(k Sockets, fd int, on bool) Errno {
	return k.SetOption(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, asInt(on))
}

// SetUserTimeout limits how long sent data may stay unacknowledged. tcp(7), TCP_USER_TIMEOUT,
// milliseconds.
func SetUserTimeout(k Sockets, fd int, d time.Duration) Errno {
	return k.SetOption(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
}

// SetKeepAlive switches keepalive probes on: after idle without traffic, every interval, count of
// them. Zero values keep the kernel's setting; an idle time of 0 switches probes off. tcp(7).
func SetKeepAlive(k Sockets, fd int, idle, interval time.Duration, count int) Errno {
	if e := k.SetOption(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, asInt(idle > 0)); e != 0 || idle <= 0 {
		return e
	}
	seconds := func(d time.Duration) int { return max(1, int(d/time.Second)) }
	if e := k.SetOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(idle)); e != 0 {
		return e
	}
	if interval > 0 {
		if e := k.SetOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(interval)); e != 0 {
			return e
		}
	}
	if count > 0 {
		return k.SetOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, count)
	}
	return 0
}

// SetBuffers sets the sizes of the socket's buffers in bytes; 0 leaves a buffer to the kernel's
// autotuning, which is usually better. socket(7).
func SetBuffers(k Sockets, fd, recv, send int) Errno {
	if recv > 0 {
		if e := k.SetOption(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, recv); e != 0 {
			return e
		}
	}
	if send > 0 {
		return k.SetOption(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, send)
	}
	return 0
}

// EnlargeSendBuffer gives a socket four times the kernel's usual send buffer, or
// as much as net.core.wmem_max allows, unless its buffer has been set already.
// The usual wmem_max allows twice as much, and four times since Linux 6.18:
// SO_SNDBUF grants double what it is given. socket(7).
func EnlargeSendBuffer(k Sockets, fd int) {
	const usual = 212992 // SK_WMEM_DEFAULT, net/core/sock.c
	if n, e := k.Option(fd, unix.SOL_SOCKET, unix.SO_SNDBUF); e == 0 && n == usual {
		k.SetOption(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 2*usual)
	}
}

// CloseResets implements [Kernel].
func (Linux) CloseResets(fd int, on bool) Errno {
	return setLinger(fd, unix.Linger{Onoff: int32(asInt(on))})
}

// LingerResets reports whether [Kernel.CloseResets] was switched on.
func LingerResets(fd int) bool {
	l, err := unix.GetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER)
	return err == nil && l.Onoff != 0 && l.Linger == 0
}

func setLinger(fd int, l unix.Linger) Errno {
	_, _, e := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER, uintptr(unsafe.Pointer(&l)), unix.SizeofLinger, 0)
	return e
}

// SetInt sets an integer socket option. setsockopt(2).
func SetInt(fd, level, opt, value int) Errno {
	v := int32(value)
	_, _, e := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt), uintptr(unsafe.Pointer(&v)), 4, 0)
	return e
}

// GetInt reads an integer socket option. getsockopt(2).
func GetInt(fd, level, opt int) (int, Errno) {
	var v int32
	n := uint32(4)
	_, _, e := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt), uintptr(unsafe.Pointer(&v)), uintptr(unsafe.Pointer(&n)), 0)
	return int(v), e
}

// Dup duplicates fd, close-on-exec. fcntl(2), F_DUPFD_CLOEXEC.
func Dup(fd int) (int, Errno) {
	n, _, e := syscall.RawSyscall(unix.SYS_FCNTL, uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if e != 0 {
		return -1, e
	}
	return int(n), 0
}

// FileLimit returns how many descriptors this process may have. getrlimit(2), RLIMIT_NOFILE.
func (Linux) FileLimit() (uint64, error) {
	var r unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r)
	return r.Cur, err
}

// GrowFiles makes the kernel enlarge its table of this process's descriptors for n; fd is any open
// one. Where it has to grow later, the thread that opens a descriptor then waits for all CPUs to forget the
// old table, in a process with several threads (expand_fdtable in fs/file.c). fcntl(2), F_DUPFD_CLOEXEC.
func (Linux) GrowFiles(fd, n int) {
	if high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, n-1); err == nil {
		unix.Close(high)
	}
}

// OpenFiles returns how many descriptors this process has open; ok is false if the kernel does not say.
// It is the size of this folder since Linux 6.2 (f1f1f2569901), and was 0 before. Reading the folder takes
// long if there are many.
func (Linux) OpenFiles() (n int, ok bool) {
	var st unix.Stat_t
	if unix.Stat("/proc/self/fd", &st) != nil || st.Size <= 0 {
		return 0, false
	}
	return int(st.Size), true
}

// Unlink removes the path of a Unix socket that no listener has any more. unlink(2).
func Unlink(path string) error { return unix.Unlink(path) }

// IsSocket reports whether path is a Unix socket. stat(2).
func IsSocket(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// HasOtherMode reports whether the permissions of a path are known, and not mode. stat(2).
func HasOtherMode(path string, mode uint32) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&0o7777 != mode
}

// Chmod sets the mode of a Unix socket's path. chmod(2).
func Chmod(path string, mode uint32) error { return unix.Chmod(path, mode) }
