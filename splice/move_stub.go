//go:build !linux

package splice

import "net"

// move carries one direction by a copy: this system has no splice.
func (cfg *Config) move(dst, src net.Conn, read []byte, w *watcher) (Transfer, bool, error) {
	return moveUser(dst, src, read, w, WhyKernel)
}

// obeys reports whether c is a connection that its deadlines always stop.
func obeys(c net.Conn) bool {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}
