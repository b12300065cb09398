//go:build linux

package load

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// stall is how long nothing may move before a run is aborted.
const stall = 30 * time.Second

func sockaddr(addr string) (*unix.SockaddrInet4, error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	if !ap.Addr().Is4() {
		return nil, fmt.Errorf("address %s: want IPv4", addr)
	}
	return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}, nil
}

// dialFor dials for a load of streams or of datagrams.
func dialFor(spec Spec, to *unix.SockaddrInet4) (int, error) {
	if !spec.UDP() {
		return dial(to)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err := unix.Connect(fd, to); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("connect: %w", err)
	}
	return fd, nil
}

// dial returns a blocking socket whose calls time out after stall.
func dial(to *unix.SockaddrInet4) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err := connect(fd, to); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func connect(fd int, to *unix.SockaddrInet4) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("set TCP_NODELAY: %w", err)
	}
	tv := unix.NsecToTimeval(int64(stall))
	for _, opt := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, opt, &tv); err != nil {
			return fmt.Errorf("set the socket's timeout: %w", err)
		}
	}
	own := *to // x/sys writes to it, and several threads dial
	// On loopback the handshake is over when connect returns.
	if err := retry(func() error { return unix.Connect(fd, &own) }); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// retry repeats a call while signals interrupt it.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func sendAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		p = p[n:]
	}
	return nil
}

func recvAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Read(fd, p)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("receive: %w", err)
		case n == 0:
			return fmt.Errorf("receive: closed with %d bytes outstanding", len(p))
		}
		p = p[n:]
	}
	return nil
}

// poller is an epoll instance with level-triggered reads.
type poller struct {
	fd     int
	events [256]unix.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create: %w", err)
	}
	return &poller{fd: fd}, nil
}

// add watches fd for input; its events have the given tag.
func (p *poller) add(fd int, tag int32) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: tag}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// wait returns the next events, or an error after a stall. The slice is valid
// until the next wait.
func (p *poller) wait(timeout time.Duration) ([]unix.EpollEvent, error) {
	for {
		n, err := unix.EpollWait(p.fd, p.events[:], millis(timeout))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, fmt.Errorf("epoll_wait: %w", err)
		case n == 0:
			return nil, fmt.Errorf("nothing came through the relay for %v", timeout)
		}
		return p.events[:n], nil
	}
}

// millis converts a timeout for epoll_wait; a negative one waits forever.
func millis(d time.Duration) int {
	if d < 0 {
		return -1
	}
	return int(d.Milliseconds())
}
