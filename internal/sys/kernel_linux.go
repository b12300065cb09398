package sys

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Errno is the kernel's error number; 0 is success.
type Errno = syscall.Errno

// Kernel has the system calls of an engine: those of the data path, those that read and change the state of
// sockets, those that wait, and those about the process. [Linux] is the real implementation. Tests wrap it, per
// object, to count calls or to inject EAGAIN, EINTR, EMFILE and short writes; package simkernel is another
// one, in memory.
//
// No method of the data path waits: file descriptors are non-blocking, and a method with nothing to do
// returns EAGAIN.
type Kernel interface {
	Sockets
	Poller
	Process
	SharedMemory

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
	// StreamPair returns two connected Unix sockets of type SOCK_STREAM, non-blocking and close-on-exec. socketpair(2).
	StreamPair() (a, b int, errno Errno)
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

	// GiveTLS makes the kernel encrypt what is sent on a TCP socket, and decrypt what is received: only what is in the records of TLS 1.3
	// is sent and received from then on. After an error nothing has changed, unless begun says that the connection can only be ended.
	// Documentation/networking/tls.rst, Linux 5.1.
	GiveTLS(fd int, out, in *TLSKeys) (begun bool, errno Errno)
	// RecvRecord receives the rest of a record of such a socket, or some of it, and its type. Recv and RecvOne return EIO where the
	// next one has another type than RecordData, and Splice EINVAL. With peek it is received again by the next call.
	RecvRecord(fd int, p []byte, peek bool) (n int, kind uint8, errno Errno)
	// SendRecord sends a record of a type of its own.
	SendRecord(fd int, kind uint8, p []byte) Errno

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

// Sockets reads and changes the state of sockets.
type Sockets interface {
	// SetOption sets an integer option. setsockopt(2).
	SetOption(fd, level, name, value int) Errno
	// Option reads an integer option. getsockopt(2).
	Option(fd, level, name int) (int, Errno)
	// Interface returns the name of the interface that a socket is bound to. socket(7), SO_BINDTODEVICE.
	Interface(fd int) (string, Errno)
	// Memory returns how many bytes of kernel memory a socket has for data, received and to be sent, and how many
	// datagrams it has dropped so far, modulo 2^32. socket(7), SO_MEMINFO, Linux 4.12.
	Memory(fd int) (bytes int64, drops uint32, errno Errno)
	// SameSocket reports whether two descriptors are of one socket. socket(7), SO_COOKIE.
	SameSocket(a, b int) bool
	// CloseResets makes the next close of a TCP socket send RST instead of FIN, and drop what is unsent; or not, which is
	// the default: close returns at once, and the kernel continues to deliver what is unsent. socket(7), SO_LINGER.
	CloseResets(fd int, on bool) Errno
	// SetNonblock is [SetNonblock].
	SetNonblock(fd int) Errno
	// Poll returns which of the events of poll(2) are there now, and also POLLERR, POLLHUP and POLLNVAL. If it fails it
	// returns all of them but POLLPRI. ppoll(2).
	Poll(fd int, events int16) int16
	// ReadQueued returns how many bytes of a pipe or a stream socket can be read now. Of a Unix datagram or
	// UDP socket it is the length of the next datagram. ioctl_tty(2), pipe(7), tcp(7), FIONREAD.
	ReadQueued(fd int) (int, Errno)
	// HasUnread reports whether a receive from a stream socket would return bytes. Of a Unix socket, ReadQueued goes on to count an urgent byte
	// that a receive has skipped. An error that it finds is told to nobody else. recv(2), MSG_PEEK.
	HasUnread(fd int) (bool, Errno)
	// WriteQueued returns how many bytes a socket has accepted that its peer has not: of TCP, those not
	// acknowledged yet. tcp(7), unix(7), SIOCOUTQ.
	WriteQueued(fd int) (int, Errno)
	// TCPCounts returns the counts of a TCP socket. They are exact as of one moment, even under traffic, as long as
	// nobody uses the socket meanwhile. EAGAIN means that the kernel could not give them, EOPNOTSUPP that fd is not a
	// socket of plain TCP, EINVAL that it listens. tcp(7), TCP_INFO, SIOCINQ, SIOCOUTQ.
	TCPCounts(fd int) (TCPCounts, Errno)
	// TCPInfo fills info; fields that an older kernel does not have are zero. tcp(7), TCP_INFO.
	TCPInfo(fd int, info *TCPInfo) Errno
	// Bind binds fd to an address. bind(2).
	Bind(fd int, sa *Sockaddr) Errno
	// Listen makes a bound socket a listener, or changes its backlog; 0 means the kernel's maximum. listen(2).
	Listen(fd, backlog int) Errno
	// LocalAddr fills sa with the address that fd is bound to. getsockname(2).
	LocalAddr(fd int, sa *Sockaddr) Errno
	// PeerAddr fills sa with the address that fd is connected to. getpeername(2).
	PeerAddr(fd int, sa *Sockaddr) Errno
	// OriginalAddr is [OriginalAddr].
	OriginalAddr(fd int, sa *Sockaddr) Errno
}

// The events of [Sockets.Poll]. poll(2).
const (
	PollIn    = unix.POLLIN
	PollPri   = unix.POLLPRI
	PollOut   = unix.POLLOUT
	PollErr   = unix.POLLERR
	PollHup   = unix.POLLHUP
	PollNval  = unix.POLLNVAL
	PollRdHup = unix.POLLRDHUP
)

// Poller waits for events. epoll(7), eventfd(2).
type Poller interface {
	// EpollCreate creates an epoll instance. epoll_create(2).
	EpollCreate() (int, error)
	// EpollAdd watches fd; each event has data.
	EpollAdd(ep, fd int, events uint32, data uint64) Errno
	// EpollMod changes what fd is watched for. What is ready at that time causes an event, even if it
	// is edge-triggered.
	EpollMod(ep, fd int, events uint32, data uint64) Errno
	// EpollDel stops watching fd. So does closing the last descriptor of a socket.
	EpollDel(ep, fd int) Errno
	// EpollWait waits for events as a blocking system call: the scheduler hands the thread's P to
	// others meanwhile. A negative timeout waits for ever.
	EpollWait(ep int, evs []Event, timeout time.Duration) (int, Errno)
	// EpollWaitRaw waits for events without telling the scheduler: the thread
	// keeps its P for as long as it waits, so the timeout must be short. A signal,
	// such as the runtime's preemption request, ends the wait with EINTR.
	EpollWaitRaw(ep int, evs []Event, timeout time.Duration) (int, Errno)
	// Eventfd creates a non-blocking counter that wakes an epoll instance. eventfd(2).
	Eventfd() (int, error)
	// EventfdSignal makes fd readable.
	EventfdSignal(fd int) Errno
	// EventfdClear makes fd unreadable again.
	EventfdClear(fd int) Errno
}

// Process has the clock, and the descriptors and limits of the process.
type Process interface {
	// Now returns the time, with a monotonic reading.
	Now() time.Time
	// Sleep waits.
	Sleep(d time.Duration)
	// Dup duplicates fd, close-on-exec. fcntl(2), F_DUPFD_CLOEXEC.
	Dup(fd int) (int, Errno)
	// FileLimit returns how many descriptors this process may have. getrlimit(2), RLIMIT_NOFILE.
	FileLimit() (uint64, error)
	// OpenFiles returns how many descriptors this process has open; ok is false if the kernel does not say.
	OpenFiles() (n int, ok bool)
	// FastOpenAlways reports whether listeners accept data with the SYN although nobody has asked for it. tcp(7), ip-sysctl.rst:
	// tcp_fastopen, 0x400.
	FastOpenAlways() bool
	// GrowFiles makes the kernel enlarge its table of this process's descriptors for n; fd is any open one.
	GrowFiles(fd, n int)
}

// SharedMemory has anonymous files that several processes map.
type SharedMemory interface {
	// Memfd is [Memfd].
	Memfd(name string, size int64) (int, Errno)
	// SealedSize is [SealedSize].
	SealedSize(fd int) (int64, Errno)
	// Map is [Map].
	Map(fd int, size int64) ([]byte, Errno)
	// Unmap is [Unmap].
	Unmap(b []byte) Errno
	// PunchHole is [PunchHole].
	PunchHole(fd int, offset, n int64) Errno
	// Close closes fd. close(2).
	Close(fd int) Errno

	// GiveTLS makes the kernel encrypt what is sent on a TCP socket, and decrypt what is received: only what is in the records of TLS 1.3
	// is sent and received from then on. After an error nothing has changed, unless begun says that the connection can only be ended.
	// Documentation/networking/tls.rst, Linux 5.1.
	GiveTLS(fd int, out, in *TLSKeys) (begun bool, errno Errno)
	// RecvRecord receives the rest of a record of such a socket, or some of it, and its type. Recv and RecvOne return EIO where the
	// next one has another type than RecordData, and Splice EINVAL. With peek it is received again by the next call.
	RecvRecord(fd int, p []byte, peek bool) (n int, kind uint8, errno Errno)
	// SendRecord sends a record of a type of its own.
	SendRecord(fd int, kind uint8, p []byte) Errno
}

// Linux is the real [Kernel].
type Linux struct{}

var _ Kernel = Linux{}

// FastOpenAlways implements [Kernel]. If nobody says that they do not, they do.
func (Linux) FastOpenAlways() bool {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_fastopen")
	if err != nil {
		return true
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return err != nil || n&0x400 != 0
}

// Memfd implements [Kernel].
func (Linux) Memfd(name string, size int64) (int, Errno) { return Memfd(name, size) }

// SealedSize implements [Kernel].
func (Linux) SealedSize(fd int) (int64, Errno) { return SealedSize(fd) }

// Map implements [Kernel].
func (Linux) Map(fd int, size int64) ([]byte, Errno) { return Map(fd, size) }

// Unmap implements [Kernel].
func (Linux) Unmap(b []byte) Errno { return Unmap(b) }

// PunchHole implements [Kernel].
func (Linux) PunchHole(fd int, offset, n int64) Errno { return PunchHole(fd, offset, n) }

// SetOption implements [Kernel].
func (Linux) SetOption(fd, level, name, value int) Errno { return SetInt(fd, level, name, value) }

// Option implements [Kernel].
func (Linux) Option(fd, level, name int) (int, Errno) { return GetInt(fd, level, name) }

// SetNonblock implements [Kernel].
func (Linux) SetNonblock(fd int) Errno { return SetNonblock(fd) }

// Poll implements [Kernel].
func (Linux) Poll(fd int, events int16) int16 { return pending(fd, events) }

// ReadQueued implements [Kernel].
func (Linux) ReadQueued(fd int) (int, Errno) { return queued(fd, unix.SIOCINQ) }

// WriteQueued implements [Kernel].
func (Linux) WriteQueued(fd int) (int, Errno) { return queued(fd, unix.SIOCOUTQ) }

// Bind implements [Kernel].
func (Linux) Bind(fd int, sa *Sockaddr) Errno { return Bind(fd, sa) }

// LocalAddr implements [Kernel].
func (Linux) LocalAddr(fd int, sa *Sockaddr) Errno { return LocalAddr(fd, sa) }

// OriginalAddr implements [Kernel].
func (Linux) OriginalAddr(fd int, sa *Sockaddr) Errno { return OriginalAddr(fd, sa) }

// PeerAddr implements [Kernel].
func (Linux) PeerAddr(fd int, sa *Sockaddr) Errno { return PeerAddr(fd, sa) }

// Now implements [Kernel].
func (Linux) Now() time.Time { return time.Now() }

// StreamPair implements [Kernel].
func (Linux) StreamPair() (a, b int, errno Errno) { return StreamPair() }

// Sleep implements [Kernel].
func (Linux) Sleep(d time.Duration) { time.Sleep(d) }

// Dup implements [Kernel].
func (Linux) Dup(fd int) (int, Errno) { return Dup(fd) }

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
