//go:build !linux

package dgram

import "errors"

// icmpErrors has nothing to read.
type icmpErrors struct{}

// ReadErrors returns [errors.ErrUnsupported]: only Linux has an error queue.
func (c *Conn) ReadErrors([]ICMPError) (n int, err error) {
	return 0, c.fail("read errors", errors.ErrUnsupported)
}
