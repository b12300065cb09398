package splice

import (
	"bufio"
	"net"
)

// Wrapper is implemented by a net.Conn that wraps another one and does not change its
// bytes, such as one that has peeked at the first of them. [Copy], [Relay] and Engine.Relay
// of package relay use the connection inside. [Conn] is one, and clienthello.Conn is
// another.
//
// A method NetConn, which [crypto/tls.Conn] has too, does not say that the bytes are the
// same. It is not called.
type Wrapper interface {
	// Unwrap returns the connection inside.
	Unwrap() net.Conn
	// TakeRead returns the bytes that the wrapper has read from the connection inside
	// and that its Read has not returned yet, and forgets them. The caller delivers them
	// first and then reads from the connection inside. The slice belongs to the caller:
	// the wrapper does not use it again.
	TakeRead() []byte
}

// Conn is a connection from which a [bufio.Reader] has read. It is a [Wrapper].
type Conn struct {
	net.Conn
	read *bufio.Reader // nil: it has nothing
}

// NewConn returns a Conn of c that first has what r has read from c and not returned yet.
// r must read from c. It belongs to the Conn and must not be used any more.
//
// A connection taken over from package http is NewConn(c, rw.Reader), with the results of
// its Hijack method.
func NewConn(c net.Conn, r *bufio.Reader) *Conn { return &Conn{c, r} }

// Read returns the bytes that have been read before, and then reads from the connection
// inside.
func (c *Conn) Read(p []byte) (int, error) {
	if c == nil || c.Conn == nil {
		return 0, errNilConn
	}
	if c.read != nil && c.read.Buffered() > 0 {
		return c.read.Read(p)
	}
	c.read = nil
	return c.Conn.Read(p)
}

// Unwrap returns the connection inside, which is nil for a nil Conn.
func (c *Conn) Unwrap() net.Conn {
	if c == nil {
		return nil
	}
	return c.Conn
}

// TakeRead returns the bytes that have been read before and that Read has not returned yet.
func (c *Conn) TakeRead() []byte {
	if c == nil || c.read == nil {
		return nil
	}
	b, _ := c.read.Peek(c.read.Buffered())
	c.read = nil
	return b
}
