package splice

import (
	"errors"
	"io"
	"net"

	"github.com/penstock/penstock/pool"
)

// buffers are shared by all copies of the process.
var buffers pool.Buffers

// userBuffer is io.Copy's buffer size.
const userBuffer = 32 << 10

// errInvalidWrite is io.Copy's error for an invalid result of Write.
var errInvalidWrite = errors.New("invalid write result")

// moveUser moves a direction through user space with Read and Write. It continues from t,
// and reads up to limit bytes.
func moveUser(dst io.Writer, src io.Reader, read []byte, limit int64, w *watcher, t Transfer) (_ Transfer, atSrc bool, err error) {
	buf := buffers.Get(userBuffer)
	defer buffers.Put(buf)
	write := func(p []byte) error {
		if t.Path == PathNone {
			t.Path = PathCopy
		}
		t.Read += int64(len(p))
		w.tell(t) // Write may take long
		w.writes.Add(1)
		n, err := dst.Write(p)
		if n < 0 || n > len(p) {
			n, err = 0, errors.Join(err, errInvalidWrite)
		}
		t.Written += int64(n)
		w.tell(t)
		if err == nil && n < len(p) {
			err = io.ErrShortWrite
		}
		if err == nil {
			w.writes.Add(1)
		}
		return err
	}
	if len(read) > 0 {
		if err := write(read); err != nil {
			return t, false, err
		}
	}
	for limit > 0 {
		n, err := src.Read(buf[:min(limit, userBuffer)])
		if w.left.Load() {
			return t, true, net.ErrClosed
		}
		limit -= int64(n)
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
	return t, true, nil
}
