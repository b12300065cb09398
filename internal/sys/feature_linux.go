package sys

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// KernelRelease returns the release that uname(2) reports, "6.18.44" for example. Distributions
// append text to the numbers.
func KernelRelease() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", os.NewSyscallError("uname", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}

// ProbeSplice moves one byte from a Unix stream socket through a pipe into another socket. Unix
// sources are the more recent part: TCP sources came with 2.6.17.
func ProbeSplice() error {
	src, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	defer closeAll(src[0], src[1])
	dst, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	defer closeAll(dst[0], dst[1])
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return os.NewSyscallError("pipe2", err)
	}
	defer closeAll(p[0], p[1])
	if _, err := unix.Write(src[0], []byte{42}); err != nil {
		return os.NewSyscallError("write", err)
	}
	for _, hop := range [][2]int{{src[1], p[1]}, {p[0], dst[0]}} {
		n, err := unix.Splice(hop[0], nil, hop[1], nil, 1, unix.SPLICE_F_NONBLOCK)
		if err != nil {
			return os.NewSyscallError("splice", err)
		}
		if n != 1 {
			return fmt.Errorf("splice moved %d bytes of 1", n)
		}
	}
	return nil
}

// ProbeReusePort binds two TCP listeners to one port of 127.0.0.1.
func ProbeReusePort() error {
	var sa unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	for range 2 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		if err := unix.Bind(fd, sa); err != nil {
			return os.NewSyscallError("bind", err)
		}
		if err := unix.Listen(fd, 1); err != nil {
			return os.NewSyscallError("listen", err)
		}
		if sa, err = unix.Getsockname(fd); err != nil {
			return os.NewSyscallError("getsockname", err)
		}
	}
	return nil
}

// ProbeEpollExclusive adds a descriptor with EPOLLEXCLUSIVE, and then tries to
// modify it: a kernel that knows the flag refuses that with EINVAL
// (epoll_ctl(2)), an older one ignores the flag in both calls.
func ProbeEpollExclusive() error {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	defer unix.Close(ep)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	defer unix.Close(fd)
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLEXCLUSIVE, Fd: int32(fd)}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	switch err := unix.EpollCtl(ep, unix.EPOLL_CTL_MOD, fd, &ev); {
	case errors.Is(err, unix.EINVAL):
		return nil
	case err == nil:
		return errors.New("EPOLLEXCLUSIVE is ignored")
	default:
		return os.NewSyscallError("epoll_ctl", err)
	}
}

// ProbeEpollPwait2 waits zero nanoseconds on an empty epoll set.
func ProbeEpollPwait2() error {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	defer unix.Close(ep)
	// struct __kernel_timespec has 64-bit members on every architecture.
	var ts [2]int64
	var ev [1]unix.EpollEvent
	_, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(ep),
		uintptr(unsafe.Pointer(&ev[0])), uintptr(len(ev)), uintptr(unsafe.Pointer(&ts[0])), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("epoll_pwait2", errno)
	}
	return nil
}

// ProbeRcvLowat sets SO_RCVLOWAT to two on a TCP connection, sends one byte, and calls poll(2),
// which must not report the socket as readable before the second byte.
func ProbeRcvLowat() error {
	a, b, err := tcpPair()
	if err != nil {
		return err
	}
	defer closeAll(a, b)
	if err := unix.SetsockoptInt(b, unix.SOL_SOCKET, unix.SO_RCVLOWAT, 2); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	// The first poll has a timeout so that a byte in flight arrives; the second one ends as soon as
	// the socket is readable.
	for _, step := range []struct{ want, timeout int }{{0, 5}, {1, 1000}} {
		if _, err := unix.Write(a, []byte{42}); err != nil {
			return os.NewSyscallError("write", err)
		}
		n, err := pollIn(b, step.timeout)
		if err != nil {
			return err
		}
		if n != step.want {
			return errors.New("poll does not honour SO_RCVLOWAT")
		}
	}
	return nil
}

// ProbePipeSize sets a pipe's size to two pages and reads the size back.
func ProbePipeSize() error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return os.NewSyscallError("pipe2", err)
	}
	defer closeAll(p[0], p[1])
	want := 2 * os.Getpagesize()
	if _, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETPIPE_SZ, want); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	got, err := unix.FcntlInt(uintptr(p[0]), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	if got != want {
		return fmt.Errorf("pipe holds %d bytes, %d were asked for", got, want)
	}
	return nil
}

// tcpPair returns two connected TCP sockets on 127.0.0.1, which the caller
// closes.
func tcpPair() (a, b int, err error) {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, os.NewSyscallError("socket", err)
	}
	defer unix.Close(l)
	if err := unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return -1, -1, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(l, 1); err != nil {
		return -1, -1, os.NewSyscallError("listen", err)
	}
	sa, err := unix.Getsockname(l)
	if err != nil {
		return -1, -1, os.NewSyscallError("getsockname", err)
	}
	a, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(a, sa); err != nil {
		unix.Close(a)
		return -1, -1, os.NewSyscallError("connect", err)
	}
	b, _, err = unix.Accept4(l, unix.SOCK_CLOEXEC)
	if err != nil {
		unix.Close(a)
		return -1, -1, os.NewSyscallError("accept4", err)
	}
	return a, b, nil
}

// pollIn waits until fd is readable, for at most timeout milliseconds. It returns 1 if
// fd is readable, and 0 if not. A signal starts the wait again.
func pollIn(fd, timeout int) (int, error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, timeout)
		if !errors.Is(err, unix.EINTR) {
			return n, os.NewSyscallError("poll", err)
		}
	}
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
