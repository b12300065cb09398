//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The floor makes the same two system calls, with headers that were packed once, and does nothing
// in Go: without GSO and GRO, no library on this socket can be faster. floor-nopoll does the same
// on a socket that Go's netpoller does not watch, and so shows the cost of watching: the kernel
// notifies epoll of every datagram that leaves.

type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

func floor(c *net.UDPConn, n, size int) (x exchange, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return exchange{}, err
	}
	err = raw.Control(func(fd uintptr) { x = floorOn(fd, address(c), n, size) })
	return x, err
}

func floorNoPoll(c *net.UDPConn, n, size int) (x exchange, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return exchange{}, err
	}
	var fd int
	var derr error
	if err := raw.Control(func(old uintptr) { fd, derr = unix.Dup(int(old)) }); err != nil {
		return exchange{}, err
	}
	if derr != nil {
		return exchange{}, derr
	}
	to := address(c)
	c.Close() // the netpoller watches this descriptor, but not its copy
	x = floorOn(uintptr(fd), to, n, size)
	x.close = func() { unix.Close(fd) }
	return x, nil
}

func floorOn(fd uintptr, addr netip.AddrPort, n, size int) exchange {
	to := &unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: addr.Addr().As4()}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&to.Port))[:], addr.Port())
	message := func(name *unix.RawSockaddrInet4, b []byte) (m mmsghdr) {
		iov := &unix.Iovec{Base: &b[0]}
		iov.SetLen(len(b))
		m.hdr = unix.Msghdr{Name: (*byte)(unsafe.Pointer(name)), Namelen: unix.SizeofSockaddrInet4, Iov: iov}
		m.hdr.SetIovlen(1)
		return m
	}
	out, in := make([]mmsghdr, n), make([]mmsghdr, n)
	data := make([]byte, size)
	for i := range n {
		out[i] = message(to, data)
		in[i] = message(new(unix.RawSockaddrInet4), make([]byte, size))
	}
	var calls int64
	call := func(trap uintptr, hdrs []mmsghdr) error {
		for done := 0; done < n; calls++ {
			k, _, e := unix.Syscall6(trap, fd, uintptr(unsafe.Pointer(&hdrs[done])), uintptr(n-done), 0, 0, 0)
			if e != 0 {
				return fmt.Errorf("after %d of %d: %w", done, n, e)
			}
			done += int(k)
		}
		return nil
	}
	return exchange{once: func() error {
		if err := call(unix.SYS_SENDMMSG, out); err != nil {
			return err
		}
		return call(unix.SYS_RECVMMSG, in)
	}, calls: func() int64 { return calls }}
}
