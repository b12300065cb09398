package dgram

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// Conn sends and receives batches of datagrams on a socket that the caller owns. It has
// no Close method: when the socket is closed, the Conn holds no resources.
//
// Multiple goroutines may invoke methods on a Conn simultaneously. At any time one of
// them reads and one of them writes; the others wait for their turn.
type Conn struct {
	sock   socket
	remote netip.AddrPort // the peer of a connected UDP socket, zero otherwise
	path   *net.UnixAddr  // the peer of a connected Unix socket, nil otherwise
	mode   Mode
	driver driver
	counters
	icmp icmpErrors
}

// socket is what *net.UDPConn and *net.UnixConn share.
type socket interface {
	net.Conn
	syscall.Conn
}

// driver moves batches. There are two: one moves whole batches with the kernel's help,
// the other one datagram at a time with package net.
type driver interface {
	// read blocks until it has received at least one message, or an error. Without wait it
	// returns 0 and a nil error instead of blocking.
	read(ms []Message, wait bool) (int, error)

	// write blocks until all messages were sent or one has failed, and returns how many were
	// sent before it.
	write(ms []Message) (int, error)
}

// New returns a Conn that uses c, which the caller still owns and must close. On Linux
// New sets the socket options UDP_GRO, SO_RXQ_OVFL and those that cfg needs, and makes
// the socket non-blocking, in case Fd was called on a File of it. What the kernel does
// not support is left out; see [Conn.Mode].
//
// The options are the socket's, not the Conn's. If c is read in another way, set
// [Config.NoGRO], even if the Conn only writes: with GRO, that reader gets several
// datagrams as one, cut to its buffer. A second Conn of the same socket changes the
// options for the first one, whose Mode stays what it was.
//
// New returns an error if c is closed, and EINVAL if c is nil.
func New(c *net.UDPConn, cfg Config) (*Conn, error) {
	if c == nil {
		return nil, fmt.Errorf("make a batch connection: %w", syscall.EINVAL)
	}
	return newConn(c, cfg, bestDriver)
}

// NewUnix is like [New] for a Unix datagram socket, on which Message.Path is the
// address. There is no GSO and no GRO: a message with Segment set is sent as single
// datagrams. Of cfg only Time applies. Descriptors that a peer passes are not accepted;
// see Message.Control.
func NewUnix(c *net.UnixConn, cfg Config) (*Conn, error) {
	if c == nil || c.LocalAddr() == nil {
		return nil, fmt.Errorf("make a batch connection: %w", syscall.EINVAL)
	}
	if network := c.LocalAddr().Network(); network != "unixgram" {
		return nil, fmt.Errorf("make a batch connection: %w", net.UnknownNetworkError(network))
	}
	return newConn(c, cfg, bestDriver)
}

func newConn(sock socket, cfg Config, open func(*Conn, Config) (driver, error)) (*Conn, error) {
	c := &Conn{sock: sock}
	if a, ok := sock.RemoteAddr().(*net.UDPAddr); ok && a != nil {
		c.remote = plain(a.AddrPort())
	}
	if a, ok := sock.RemoteAddr().(*net.UnixAddr); ok {
		c.path = a
	}
	d, err := open(c, cfg)
	if err != nil {
		return nil, err
	}
	c.driver = d
	return c, nil
}

// Mode returns what the system supports of the Config. It never changes.
func (c *Conn) Mode() Mode { return c.mode }

// Stats returns the counters. They are read one after another, so they may not be of
// the same moment.
func (c *Conn) Stats() Stats {
	c.observeDrops()
	return c.stats()
}

// ReadBatch receives at least one message and at most len(ms), and returns how many. It
// blocks until there is a message, the socket's read deadline passes
// ([os.ErrDeadlineExceeded]), or the socket is closed ([net.ErrClosed]).
//
// The error is nil if and only if n > 0. An error that belongs to a datagram sent
// earlier, such as ECONNREFUSED on a connected socket, is returned once, and the next
// call continues. The error is [io.ErrShortBuffer], and nothing is received, if ms is
// empty, or if a buffer is shorter than MaxSize and Mode.GRO is true.
//
// ReadBatch does not keep the buffers, and it does not allocate.
func (c *Conn) ReadBatch(ms []Message) (n int, err error) {
	switch {
	case c.driver == nil:
		return 0, c.fail("read", errZeroConn)
	case len(ms) == 0:
		return 0, c.fail("read", fmt.Errorf("batch of no messages: %w", io.ErrShortBuffer))
	}
	return c.driver.read(ms, true)
}

