package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of a stream's data path. All of them use RawSyscall: the descriptors are non-blocking,
// so the runtime need not know that the thread might wait. MSG_DONTWAIT has an effect even if
// somebody who shares a socket's description makes it blocking; splice(2) only looks at the
// description.

func (Linux) Recv(fd int, p []byte) (int, Errno) {
	if len(p) == 0 {
		return 0, EINVAL
	}
	n, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, e
	}
	raceWrite(unsafe.Pointer(&p[0]), int(n))
	return int(n), 0
}

// HasUnread implements [Kernel].
func (Linux) HasUnread(fd int) (bool, Errno) {
	var b [1]byte
	for {
		n, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), 1, unix.MSG_DONTWAIT|unix.MSG_PEEK, 0, 0)
		switch e {
		case 0:
			return n > 0, 0
		case EAGAIN:
			return false, 0
		case EINTR:
		default:
			return false, e
		}
	}
}

func (k Linux) Discard(fd int, p []byte, tcp bool) (int, Errno) {
	if !tcp {
		return k.Recv(fd, p)
	}
	n, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, 1<<20, unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

func (Linux) Send(fd int, p []byte) (int, Errno) {
	if len(p) == 0 {
		return 0, 0
	}
	raceRead(unsafe.Pointer(&p[0]), len(p))
	n, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// SendUrgent sends b out of band. tcp(7), unix(7), MSG_OOB.
func SendUrgent(fd int, b byte) Errno {
	_, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b)), 1, unix.MSG_OOB|unix.MSG_NOSIGNAL, 0, 0)
	return e
}

func (Linux) Splice(rfd, wfd, n int) (int, Errno) {
	m, _, e := syscall.RawSyscall6(unix.SYS_SPLICE, uintptr(rfd), 0, uintptr(wfd), 0, uintptr(n), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	if e != 0 {
		return 0, e
	}
	return int(m), 0
}

func (Linux) AtMark(fd int) bool {
	var at int32
	_, _, e := syscall.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCATMARK, uintptr(unsafe.Pointer(&at)))
	return e == 0 && at != 0
}

// SendFile moves up to n bytes of a file, from its offset, to a socket. It may wait for the file,
// so it notifies the scheduler. sendfile(2).
func SendFile(socket, file, n int) (int, Errno) {
	m, _, e := syscall.Syscall6(unix.SYS_SENDFILE, uintptr(socket), uintptr(file), 0, uintptr(n), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(m), 0
}

func (Linux) ReadPipe(fd int, p []byte) (int, Errno) {
	if len(p) == 0 {
		return 0, 0
	}
	n, _, e := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	if e != 0 {
		return 0, e
	}
	raceWrite(unsafe.Pointer(&p[0]), int(n))
	return int(n), 0
}

func (k Linux) Pipe(size int) (r, w, got int, errno Errno) {
	var p [2]int32
	if _, _, e := syscall.RawSyscall(unix.SYS_PIPE2, uintptr(unsafe.Pointer(&p)), unix.O_NONBLOCK|unix.O_CLOEXEC, 0); e != 0 {
		return -1, -1, 0, e
	}
	r, w = int(p[0]), int(p[1])
	// EPERM (above fs.pipe-user-pages-soft) and EBUSY leave the pipe unchanged; the caller decides
	// by what F_GETPIPE_SZ returns.
	got, err := unix.FcntlInt(uintptr(w), unix.F_SETPIPE_SZ, size)
	if err != nil {
		if got, err = unix.FcntlInt(uintptr(w), unix.F_GETPIPE_SZ, 0); err != nil {
			k.Close(r)
			k.Close(w)
			return -1, -1, 0, errnoOf(err)
		}
	}
	return r, w, got, 0
}

func (Linux) ShutdownWrite(fd int) Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
	return e
}

func (Linux) RcvLowat(fd, n int) Errno {
	return SetInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, n)
}

func (Linux) Close(fd int) Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
	return e
}

func errnoOf(err error) Errno {
	if e, ok := err.(Errno); ok {
		return e
	}
	return EINVAL
}
