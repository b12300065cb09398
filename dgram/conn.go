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

// Conn sends and receives batches of datagrams on a socket that the caller
// goes on owning. Close the socket when done; a Conn holds nothing else that
// has to be given back.
//
// Methods may be called from many goroutines. Readers take turns, and so do
// writers: the one that waits for the socket is first, as with the net package.
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

// driver is one way to move batches. There are two: whole batches with the
// kernel's help, and one datagram at a time with the net package.
type driver interface {
	// read blocks until at least one message came or an error did. Without wait
	// it returns 0 and no error where it would block.
	read(ms []Message, wait bool) (int, error)

	// write blocks until all messages left or one failed, and returns how many
	// did before it.
	write(ms []Message) (int, error)
}

// New makes a Conn beside c. On Linux it sets socket options: UDP_GRO, SO_RXQ_OVFL
// and those that cfg asks for. What the kernel does not have is done without;
// [Conn.Mode] tells. The socket is made non-blocking, which it is anyway unless
// somebody called Fd on a File of it.
//
// The error is that of a closed socket, or EINVAL if c is nil.
func New(c *net.UDPConn, cfg Config) (*Conn, error) {
	if c == nil {
		return nil, fmt.Errorf("make a batch connection: %w", syscall.EINVAL)
	}
	return newConn(c, cfg, bestDriver)
}

// NewUnix makes a Conn beside a Unix datagram socket, where Message.Path is the
// address. There is no GSO and no GRO, a run of Message.Segment is sent one by
// one, and of cfg only Time applies. Descriptors that a peer passes are not
// accepted: see Message.Control.
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

// Mode tells what the kernel granted. It does not change.
func (c *Conn) Mode() Mode { return c.mode }

// Stats returns the counters. They are read one by one, while others may move them.
func (c *Conn) Stats() Stats {
	c.observeDrops()
	return c.stats()
}

// ReadBatch receives at least one message and at most len(ms), and returns how
// many. It blocks until there is one, the socket's read deadline passes
// ([os.ErrDeadlineExceeded]) or the socket is closed ([net.ErrClosed]).
//
// The error is not nil if and only if n is 0. One that the kernel kept from an
// earlier datagram, such as ECONNREFUSED on a connected socket, is returned
// once; the next call goes on. [io.ErrShortBuffer] says that there is no
// message to read into, or that a buffer is shorter than MaxSize though Mode
// says GRO; nothing was received then.
//
// The buffers may be used again when the call returns. It does not allocate.
func (c *Conn) ReadBatch(ms []Message) (n int, err error) {
	if len(ms) == 0 {
		return 0, c.fail("read", fmt.Errorf("batch of no messages: %w", io.ErrShortBuffer))
	}
	return c.driver.read(ms, true)
}

// TryReadBatch is ReadBatch without waiting for a message: it returns 0 and no
// error if there is none. It does wait for its turn where another reader waits,
// and needs the kernel's batches: without, the error is [errors.ErrUnsupported].
func (c *Conn) TryReadBatch(ms []Message) (n int, err error) {
	if !c.mode.Batch {
		return 0, c.fail("read", errors.ErrUnsupported)
	}
	if len(ms) == 0 {
		return 0, nil
	}
	return c.driver.read(ms, false)
}

// WriteBatch sends all messages in order and returns how many left. It blocks
// while the socket's buffer is full, until the write deadline.
//
// If n < len(ms), err is message n's: those before it have left, those behind it
// were not tried. The caller may drop it and go on at n+1. Some of its
// datagrams may have left if it was a run; its N says how many bytes. A write
// can also return an error that the kernel kept from an earlier datagram (on a
// connected socket ECONNREFUSED, for instance); message n has not left then,
// and may be tried again.
//
// Errors worth knowing: ECONNREFUSED, an earlier datagram met no socket; EPERM,
// the firewall dropped it; ENOBUFS, the device's queue is full, for now;
// EMSGSIZE, longer than a datagram or than the path allows; EDESTADDRREQ, no
// Addr; [net.ErrWriteToConnected], an Addr or a Path that is not the peer's;
// EINVAL, a negative Segment.
//
// The buffers may be used again when the call returns. It does not allocate.
func (c *Conn) WriteBatch(ms []Message) (n int, err error) {
	if len(ms) == 0 {
		return 0, nil
	}
	return c.driver.write(ms)
}

// fail gives an error the form of the net package's, so that it says which
// socket it was.
func (c *Conn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: c.sock.LocalAddr().Network(), Source: c.sock.LocalAddr(), Addr: c.sock.RemoteAddr(), Err: err}
}

// failCall is fail for what a system call returned.
func (c *Conn) failCall(op, call string, errno syscall.Errno) error {
	return c.fail(op, os.NewSyscallError(call, errno))
}

// failWait is fail for what the netpoller said: closed, or past the deadline.
func (c *Conn) failWait(op string, err error) error {
	if oe, ok := errors.AsType[*net.OpError](err); ok {
		err = oe.Err
	}
	return c.fail(op, err)
}

// badSegment is the error of a message whose Segment is not a valid size.
func (c *Conn) badSegment(m *Message) error {
	return fmt.Errorf("segment of %d bytes: %w", m.Segment, syscall.EINVAL)
}

// plain is ap without the IPv6 form of an IPv4 address.
func plain(ap netip.AddrPort) netip.AddrPort {
	if ap.Addr().Is4In6() {
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return ap
}

// toPeer reports whether ap needs no address on a connected socket.
func (c *Conn) toPeer(ap netip.AddrPort) bool {
	return c.remote.IsValid() && plain(ap) == c.remote
}

// toPath reports whether a message to path needs no address on a Unix socket.
func (c *Conn) toPath(path string) bool {
	return path == "" || c.path != nil && path == c.path.Name
}

// short says that a buffer cannot hold a super-packet.
func (c *Conn) short(n int) error {
	return c.fail("read", fmt.Errorf("buffer of %d bytes where super-packets of up to %d arrive: %w", n, MaxSize, io.ErrShortBuffer))
}
