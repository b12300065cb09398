package splice

import (
	"errors"
	"io"
	"net"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/pool"
)

// buffers are shared by all copies of the process.
var buffers pool.Buffers

// userBuffer is io.Copy's buffer size.
const userBuffer = 32 << 10

// emptyReads is how many calls of Read in a row may return 0 and no error, as in package bufio.
const emptyReads = 100

// A result is invalid that is negative, or more than was asked for. io.Copy has the first of
// these errors, and panics instead of the second.
var (
	errInvalidWrite = errors.New("invalid write result")
	errInvalidRead  = errors.New("invalid read result")
)

// moveUser moves a direction through user space with Read and Write. It continues from t,
// and reads up to limit bytes.
func moveUser(dst io.Writer, src io.Reader, read []byte, limit int64, w *watcher, t Transfer) (_ Transfer, atSrc bool, err error) {
	buf := buffers.Get(userBuffer)
	defer buffers.Put(buf)
	write := func(p []byte) error {
		if t.Path == datapath.None {
			t.Path = datapath.Copy
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
	for empty := 0; limit > 0; {
		p := buf[:min(limit, userBuffer)]
		n, err := src.Read(p)
		if w.left.Load() {
			return t, true, net.ErrClosed
		}
		empty++
		switch {
		case n < 0 || n > len(p):
			return t, true, errors.Join(err, errInvalidRead)
		case n > 0:
			empty = 0
			limit -= int64(n)
			if err := write(p[:n]); err != nil {
				return t, false, err
			}
		case err == nil && empty == emptyReads:
			err = io.ErrNoProgress
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
