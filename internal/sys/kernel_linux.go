package sys

import "syscall"

// Errno is the kernel's error number; 0 is success.
type Errno = syscall.Errno

// Kernel is what the pump and the engine ask of the kernel on the data path.
// [Linux] is the real one. Tests wrap it, one object at a time, to count calls
// or to inject EAGAIN, EINTR, EMFILE and short writes.
//
// No method waits: file descriptors are non-blocking, and where there is
// nothing to do the answer is EAGAIN.
type Kernel interface {
	// Recv reads up to len(p) bytes from a stream socket; (0, 0) is the end of the stream. recv(2).
	Recv(fd int, p []byte) (int, Errno)
	// Discard throws away up to len(p) received bytes, using p only where the
	// socket cannot drop them in the kernel. tcp(7), MSG_TRUNC.
	Discard(fd int, p []byte, tcp bool) (int, Errno)
	// Send writes p to a stream socket, perhaps only its first bytes, and raises no SIGPIPE. send(2).
	Send(fd int, p []byte) (int, Errno)
	// Splice moves up to n bytes where one side is a pipe. From a TCP socket
	// (0, 0) is the end of the stream, or urgent data with the end queued behind
	// it: only Recv tells them apart. splice(2).
	Splice(rfd, wfd, n int) (int, Errno)
	// AtMark reports whether the next byte of a TCP socket is urgent data. Splice
	// stops there; Recv steps over it. tcp(7), SIOCATMARK.
	AtMark(fd int) bool
	// ReadPipe copies up to len(p) bytes out of a pipe. read(2).
	ReadPipe(fd int, p []byte) (int, Errno)
	// Pipe makes a non-blocking pipe and asks for size bytes of room; got is what the kernel granted. pipe(2), F_SETPIPE_SZ.
	Pipe(size int) (r, w, got int, errno Errno)
	// Socket makes a non-blocking stream socket; with mptcp one of multipath TCP
	// where the kernel has it, and of TCP elsewhere. socket(2), IPPROTO_MPTCP.
	Socket(family Family, mptcp bool) (int, Errno)
	// Connect starts to connect; EINPROGRESS is the usual answer. connect(2).
	Connect(fd int, sa *Sockaddr) Errno
	// Accept takes one connection from a listener; the new socket is non-blocking. accept4(2).
	Accept(fd int, sa *Sockaddr) (int, Errno)
	// ShutdownWrite passes the end of the stream on to the peer. shutdown(2).
	ShutdownWrite(fd int) Errno
	// RcvLowat sets how many bytes must wait before the socket counts as readable. socket(7), SO_RCVLOWAT.
	RcvLowat(fd, n int) Errno
	// Close closes fd. close(2).
	Close(fd int) Errno

	// Datagram makes a non-blocking datagram socket. socket(2).
	Datagram(family Family) (int, Errno)
	// RecvBatch receives into n messages of v from index from on, and returns how
	// many came. family is the socket's. recvmmsg(2).
	RecvBatch(fd int, family Family, v *Vector, from, n int) (int, Errno)
	// SendBatch sends n opened messages of v from index from on, and returns how
	// many left. It stops at the first that fails and tells the error of the
	// message at from only. sendmmsg(2).
	SendBatch(fd int, v *Vector, from, n int) (int, Errno)
}

// Linux is the real [Kernel].
type Linux struct{}

var _ Kernel = Linux{}

// The error numbers that mean something to the pump and the engine.
const (
	EAGAIN        = syscall.EAGAIN
	EINTR         = syscall.EINTR
	EINVAL        = syscall.EINVAL
	EPERM         = syscall.EPERM
	EPIPE         = syscall.EPIPE
	EMFILE        = syscall.EMFILE
	ENFILE        = syscall.ENFILE
	ENOMEM        = syscall.ENOMEM
	ENOBUFS       = syscall.ENOBUFS
	EINPROGRESS   = syscall.EINPROGRESS
	ECONNRESET    = syscall.ECONNRESET
	ECONNREFUSED  = syscall.ECONNREFUSED
	ECONNABORTED  = syscall.ECONNABORTED
	EADDRNOTAVAIL = syscall.EADDRNOTAVAIL
	EADDRINUSE    = syscall.EADDRINUSE
	ENOTSOCK      = syscall.ENOTSOCK
	EOPNOTSUPP    = syscall.EOPNOTSUPP
	ENOSYS        = syscall.ENOSYS
)
