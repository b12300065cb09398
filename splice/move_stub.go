//go:build !linux

package splice

import (
	"io"
	"net"
)

// move carries one direction by a copy: this system has no splice.
func (cfg *Config) move(dst io.Writer, src io.Reader, read []byte, limit int64, w *watcher) (Transfer, bool, error) {
	return moveUser(dst, src, read, limit, w, Transfer{Why: WhyKernel})
}

// obeys reports whether c is a connection that its deadlines always stop.
func obeys(c net.Conn) bool {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}
