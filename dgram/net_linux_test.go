package dgram

import (
	"net"

	"github.com/penstock/penstock/internal/sys"
)

// enlargeReadBuffer gives a socket a receive buffer of n bytes, if this process may have that.
func enlargeReadBuffer(c *net.UDPConn, n int) {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { sys.SetBuffer(sys.Linux{}, int(fd), false, n) })
	}
}
