package clienthello

import (
	"io"
	"net"
	"slices"
)

// firstRead is the size of the first buffer of Peek: most ClientHellos fit.
const firstRead = 4 << 10

// emptyReads is how many calls of Read in a row may return 0 and no error, as in package bufio.
const emptyReads = 100

// Peek reads a ClientHello from c. It returns a Conn that replaces c: reading from it
// returns the bytes that Peek has read first.
//
// Peek blocks until it has read a whole ClientHello, but reads at most [MaxSize] bytes.
// Set a read deadline on c before the call and clear it afterwards, because a client
// that sends nothing would block Peek forever.
//
// The error is one of Parse, or of c, such as [os.ErrDeadlineExceeded], or [io.EOF] if
// the client has ended its side before the ClientHello was complete, or [io.ErrNoProgress]
// if 100 calls of Read in a row have returned nothing. The Conn is valid
// even if there is an error, so that a connection that is not TLS can still be relayed.
func Peek(c net.Conn) (*Conn, Hello, error) {
	p := &Conn{Conn: c}
	buf := make([]byte, 0, firstRead)
	for empty := 0; ; {
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
		if empty++; n > 0 {
			empty = 0
		}
		if err == nil && empty == emptyReads {
			err = io.ErrNoProgress
		}
		if err != nil {
			return p, Hello{}, err
		}
	}
}

// Conn is a connection from which [Peek] has read. It implements the interface Wrapper of
// package splice: packages splice and relay deliver the bytes that Peek has read and then use
// the connection inside.
type Conn struct {
	net.Conn
	read []byte // by Peek, and not yet returned
}

// Read returns the bytes that Peek has read, and then reads from the connection inside.
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
