//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A link carries IP packets between the two namespaces in user space, and can lose some of them. It takes
// the place of the kernel's netem, which not every kernel has.
type link struct {
	ends    [2]*os.File
	loss    atomic.Int64 // of a million packets
	largest atomic.Int64 // a longer packet is lost, without an ICMP error; 0: no limit
	lost    atomic.Int64
}

func newLink(s *space) (*link, error) {
	l := &link{}
	var err error
	if l.ends[0], err = tun("w0"); err != nil {
		return nil, err
	}
	if err := s.run(func() error {
		var err error
		l.ends[1], err = tun("r0")
		return err
	}); err != nil {
		return nil, err
	}
	go l.carry(0)
	go l.carry(1)
	return l, nil
}

// tun makes a device in the namespace of the calling thread; what the kernel sends there is read from the
// file.
func tun(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make a tun device: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (l *link) carry(from int) {
	b := make([]byte, 65536)
	for {
		n, err := l.ends[from].Read(b)
		if err != nil {
			return
		}
		if most := l.largest.Load(); most > 0 && int64(n) > most || rand.Int64N(1e6) < l.loss.Load() {
			l.lost.Add(1)
			continue
		}
		l.ends[1-from].Write(b[:n]) // an interface that is down takes nothing
	}
}
