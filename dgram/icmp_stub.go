//go:build !linux

package dgram

import "errors"

// icmpErrors is empty: this system has no error queue.
type icmpErrors struct{}

// ReadErrors returns [errors.ErrUnsupported]. Only Linux has an error queue.
func (c *Conn) ReadErrors(es []ICMPError) (n int, err error) {
	return 0, c.fail("read errors", errors.ErrUnsupported)
}
