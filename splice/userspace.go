package splice

import (
	"io"
	"net"

	"github.com/penstock/penstock/pool"
)

// buffers are shared by all copies of the process.
var buffers pool.Buffers

// userBuffer is io.Copy's buffer size.
const userBuffer = 32 << 10

// moveUser carries a direction through user-space memory, by Read and Write.
func moveUser(dst, src net.Conn, read []byte, w *watcher, why Why) (t Transfer, atSrc bool, err error) {
	t.Why = why
	buf := buffers.Get(userBuffer)
	defer buffers.Put(buf)
	write := func(p []byte) error {
		t.Path = PathCopy
		t.Read += int64(len(p))
		w.tell(t) // Write may take long
		n, err := dst.Write(p)
		t.Written += int64(n)
		w.tell(t)
		if err == nil && n < len(p) {
			err = io.ErrShortWrite
		}
		return err
	}
	if len(read) > 0 {
		if err := write(read); err != nil {
			return t, false, err
		}
	}
	for {
		n, err := src.Read(buf)
		if w.left.Load() {
			return t, true, net.ErrClosed
		}
		if n > 0 {
			if err := write(buf[:n]); err != nil {
				return t, false, err
			}
		}
		if err == io.EOF {
			return t, true, nil
		}
		if err != nil {
			return t, true, err
		}
	}
}
