//go:build !linux

package splice

import (
	"io"
	"net"
)

// move copies one direction: this system has no splice.
func (cfg *Config) move(dst io.Writer, src io.Reader, read []byte, limit int64, w *watcher) (Transfer, bool, error) {
	return moveUser(dst, src, read, limit, w, Transfer{Why: WhyKernel})
}

// obeys reports whether deadlines always stop reads and writes of c.
func obeys(c net.Conn) bool {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}
