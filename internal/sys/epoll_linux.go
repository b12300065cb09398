package sys

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Event is one event of epoll_wait(2).
type Event = unix.EpollEvent

// The event bits, epoll_ctl(2).
const (
	In        = unix.EPOLLIN
	Out       = unix.EPOLLOUT
	Pri       = unix.EPOLLPRI
	RdHup     = unix.EPOLLRDHUP
	Hup       = unix.EPOLLHUP
	Err       = unix.EPOLLERR
	Edge      = unix.EPOLLET
	Exclusive = unix.EPOLLEXCLUSIVE
)

// EpollCreate creates an epoll instance. epoll_create(2).
func (Linux) EpollCreate() (int, error) { return unix.EpollCreate1(unix.EPOLL_CLOEXEC) }

// EpollAdd watches fd; each event has data.
func (Linux) EpollAdd(ep, fd int, events uint32, data uint64) Errno {
	return epollCtl(ep, unix.EPOLL_CTL_ADD, fd, events, data)
}

// EpollMod changes what fd is watched for. What is ready at that time causes an event, even if it
// is edge-triggered.
func (Linux) EpollMod(ep, fd int, events uint32, data uint64) Errno {
	return epollCtl(ep, unix.EPOLL_CTL_MOD, fd, events, data)
}

// EpollDel stops watching fd. So does closing the last descriptor of a socket.
func (Linux) EpollDel(ep, fd int) Errno { return epollCtl(ep, unix.EPOLL_CTL_DEL, fd, 0, 0) }

func epollCtl(ep, op, fd int, events uint32, data uint64) Errno {
	ev := Event{Events: events, Fd: int32(data), Pad: int32(data >> 32)}
	_, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(ep), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(&ev)), 0, 0)
	return e
}

// EventData returns the 64 bits that were passed to EpollAdd.
func EventData(e *Event) uint64 { return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32 }

// EpollWaitRaw waits for events without telling the scheduler: the thread
// keeps its P for as long as it waits, so the timeout must be short. A signal,
// such as the runtime's preemption request, ends the wait with EINTR.
func (Linux) EpollWaitRaw(ep int, evs []Event, timeout time.Duration) (int, Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(&evs[0])), uintptr(len(evs)), milliseconds(timeout), 0, 0)
	if e != 0 {
		return 0, e
	}
	raceWrite(unsafe.Pointer(&evs[0]), int(n)*int(unsafe.Sizeof(evs[0])))
	return int(n), 0
}

// EpollWait waits for events as a blocking system call: the scheduler hands the thread's P to
// others meanwhile. A negative timeout waits for ever.
func (Linux) EpollWait(ep int, evs []Event, timeout time.Duration) (int, Errno) {
	n, _, e := syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(&evs[0])), uintptr(len(evs)), milliseconds(timeout), 0, 0)
	if e != 0 {
		return 0, e
	}
	raceWrite(unsafe.Pointer(&evs[0]), int(n)*int(unsafe.Sizeof(evs[0])))
	return int(n), 0
}

// milliseconds rounds up, so that a wait never ends before its time.
func milliseconds(d time.Duration) uintptr {
	if d < 0 {
		return ^uintptr(0)
	}
	return uintptr((d + time.Millisecond - 1) / time.Millisecond)
}

// Eventfd creates a non-blocking counter that wakes an epoll instance. eventfd(2).
func (Linux) Eventfd() (int, error) { return unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC) }

// EventfdSignal makes fd readable.
func (Linux) EventfdSignal(fd int) Errno {
	v := uint64(1)
	_, _, e := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&v)), 8)
	return e
}

// EventfdClear makes fd unreadable again.
func (Linux) EventfdClear(fd int) Errno {
	var v uint64
	_, _, e := syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&v)), 8)
	return e
}
