//go:build !linux

package dgram

// buffered is what the net package's datagram sockets share.
type buffered interface {
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
}

func (c *Conn) setBuffer(n int, send bool) (granted int, err error) {
	b := c.sock.(buffered)
	if send {
		return 0, b.SetWriteBuffer(n)
	}
	return 0, b.SetReadBuffer(n)
}
