//go:build !linux

package splice

import (
	"net"
	"sync/atomic"
)

// move carries one direction by a copy: this system has no splice.
func (cfg *Config) move(dst, src net.Conn, read []byte, g *gauge, _ *atomic.Bool) (Transfer, bool, error) {
	return moveUser(dst, src, read, g, WhyKernel)
}
