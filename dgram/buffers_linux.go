package dgram

import "github.com/penstock/penstock/internal/sys"

func (c *Conn) setBuffer(n int, send bool) (granted int, err error) {
	var errno sys.Errno
	if err := c.control(func(fd uintptr) { granted, errno = sys.SetBuffer(linux, int(fd), send, n) }); err != nil {
		return 0, c.failWait("set buffer", err)
	}
	if errno != 0 {
		return 0, c.failCall("set buffer", "setsockopt", errno)
	}
	return granted, nil
}
