package splice

import (
	"io"
	"net"
	"os"
	"syscall"
)

// delegate returns the method by which src or dst moves the stream itself, asked in io.Copy's
// order, or nil if neither has one, or one that is better than a copy through a buffer.
func delegate(dst io.Writer, src io.Reader) func() (int64, error) {
	if w, ok := src.(io.WriterTo); ok && helps(src, dst) {
		return func() (int64, error) { return w.WriteTo(dst) }
	}
	if r, ok := dst.(io.ReaderFrom); ok && helps(dst, src) {
		return func() (int64, error) { return r.ReadFrom(src) }
	}
	return nil
}

// helps reports whether x's own method may be better than a copy. That of a socket or of a file is
// a copy, in which nothing is counted, unless the other end has a descriptor, too.
func helps(x, other any) bool {
	switch x.(type) {
	case *net.TCPConn, *os.File:
		if l, ok := other.(*io.LimitedReader); ok {
			other = l.R
		}
		_, ok := other.(syscall.Conn)
		return ok
	}
	return true
}
