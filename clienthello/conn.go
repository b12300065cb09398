package clienthello

import (
	"net"
	"slices"
)

// firstRead is the size of the first buffer of Peek: most ClientHellos fit.
const firstRead = 4 << 10

// Peek reads the ClientHello of a connection and returns it with a connection
// that still has all bytes: reads from the returned Conn begin with those that
// Peek has read. From then on use it in place of c.
//
// Peek blocks until the ClientHello is there. Set a read deadline on c before,
// and clear it afterwards, or a client that says nothing keeps the caller for
// ever. Peek reads at most MaxSize bytes.
//
// The error is as from [Parse], or c's own: io.EOF when the client ended before
// its ClientHello was complete, os.ErrDeadlineExceeded. The Conn is valid with an
// error, too: a connection that is not TLS can still be relayed.
func Peek(c net.Conn) (*Conn, Hello, error) {
	p := &Conn{Conn: c}
	buf := make([]byte, 0, firstRead)
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, min(cap(buf), MaxSize-len(buf)))
		}
		n, err := c.Read(buf[len(buf):min(cap(buf), MaxSize)])
		buf = buf[:len(buf)+n]
		p.read = buf
		h, parsed := Parse(buf)
		if parsed != ErrIncomplete {
			return p, h, parsed
		}
		if err != nil {
			return p, Hello{}, err
		}
	}
}

// Conn is a connection whose first bytes were read by [Peek]. It is a Wrapper of
// packages splice and relay, which deliver these bytes first and then use the
// socket inside, without a copy.
type Conn struct {
	net.Conn
	read []byte // by Peek, and by nobody since
}

// Read reads what Peek has read, and then from the connection inside.
func (c *Conn) Read(b []byte) (int, error) {
	if len(c.read) > 0 {
		n := copy(b, c.read)
		c.read = c.read[n:]
		return n, nil
	}
	c.read = nil
	return c.Conn.Read(b)
}

// Unwrap returns the connection inside.
func (c *Conn) Unwrap() net.Conn { return c.Conn }

// TakeRead returns the bytes that Peek has read and Read has not returned yet,
// and forgets them.
func (c *Conn) TakeRead() []byte {
	b := c.read
	c.read = nil
	return b
}
