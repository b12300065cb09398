package xnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/ipv4"

	"github.com/penstock/penstock/dgram"
)

// Conn is a UDP socket with the batch calls of x/net. Multiple goroutines may invoke
// methods on a Conn simultaneously. It replaces the *net.UDPConn that it was made from:
// with super-packets, reading from that one would take several datagrams for one.
type Conn struct {
	*net.UDPConn
	d *dgram.Conn
	r reader
	w writer

	// theirs does what dgram does not: other flags, and what only it will send.
	theirs batches
}

// batches are the batch calls of x/net.
type batches interface {
	ReadBatch(ms []ipv4.Message, flags int) (int, error)
	WriteBatch(ms []ipv4.Message, flags int) (int, error)
}

// New returns a Conn that uses c and owns it: Close closes both. NoGSO and NoGRO of cfg
// apply. The other fields have little effect, because metadata is read and written as
// control messages, as in x/net.
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

// errZeroConn is the error of a Conn that has no socket.
var errZeroConn = fmt.Errorf("xnet: use of a Conn that New has not made: %w", syscall.EINVAL)

// unmade returns that error as package net does.
func unmade(op string) error { return &net.OpError{Op: op, Net: "udp", Err: errZeroConn} }

// Stats returns the counters of the underlying dgram.Conn.
func (c *Conn) Stats() dgram.Stats {
	if c.d == nil {
		return dgram.Stats{}
	}
	return c.d.Stats()
}

// Mode returns what the system supports of the Config.
func (c *Conn) Mode() dgram.Mode {
	if c.d == nil {
		return dgram.Mode{}
	}
	return c.d.Mode()
}

// ReadBatch receives at least one datagram and at most len(ms), and returns how many. It
// sets N, NN, Flags and Addr of their messages. It blocks until there is a datagram, the
// read deadline passes, or the socket is closed. With MSG_DONTWAIT in flags it returns
// EAGAIN if there is no datagram. The error is nil if and only if n > 0 or ms is empty.
//
// A datagram is stored in the Buffers of its message, one after another; if they are too
// short, Flags has MSG_TRUNC. OOB receives its control messages. Addr is a *net.UDPAddr
// that is shared between messages. Flags other than MSG_DONTWAIT, such as MSG_PEEK, need
// [dgram.Config.NoGRO]; with super-packets the error is [errors.ErrUnsupported].
func (c *Conn) ReadBatch(ms []ipv4.Message, flags int) (n int, err error) {
	switch flags &^= ignoredFlags; {
	case flags == 0, c.d == nil:
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

// WriteBatch sends the messages in order and returns how many were sent. The error is
// nil if and only if n > 0 or ms is empty: an error of a later message is returned by the
// next call, which begins with that message.
//
// Addr is a *net.UDPAddr, or nil on a connected socket. Several Buffers of a message are
// copied into one; a single buffer is not copied. Messages are sent one by one by x/net
// if flags is not 0, if Addr is not the peer of a connected socket, and if there are more
// than a few hundred bytes of OOB.
func (c *Conn) WriteBatch(ms []ipv4.Message, flags int) (n int, err error) {
	if flags&^ignoredFlags != 0 && c.d != nil {
		n, err = c.theirs.WriteBatch(ms, flags)
		return max(n, 0), err
	}
	return c.w.write(ms)
}

// The reads of *net.UDPConn, datagram by datagram.

// Read reads one datagram. As in package net, a read into an empty buffer returns at once
// and receives nothing.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return c.UDPConn.Read(b)
	}
	n, _, _, _, err := c.r.readOne(b, nil)
	return n, err
}

// ReadFrom reads one datagram. The address is a *net.UDPAddr, which is shared and must
// not be modified.
func (c *Conn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, a, err := c.ReadFromUDP(b)
	if err != nil {
		return 0, nil, err
	}
	return n, a, nil
}

// ReadFromUDP is like [Conn.ReadFrom] with an address of another type.
func (c *Conn) ReadFromUDP(b []byte) (int, *net.UDPAddr, error) {
	n, _, _, a, err := c.r.readOne(b, nil)
	return n, a, err
}

// ReadFromUDPAddrPort is like [Conn.ReadFrom] with an address of another type.
func (c *Conn) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	n, _, _, a, err := c.r.readOne(b, nil)
	if err != nil {
		return 0, netip.AddrPort{}, err
	}
	return n, a.AddrPort(), nil
}

// ReadMsgUDP reads one datagram and its control messages; see [net.UDPConn.ReadMsgUDP].
func (c *Conn) ReadMsgUDP(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error) {
	return c.r.readOne(b, oob)
}

// ReadMsgUDPAddrPort is like [Conn.ReadMsgUDP] with an address of another type.
func (c *Conn) ReadMsgUDPAddrPort(b, oob []byte) (n, oobn, flags int, addr netip.AddrPort, err error) {
	n, oobn, flags, a, err := c.r.readOne(b, oob)
	if err != nil {
		return 0, 0, 0, netip.AddrPort{}, err
	}
	return n, oobn, flags, a.AddrPort(), nil
}
