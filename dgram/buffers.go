package dgram

// SetReadBuffer sets the size of the socket's receive buffer to n bytes and returns the
// size that the kernel granted, which is at most net.core.rmem_max unless the process
// has CAP_NET_ADMIN. A granted size of 0 means that the system does not report it.
//
// The kernel counts its own memory for a datagram against the buffer: about twice the
// payload for datagrams of 1,200 bytes, and ten times the payload for the smallest.
func (c *Conn) SetReadBuffer(n int) (granted int, err error) { return c.setBuffer(n, false) }

// SetWriteBuffer is like [Conn.SetReadBuffer] for the send buffer, with the limit
// net.core.wmem_max.
func (c *Conn) SetWriteBuffer(n int) (granted int, err error) { return c.setBuffer(n, true) }
