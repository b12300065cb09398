package xnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/net/ipv4"

	"github.com/penstock/penstock/dgram"
)

// Conn is a UDP socket with the batch calls of x/net. Its methods may be called
// from many goroutines. It takes the place of the *net.UDPConn that it was made
// from: where super-packets arrive, reading from that one directly would take
// several datagrams for one.
type Conn struct {
	*net.UDPConn
	d *dgram.Conn
	r reader
	w writer

	// theirs does what dgram does not: other flags, and what only it will send.
	theirs batches
}

// batches are the calls of x/net that a Conn has, too.
type batches interface {
	ReadBatch(ms []ipv4.Message, flags int) (int, error)
	WriteBatch(ms []ipv4.Message, flags int) (int, error)
}

// New makes a Conn of c, which from then on belongs to it: Close closes both.
// What cfg says about sending and super-packets holds; metadata goes through
// control messages here, as in x/net, so that its other fields matter little.
func New(c *net.UDPConn, cfg dgram.Config) (*Conn, error) {
	d, err := dgram.New(c, cfg)
	if err != nil {
		return nil, err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	x := &Conn{UDPConn: c, d: d, theirs: ipv4.NewPacketConn(c)}
	a, ok := c.LocalAddr().(*net.UDPAddr)
	v4 := ok && a.IP.To4() != nil
	x.r = reader{c: c, d: d, raw: raw, split: d.Mode().GRO, addrs: addrs{v6: !v4}}
	x.w = writer{d: d, theirs: x.theirs, any: netip.IPv6Unspecified()}
	if v4 {
		x.w.any = netip.IPv4Unspecified()
	}
	return x, nil
}

// Stats returns the counters of the dgram.Conn beneath.
func (c *Conn) Stats() dgram.Stats { return c.d.Stats() }

// Mode tells what the kernel granted.
func (c *Conn) Mode() dgram.Mode { return c.d.Mode() }

// ReadBatch receives at least one datagram and at most len(ms), and sets N, NN,
// Flags and Addr of those received. It blocks until there is one, the read
// deadline passes or the socket is closed; with MSG_DONTWAIT in flags the error
// is EAGAIN if there is none. The error is not nil if and only if n is 0 and ms
// is not empty.
//
// A datagram is spread over a message's Buffers; MSG_TRUNC in Flags says that
// they were too short. OOB receives its control messages. Addr is a
// *net.UDPAddr that other messages share. Other flags, such as MSG_PEEK, need
// [dgram.Config.NoGRO]: where super-packets arrive they are refused with
// [errors.ErrUnsupported].
func (c *Conn) ReadBatch(ms []ipv4.Message, flags int) (n int, err error) {
	switch flags &^= ignoredFlags; {
	case flags == 0:
		return c.r.read(ms, true)
	case !c.r.split:
		n, err = c.theirs.ReadBatch(ms, flags)
		return max(n, 0), err
	case flags == msgDontwait:
		return c.r.read(ms, false)
	}
	return 0, &net.OpError{Op: "read", Net: "udp", Source: c.LocalAddr(), Addr: c.RemoteAddr(),
		Err: fmt.Errorf("flags %#x: %w", flags, errors.ErrUnsupported)}
}

// WriteBatch sends ms in order and returns how many left. The error is not nil
// if and only if n is 0 and ms is not empty: what stopped it at n > 0 is told by
// the next call, which begins there.
//
// Addr is a *net.UDPAddr, or nil on a connected socket. Several Buffers are
// gathered in a copy, one is sent from where it is. With flags, with an Addr
// that is not the peer's on a connected socket, and with more than
// a few hundred bytes of OOB, messages leave one by one, as x/net sends them.
func (c *Conn) WriteBatch(ms []ipv4.Message, flags int) (n int, err error) {
	if flags&^ignoredFlags != 0 {
		n, err = c.theirs.WriteBatch(ms, flags)
		return max(n, 0), err
	}
	return c.w.write(ms)
}

// The reads of *net.UDPConn, datagram by datagram.

// Read reads one datagram. As with the net package, a read of no bytes returns
// at once and takes none.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return c.UDPConn.Read(b)
	}
	n, _, _, _, err := c.r.one(b, nil)
	return n, err
}

// ReadFrom reads one datagram; the address is a *net.UDPAddr that others share.
func (c *Conn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, a, err := c.ReadFromUDP(b)
	if err != nil {
		return 0, nil, err
	}
	return n, a, nil
}

// ReadFromUDP is ReadFrom with another type.
func (c *Conn) ReadFromUDP(b []byte) (int, *net.UDPAddr, error) {
	n, _, _, a, err := c.r.one(b, nil)
	return n, a, err
}

// ReadFromUDPAddrPort is ReadFrom with another type.
func (c *Conn) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	n, _, _, a, err := c.r.one(b, nil)
	if err != nil {
		return 0, netip.AddrPort{}, err
	}
	return n, a.AddrPort(), nil
}

// ReadMsgUDP reads one datagram and its control messages.
func (c *Conn) ReadMsgUDP(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error) {
	return c.r.one(b, oob)
}

// ReadMsgUDPAddrPort is ReadMsgUDP with another type.
func (c *Conn) ReadMsgUDPAddrPort(b, oob []byte) (n, oobn, flags int, addr netip.AddrPort, err error) {
	n, oobn, flags, a, err := c.r.one(b, oob)
	if err != nil {
		return 0, 0, 0, netip.AddrPort{}, err
	}
	return n, oobn, flags, a.AddrPort(), nil
}
