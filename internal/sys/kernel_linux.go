package sys

import "syscall"

// Errno is the kernel's error number; 0 is success.
type Errno = syscall.Errno

// Kernel has the system calls of the data path. [Linux] is the real implementation. Tests wrap it,
// per object, to count calls or to inject EAGAIN, EINTR, EMFILE and short writes.
//
// No method waits: file descriptors are non-blocking, and a method with nothing to do returns
// EAGAIN.
type Kernel interface {
	// Recv reads up to len(p) bytes from a stream socket; (0, 0) is the end of the stream. recv(2).
	Recv(fd int, p []byte) (int, Errno)
	// Discard discards up to len(p) received bytes, using p only if the socket cannot drop them in
	// the kernel. tcp(7), MSG_TRUNC.
	Discard(fd int, p []byte, tcp bool) (int, Errno)
	// Send writes p, or only its first bytes, to a stream socket, and raises no SIGPIPE. send(2).
	Send(fd int, p []byte) (int, Errno)
	// Splice moves up to n bytes; one side is a pipe. From a TCP socket (0, 0) is the end of the
	// stream, or urgent data with the end queued behind it: only Recv tells them apart. splice(2).
	Splice(rfd, wfd, n int) (int, Errno)
	// AtMark reports whether the next byte of a TCP socket is urgent data. Splice stops there; Recv
	// skips it. tcp(7), SIOCATMARK.
	AtMark(fd int) bool
	// ReadPipe copies up to len(p) bytes out of a pipe. read(2).
	ReadPipe(fd int, p []byte) (int, Errno)
	// Pipe creates a non-blocking pipe and asks for size bytes of room; got is what the kernel
	// granted. pipe(2), F_SETPIPE_SZ.
	Pipe(size int) (r, w, got int, errno Errno)
	// Socket creates a non-blocking stream socket; with mptcp it uses multipath TCP if the kernel
	// has it, and TCP otherwise. socket(2), IPPROTO_MPTCP.
	Socket(family Family, mptcp bool) (int, Errno)
	// Connect starts to connect; EINPROGRESS is the usual answer. connect(2).
	Connect(fd int, sa *Sockaddr) Errno
	// Accept accepts one connection; the new socket is non-blocking. accept4(2).
	Accept(fd int, sa *Sockaddr) (int, Errno)
	// ShutdownWrite ends the stream to the peer. shutdown(2).
	ShutdownWrite(fd int) Errno
	// RcvLowat sets how many bytes must be queued before the socket counts as readable. socket(7),
	// SO_RCVLOWAT.
	RcvLowat(fd, n int) Errno
	// RecvOne is Recv with a header that the kernel writes the result into, before it returns. The
	// result is in m even if the caller does not live to get it. Descriptors that come along are
	// dropped. recvmmsg(2).
	RecvOne(fd int, m *Message, p []byte) (int, Errno)
	// SendOne is Send with such a header. sendmmsg(2).
	SendOne(fd int, m *Message, p []byte) (int, Errno)
	// Disconnect ends a TCP connection with a reset, for all who have the socket, and drops what is
	// queued. Other sockets refuse. connect(2), AF_UNSPEC.
	Disconnect(fd int) Errno
	// ShutdownBoth ends both directions of a stream, for all who have the socket. shutdown(2).
	ShutdownBoth(fd int) Errno
	// Close closes fd. close(2).
	Close(fd int) Errno

	// Datagram creates a non-blocking datagram socket. socket(2).
	Datagram(family Family) (int, Errno)
	// RecvBatch receives into n messages of v, beginning at index from, and returns how many were
	// received. family is the socket's. recvmmsg(2).
	RecvBatch(fd int, family Family, v *Vector, from, n int) (int, Errno)
	// SendBatch sends n opened messages of v, beginning at index from, and returns how many were
	// sent. It stops at the first that fails, and returns an error only if that is the message at
	// from. sendmmsg(2).
	SendBatch(fd int, v *Vector, from, n int) (int, Errno)
}

// Linux is the real [Kernel].
type Linux struct{}

var _ Kernel = Linux{}

// The error numbers that the pump and the engine distinguish.
const (
	EAGAIN        = syscall.EAGAIN
	EINTR         = syscall.EINTR
	EINVAL        = syscall.EINVAL
	EPERM         = syscall.EPERM
	EPIPE         = syscall.EPIPE
	ENODATA       = syscall.ENODATA
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
