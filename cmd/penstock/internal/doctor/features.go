package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A feature is something that a kernel can do, or allow this process to do.
type feature struct {
	name   string
	since  string // release
	try    func() error
	status Status // if the feature is not there
	// cost and fix if the feature is not there; denied replaces fix if the kernel has it,
	// but this process is not allowed to use it.
	cost, fix, denied string
}

const (
	upgrade   = "a newer kernel: Linux "
	asAdmin   = "systemd: AmbientCapabilities=CAP_NET_ADMIN; or: setcap cap_net_admin+ep $(command -v penstock)"
	asService = "systemd: AmbientCapabilities=CAP_SYS_RESOURCE, or fewer pipes: engine.pipes"
)

var kernelFeatures = []feature{
	{name: "splice", since: "4.2", try: trySplice, status: Missing, cost: "every byte of a stream is copied through the daemon"},
	{name: "pipes of 1 MiB", since: "2.6.35", try: tryPipe, status: Warn, denied: asService,
		cost: "bulk is spliced in pieces of 64 KiB or less, which takes about 1.7 times the CPU"},
	{name: "SO_REUSEPORT", since: "3.9", try: option(unix.SOCK_STREAM, unix.SOL_SOCKET, unix.SO_REUSEPORT), status: Missing,
		cost: "one loop accepts for all, and a second daemon cannot take a port over"},
	{name: "EPOLLEXCLUSIVE", since: "4.5", try: tryExclusive, status: Warn, cost: "each client of a Unix listener wakes all loops"},
	{name: "UDP_SEGMENT (GSO)", since: "4.18", try: option(unix.SOCK_DGRAM, unix.SOL_UDP, unix.UDP_SEGMENT), status: Missing, cost: "datagrams leave one by one"},
	{name: "UDP_GRO", since: "5.0", try: option(unix.SOCK_DGRAM, unix.SOL_UDP, unix.UDP_GRO), status: Missing, cost: "datagrams arrive one by one"},
	{name: "SO_TXTIME", since: "4.19", try: tryTxtime, status: Warn, cost: "datagrams cannot be paced by the kernel"},
	{name: "IP_BIND_ADDRESS_NO_PORT", since: "4.2", try: option(unix.SOCK_STREAM, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT), status: Warn,
		cost: "a source address has one range of ports for all upstreams together"},
	{name: "TCP_FASTOPEN", since: "3.7", try: option(unix.SOCK_STREAM, unix.SOL_TCP, unix.TCP_FASTOPEN), status: Warn, cost: "listeners cannot offer fast open"},
	{name: "TCP_FASTOPEN_CONNECT", since: "4.11", try: option(unix.SOCK_STREAM, unix.SOL_TCP, unix.TCP_FASTOPEN_CONNECT), status: Warn,
		cost: "upstreams cannot be reached with fast open"},
	{name: "MPTCP", since: "5.6", try: tryMPTCP, status: Warn, cost: "listeners and upstreams that ask for MPTCP fail", fix: "sysctl -w net.mptcp.enabled=1, or " + upgrade + "5.6 with CONFIG_MPTCP"},
	{name: "IP_TRANSPARENT", since: "2.6.28", try: option(unix.SOCK_STREAM, unix.SOL_IP, unix.IP_TRANSPARENT), status: Warn, denied: asAdmin,
		cost: "upstreams cannot see clients' addresses as source addresses"},
	{name: "SO_MARK", since: "2.6.25", try: option(unix.SOCK_STREAM, unix.SOL_SOCKET, unix.SO_MARK), status: Warn, denied: asAdmin, cost: "a route or a group cannot mark its sockets"},
}

// features tries all features. Costs include measured figures.
func features(try func(feature) error, s speeds) (all []Finding) {
	for _, f := range kernelFeatures {
		x := Finding{Group: "kernel", Name: f.name, Status: OK, Found: "works"}
		if err := try(f); err != nil {
			x.Status, x.Found, x.Cost, x.Fix = f.status, err.Error(), f.cost, f.fix
			if x.Fix == "" {
				x.Fix = upgrade + f.since + " or later"
			}
			if errors.Is(err, os.ErrPermission) && f.denied != "" {
				x.Fix = f.denied
			}
			switch {
			case f.name == "splice" && s.copied > 0:
				x.Cost += fmt.Sprintf(": %.1f GB/s on this machine", s.copied)
			case f.status == Missing && s.plain > 0 && f.name != "SO_REUSEPORT":
				x.Cost += fmt.Sprintf(": %.2f us each on this machine; in runs they cost a fraction", s.plain)
			}
		}
		all = append(all, x)
	}
	return all
}

// withSocket opens an IPv4 socket for the call of do.
func withSocket(kind, protocol int, do func(fd int) error) error {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return do(fd)
}

// option returns a function that sets a socket option to 1.
func option(kind, level, name int) func() error {
	return func() error {
		return withSocket(kind, 0, func(fd int) error { return unix.SetsockoptInt(fd, level, name, 1) })
	}
}

// tryTxtime sets SO_TXTIME with the monotonic clock. Its value is a struct of two words, clock and
// flags (linux/net_tstamp.h).
func tryTxtime() error {
	return withSocket(unix.SOCK_DGRAM, 0, func(fd int) error {
		value := binary.NativeEndian.AppendUint32(nil, unix.CLOCK_MONOTONIC)
		value = binary.NativeEndian.AppendUint32(value, 0)
		return unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_TXTIME, string(value))
	})
}

func tryMPTCP() error {
	return withSocket(unix.SOCK_STREAM, unix.IPPROTO_MPTCP, func(int) error { return nil })
}

func withPipe(do func(r, w int) error) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return err
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	return do(p[0], p[1])
}

// tryPipe makes a pipe as large as those that bulk is spliced through.
func tryPipe() error {
	return withPipe(func(r, w int) error {
		_, err := unix.FcntlInt(uintptr(w), unix.F_SETPIPE_SZ, 1<<20)
		return err
	})
}

// trySplice moves a byte from a Unix stream socket, the source that splice supported last.
func trySplice() error {
	s, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s[0])
	defer unix.Close(s[1])
	if _, err := unix.Write(s[0], []byte{1}); err != nil {
		return err
	}
	return withPipe(func(r, w int) error {
		_, err := unix.Splice(s[1], nil, w, nil, 1, unix.SPLICE_F_NONBLOCK)
		return err
	})
}

func tryExclusive() error {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(ep)
	return withPipe(func(r, w int) error {
		return unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, r, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLEXCLUSIVE, Fd: int32(r)})
	})
}
