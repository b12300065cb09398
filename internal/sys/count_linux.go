package sys

import (
	"math"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TCPCounts is what the kernel knows of the bytes that have passed between a TCP socket and its users.
// Both counters are raw: they begin wherever the connection began, and include what is not data. Who
// wants to know what has passed since some moment takes the difference to the counts at that moment.
//
//   - An active opener's Written starts at 1, its SYN.
//   - A FIN that was sent is one more in Written from shutdown(2) on; one that was received is one more in
//     Consumed as soon as it has arrived, even if bytes before it are unread.
//   - An urgent byte that was skipped is one more in Consumed.
type TCPCounts struct {
	Consumed uint64 // bytes that were taken from the socket: received, and not queued any more
	Written  uint64 // bytes that the socket has accepted: acknowledged, or queued
	State    TCPState
	// Urgent says that urgent data is unread. The kernel then counts as queued only what is before it,
	// so that Consumed is too large by an unknown amount.
	Urgent bool
}

// TCPState is a state of a TCP connection. include/net/tcp_states.h.
type TCPState uint8

// The states. What a process has in its hands is never in TIME_WAIT: the kernel keeps that state apart,
// and the socket goes to TCPClose.
const (
	TCPEstablished TCPState = 1
	TCPSynSent     TCPState = 2
	TCPSynReceived TCPState = 3
	TCPFinWait1    TCPState = 4
	TCPFinWait2    TCPState = 5
	TCPTimeWait    TCPState = 6
	TCPClose       TCPState = 7
	TCPCloseWait   TCPState = 8
	TCPLastAck     TCPState = 9
	TCPListen      TCPState = 10
	TCPClosing     TCPState = 11
)

// FINs reports whether Written and Consumed include a FIN, which are not data. In TCPClose nobody knows:
// known is false.
func (s TCPState) FINs() (sent, received, known bool) {
	switch s {
	case TCPFinWait1, TCPFinWait2:
		return true, false, true
	case TCPClosing, TCPLastAck, TCPTimeWait:
		return true, true, true
	case TCPCloseWait:
		return false, true, true
	}
	return false, false, s != TCPClose
}

// TCPCounts implements [Kernel]. The kernel gives the counts in several answers, and TCPCounts asks again until the first and the
// last agree.
func (Linux) TCPCounts(fd int) (TCPCounts, Errno) {
	if !IsPlainTCP(fd) {
		return TCPCounts{}, EOPNOTSUPP
	}
	const attempts = 1000 // each fails only if a segment came during two microseconds
	var infos [2]tcpInfo
	if e := readInfo(fd, &infos[0]); e != 0 {
		return TCPCounts{}, e
	}
	// Mostly nothing is on its way, in neither direction, and one answer says so itself: all that was
	// written was acknowledged. If nothing is to be read afterwards, what it counts as received was taken.
	// The state is the only field that is not of the same moment; an end that came meanwhile is seen by poll.
	if info := &infos[0]; TCPState(info.State) == TCPEstablished && info.Unacked == 0 && info.NotSent == 0 {
		if in, e := queued(fd, unix.SIOCINQ); e == 0 && in == 0 && pending(fd, unix.POLLPRI|unix.POLLRDHUP) == 0 {
			return TCPCounts{Consumed: info.BytesTaken, Written: info.BytesAcked, State: TCPState(info.State)}, 0
		}
	}
	for i := range attempts {
		before, after := &infos[i&1], &infos[i&1^1]
		in, e := queued(fd, unix.SIOCINQ)
		if e != 0 {
			return TCPCounts{}, e
		}
		out, e := queued(fd, unix.SIOCOUTQ)
		if e != 0 {
			return TCPCounts{}, e
		}
		urgent := hasUrgent(fd)
		if e := readInfo(fd, after); e != 0 {
			return TCPCounts{}, e
		}
		if before.State == after.State && before.BytesAcked == after.BytesAcked && before.BytesTaken == after.BytesTaken {
			return TCPCounts{
				Consumed: after.BytesTaken - uint64(in),
				Written:  after.BytesAcked + uint64(out),
				State:    TCPState(after.State),
				Urgent:   urgent,
			}, 0
		}
	}
	return TCPCounts{}, EAGAIN
}

// tcpInfo is the beginning of struct tcp_info, up to what is needed. The counters came with Linux 4.1.
// include/uapi/linux/tcp.h.
type tcpInfo struct {
	State      uint8
	_          [7]uint8
	_          [4]uint32
	Unacked    uint32 // segments
	_          [19]uint32
	_          [2]uint64
	BytesAcked uint64
	BytesTaken uint64
	_          [2]uint32
	NotSent    uint32 // bytes; since Linux 4.6
}

func readInfo(fd int, info *tcpInfo) Errno {
	n := uint32(unsafe.Sizeof(*info))
	_, _, e := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO, uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&n)), 0)
	switch {
	case e == 0 && n < uint32(unsafe.Offsetof(info.BytesTaken)+unsafe.Sizeof(info.BytesTaken)):
		return EOPNOTSUPP // Linux 4.0 or older
	case e == 0 && n < uint32(unsafe.Offsetof(info.NotSent)+unsafe.Sizeof(info.NotSent)):
		info.NotSent = 1 // nobody knows
	}
	return e
}

// IsPlainTCP reports whether fd is a TCP socket, but not one of multipath TCP: that has several
// connections, and answers with the counts of the first. socket(7), SO_PROTOCOL.
func IsPlainTCP(fd int) bool {
	p, e := GetInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	return e == 0 && p == unix.IPPROTO_TCP
}

func queued(fd int, what uintptr) (int, Errno) {
	var n int32
	_, _, e := syscall.RawSyscall(unix.SYS_IOCTL, uintptr(fd), what, uintptr(unsafe.Pointer(&n)))
	return int(n), e
}

// hasUrgent reports whether a TCP socket has unread urgent data.
func hasUrgent(fd int) bool { return pending(fd, unix.POLLPRI)&unix.POLLPRI != 0 }

// pending returns which of the events of poll(2) are there now, and also POLLERR and POLLHUP. After an
// error it returns all of them but POLLPRI. A signal, such as one of the runtime's that preempt goroutines, interrupts
// even a poll that does not wait (do_poll, fs/select.c, Linux 6.18), and was handled when that has failed.
func pending(fd int, events int16) int16 {
	pfd := unix.PollFd{Fd: int32(fd), Events: events}
	for {
		var now unix.Timespec
		_, _, e := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&pfd)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
		switch e {
		case 0:
			return pfd.Revents
		case EINTR:
		default:
			return ^int16(unix.POLLPRI)
		}
	}
}

// The clock of the runtime and CLOCK_MONOTONIC run alike, and the runtime reads its own without a system
// call; so one comparison suffices: the closest of some, because the process may be stopped between its two readings.
var monotonicStart, runtimeStart = func() (kernel int64, runtime time.Time) {
	closest := time.Duration(math.MaxInt64)
	for range 5 {
		now := time.Now()
		at := int64(Monotonic())
		if took := time.Since(now); took < closest {
			kernel, runtime, closest = at, now, took
		}
	}
	return kernel, runtime
}()

// MonotonicNow returns CLOCK_MONOTONIC in nanoseconds: the time since the machine was started, the same
// in every process. clock_gettime(2).
func MonotonicNow() int64 { return MonotonicAt(time.Now()) }

// MonotonicAt returns what CLOCK_MONOTONIC was, or will be, at t, a time that has a monotonic reading.
func MonotonicAt(t time.Time) int64 { return monotonicStart + int64(t.Sub(runtimeStart)) }
