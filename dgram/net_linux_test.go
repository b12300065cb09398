package dgram

import (
	"net"

	"golang.org/x/sys/unix"
)

// forceReadBuffer gives a socket a receive buffer of n bytes, if this process may have that.
func forceReadBuffer(c *net.UDPConn, n int) {
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, n) })
	}
}
