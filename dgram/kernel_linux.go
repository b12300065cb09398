package dgram

import (
	"net"
	"net/netip"
	"syscall"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
)

// linux is the kernel of all sockets: here their owner makes them.
var linux sys.Linux

// kernel is the driver that moves whole batches: recvmmsg(2) and sendmmsg(2)
// over Go's netpoller.
type kernel struct {
	c      *Conn
	raw    syscall.RawConn
	family sys.Family
	peer6  bool  // the peer of a connected socket has an IPv6 address
	tos4   uint8 // the socket's own TOS byte, whose upper six bits are kept
	tos6   uint8 // the same for IPv6's traffic class
	count  int   // most datagrams in a run; 1 without GSO
	routes routes
	reader reader
	writer writer
}

func bestDriver(c *Conn, cfg Config) (driver, error) {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return nil, err
	}
	k := &kernel{c: c, raw: raw, count: 1}
	k.peer6 = c.remote.Addr().Is6()
	var errno sys.Errno
	if err := raw.Control(func(fd uintptr) { errno = k.setUp(fd, cfg) }); err != nil {
		return nil, c.failWait("set up", err)
	}
	if errno != 0 {
		return nil, c.failCall("set up", "getsockopt", errno)
	}
	k.reader.init(k)
	k.writer.init(k)
	return k, nil
}

// setUp sets the options that cfg needs, and sets the mode to what the kernel supports.
func (k *kernel) setUp(fd uintptr, cfg Config) (errno sys.Errno) {
	if k.family, errno = sys.FamilyOf(linux, int(fd)); errno != 0 {
		return errno
	}
	if errno = sys.SetNonblock(int(fd)); errno != 0 {
		return errno
	}
	m := &k.c.mode
	m.Batch = true
	m.Time = cfg.Time && sys.SetRecvTime(linux, int(fd)) == 0
	if k.family == sys.Unix {
		return 0
	}
	// Both calls are made in any case: a segment size or GRO may have been set on the socket
	// before, and NoGSO and NoGRO reset them.
	m.GSO = sys.HasGSO(linux, int(fd)) && !cfg.NoGSO
	m.GRO = sys.SetGRO(linux, int(fd), !cfg.NoGRO) == 0 && !cfg.NoGRO
	m.ECN = cfg.ECN && sys.SetRecvTOS(linux, int(fd), k.family, true) == 0
	m.Local = cfg.Local && sys.SetRecvLocal(linux, int(fd), k.family) == 0
	m.Errors = cfg.Errors && sys.SetRecvErr(linux, int(fd), k.family, true) == 0
	m.Pace = cfg.Pace && sys.SetTxTime(fd) == 0
	m.Lost = sys.SetRecvDrops(linux, int(fd)) == 0
	k.tos4, k.tos6 = sys.TOS(linux, int(fd), k.family)
	if m.GSO {
		k.count = segment.MaxCount
		if v, err := feature.Kernel(); err != nil || v.Less(feature.Version{5, 16}) {
			k.count = segment.MaxCountOld
		}
	}
	return 0
}

func (k *kernel) read(ms []Message, wait bool) (int, error) { return k.reader.read(ms, wait) }
func (k *kernel) write(ms []Message) (int, error)           { return k.writer.write(ms) }

// v6 reports whether a datagram to a travels as IPv6. An invalid a means the
// peer of a connected socket.
func (k *kernel) v6(a netip.Addr) bool {
	if k.family != sys.IPv6 {
		return false
	}
	if !a.IsValid() {
		return k.peer6
	}
	return a.Is6() && !a.Is4In6()
}

// observeDrops reads the kernel's counter: the one that comes with a datagram is as old as
// the datagram.
func (c *Conn) observeDrops() {
	if !c.mode.Lost {
		return
	}
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return // closed: the last reading is kept
	}
	_ = raw.Control(func(fd uintptr) { // likewise
		if n, errno := sys.Drops(linux, int(fd)); errno == 0 {
			c.drops.observe(n)
		}
	})
}

var _ driver = (*kernel)(nil)
var _ socket = (*net.UDPConn)(nil)
var _ socket = (*net.UnixConn)(nil)