// TryReadBatch is like [Conn.ReadBatch] but does not wait for a message: it returns 0
// and a nil error if there is none. It waits for its turn while another goroutine reads.
// If Mode.Batch is false, it returns [errors.ErrUnsupported].
func (c *Conn) TryReadBatch(ms []Message) (n int, err error) {
	if !c.mode.Batch {
		return 0, c.fail("read", errors.ErrUnsupported)
	}
	if len(ms) == 0 {
		return 0, nil
	}
	return c.driver.read(ms, false)
}

// WriteBatch sends the messages in order and returns how many were sent. It blocks
// while the socket's buffer is full, until the write deadline passes or the socket is
// closed.
//
// If n < len(ms), err is the error of message n: the messages before it were sent, and
// those after it were not tried. The caller may skip it and continue with n+1. If it is
// a run, some of its datagrams may have been sent; its N is the number of bytes. An
// error may also belong to a datagram sent earlier, such as ECONNREFUSED on a connected
// socket; message n has not been sent then and may be tried again.
//
// Errors include ECONNREFUSED, nothing received an earlier datagram; EPERM, a packet
// filter dropped the datagram; ENOBUFS, the device's queue is full; EMSGSIZE, the
// datagram is longer than is possible or than the path allows; EDESTADDRREQ, there is
// no Addr; [net.ErrWriteToConnected], Addr or Path is not the peer's; and EINVAL,
// Segment is negative.
//
// WriteBatch does not keep the buffers, and it does not allocate.
func (c *Conn) WriteBatch(ms []Message) (n int, err error) {
	switch {
	case c.driver == nil:
		return 0, c.fail("write", errZeroConn)
	case len(ms) == 0:
		return 0, nil
	}
	return c.driver.write(ms)
}

// errZeroConn is the error of a Conn that has no socket.
var errZeroConn = fmt.Errorf("dgram: use of a Conn that New has not made: %w", syscall.EINVAL)

// fail wraps an error as package net does, so that it names the socket.
func (c *Conn) fail(op string, err error) error {
	if c.sock == nil {
		return &net.OpError{Op: op, Net: "udp", Err: errZeroConn}
	}
	return &net.OpError{Op: op, Net: c.sock.LocalAddr().Network(), Source: c.sock.LocalAddr(), Addr: c.sock.RemoteAddr(), Err: err}
}

// failCall is fail for the error of a system call.
func (c *Conn) failCall(op, call string, errno syscall.Errno) error {
	return c.fail(op, os.NewSyscallError(call, errno))
}

// failWait is fail for an error of the netpoller: closed, or past the deadline.
func (c *Conn) failWait(op string, err error) error {
	if oe, ok := errors.AsType[*net.OpError](err); ok {
		err = oe.Err
	}
	return c.fail(op, err)
}

// badSegment returns the error of a message with an invalid Segment.
func (c *Conn) badSegment(m *Message) error {
	return fmt.Errorf("segment of %d bytes: %w", m.Segment, syscall.EINVAL)
}

// plain returns ap with an IPv4 address in IPv6 form converted to IPv4.
func plain(ap netip.AddrPort) netip.AddrPort {
	if ap.Addr().Is4In6() {
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return ap
}

// toPeer reports whether ap is the peer of a connected socket.
func (c *Conn) toPeer(ap netip.AddrPort) bool {
	return c.remote.IsValid() && plain(ap) == c.remote
}

// toPath reports whether path is empty or the peer of a connected Unix socket.
func (c *Conn) toPath(path string) bool {
	return path == "" || c.path != nil && path == c.path.Name
}

// short returns the error of a buffer that is too short for super-packets.
func (c *Conn) short(n int) error {
	return c.fail("read", fmt.Errorf("buffer of %d bytes where super-packets of up to %d arrive: %w", n, MaxSize, io.ErrShortBuffer))
}
