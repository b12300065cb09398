package sys

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ProbeGSO sends two datagrams with one call over loopback and receives them
// one by one.
func ProbeGSO() error {
	return probeUDP(false, 2)
}

// ProbeGRO sends the same two datagrams and receives them as one super-packet, which also needs
// UDP_SEGMENT.
func ProbeGRO() error {
	return probeUDP(true, 4)
}

func probeUDP(gro bool, want int) error {
	var fds [2]int
	for i := range fds {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		defer unix.Close(fd)
		fds[i] = fd
	}
	send, recv := fds[0], fds[1]
	if gro {
		if e := SetGRO(Linux{}, recv, true); e != 0 {
			return os.NewSyscallError("setsockopt", e)
		}
	}
	if err := unix.Bind(recv, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	to, err := unix.Getsockname(recv)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	control := AppendSegment(make([]byte, 0, ControlSize), 2)
	if _, err := unix.SendmsgN(send, []byte("abcd"), control, to, 0); err != nil {
		return os.NewSyscallError("sendmsg", err)
	}
	if n, err := pollIn(recv, 1000); n != 1 || err != nil {
		return errors.Join(errors.New("nothing came back"), err)
	}
	var buf [16]byte
	n, err := unix.Read(recv, buf[:])
	if err != nil {
		return os.NewSyscallError("read", err)
	}
	if n != want {
		return fmt.Errorf("received %d bytes at once, %d were expected", n, want)
	}
	return nil
}
