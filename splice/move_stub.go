//go:build !linux

package splice

import (
	"io"
	"net"

	"github.com/penstock/penstock/datapath"
)

// move copies one direction: this system has no splice.
func (cfg *Config) move(dst io.Writer, src io.Reader, read []byte, limit int64, w *watcher) (Transfer, bool, error) {
	return moveUser(dst, src, read, limit, w, Transfer{Why: datapath.WhyKernel})
}

// moves reports whether move does all that can be done for these two.
func moves(dst io.Writer, src io.Reader) bool {
	to, ok := dst.(net.Conn)
	from, also := src.(net.Conn)
	return ok && also && obeys(to) && obeys(from)
}

// obeys reports whether deadlines always stop reads and writes of c.
func obeys(c net.Conn) bool {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}
