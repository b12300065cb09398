//go:build linux

package load

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"
)

// Sink is the far end of a load, the relay's upstream.
type Sink struct {
	spec   Spec
	verify bool
	fd     int
	udp    *net.UDPConn
	Addr   string // where it listens
}

// NewSink listens on a free port of an IPv4 address of this host.
func NewSink(spec Spec, host string, verify bool) (*Sink, error) {
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.Is4() {
		return nil, fmt.Errorf("sink: %q is not an IPv4 address", host)
	}
	if spec.UDP() {
		return newUDPSink(spec, ip)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: ip.As4()}); err != nil {
		return nil, fmt.Errorf("bind: %w", err)
	}
	if err := unix.Listen(fd, 4096); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return nil, fmt.Errorf("getsockname: %w", err)
	}
	addr := netip.AddrPortFrom(ip, uint16(sa.(*unix.SockaddrInet4).Port))
	return &Sink{spec: spec, verify: verify, fd: fd, Addr: addr.String()}, nil
}

// Serve serves until it fails, and always returns an error.
func (s *Sink) Serve() error {
	switch {
	case s.spec.Kind == Flood:
		return s.serveFlood()
	case s.spec.UDP():
		return s.serveUDPEcho()
	case s.spec.Kind == Bulk:
		return s.serveThreads(s.discard)
	case s.spec.Kind == PingPong && s.spec.Conns == 1:
		return s.serveThreads(echo)
	default:
		return s.serveEcho()
	}
}

// serveThreads gives each connection a thread that blocks, which is cheapest for a few connections.
func (s *Sink) serveThreads(serve func(fd int)) error {
	for {
		fd, err := s.accept(0)
		if err != nil {
			return err
		}
		go func() {
			runtime.LockOSThread()
			serve(fd)
			unix.Close(fd)
		}()
	}
}

func (s *Sink) accept(flags int) (fd int, err error) {
	err = retry(func() error {
		fd, _, err = unix.Accept4(s.fd, unix.SOCK_CLOEXEC|flags)
		return err
	})
	if err != nil {
		return -1, err
	}
	return fd, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
}

// discard counts a stream to its end and answers with the trailer. MSG_TRUNC lets TCP drop the
// bytes in the kernel (tcp(7)), so that the sink does not copy them; a verifying run reads them.
func (s *Sink) discard(fd int) {
	buf := make([]byte, 1<<20)
	flags := unix.MSG_TRUNC
	if s.verify {
		flags = 0
	}
	var count uint64
	var crc uint32
	for {
		n, _, err := unix.Recvfrom(fd, buf, flags)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return // the generator reports the missing trailer
		}
		if n == 0 {
			break
		}
		count += uint64(n)
		if s.verify {
			crc = crc32.Update(crc, castagnoli, buf[:n])
		}
	}
	var t [trailer]byte
	binary.LittleEndian.PutUint64(t[:], count)
	binary.LittleEndian.PutUint64(t[8:], uint64(crc))
	_ = sendAll(fd, t[:])
}

func echo(fd int) {
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		if sendAll(fd, buf[:n]) != nil {
			return
		}
	}
}

// serveEcho serves echoes on any number of connections from one thread.
func (s *Sink) serveEcho() error {
	runtime.LockOSThread()
	poll, err := newPoller()
	if err != nil {
		return err
	}
	if err := poll.add(s.fd, int32(s.fd)); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		evs, err := poll.wait(-1)
		if err != nil {
			return err
		}
		for _, ev := range evs {
			fd := int(ev.Fd)
			if fd == s.fd {
				if fd, err = s.accept(0); err != nil {
					return err
				}
				if err := poll.add(fd, int32(fd)); err != nil {
					return err
				}
				continue
			}
			n, err := unix.Read(fd, buf)
			if err == unix.EINTR {
				continue
			}
			if err != nil || n == 0 || sendAll(fd, buf[:n]) != nil {
				unix.Close(fd)
			}
		}
	}
}
