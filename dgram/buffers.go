package dgram

// SetReadBuffer asks for n bytes of receive buffer and returns how many the
// kernel granted, which is less where net.core.rmem_max says so and the process
// has no CAP_NET_ADMIN. A granted size of 0 means that the system does not tell.
//
// The kernel counts its own memory for a datagram against the buffer: about
// twice the payload of 1,200-byte datagrams, and ten times that of the smallest.
func (c *Conn) SetReadBuffer(n int) (granted int, err error) { return c.setBuffer(n, false) }

// SetWriteBuffer is SetReadBuffer for what is sent; the limit is net.core.wmem_max.
func (c *Conn) SetWriteBuffer(n int) (granted int, err error) { return c.setBuffer(n, true) }
