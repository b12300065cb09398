package splice

import (
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/sys"
)

// regular reports whether f is a regular file. Other files could make sendfile(2) block.
func regular(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// sendFile moves up to limit bytes of a regular file, from its offset on, to a stream socket.
// It copies a file that sendfile(2) refuses, and what follows the end that sendfile(2)
// reports, which for some files in /proc is not the end.
func sendFile(dst net.Conn, out syscall.RawConn, src *os.File, limit int64, w *watcher) (t Transfer, atSrc bool, err error) {
	in, err := src.SyscallConn()
	if err != nil {
		return t, true, err
	}
	for limit > 0 {
		var n int
		var e sys.Errno
		var inErr error
		send := func(fd uintptr) bool {
			sys.SetNonblock(int(fd))
			inErr = in.Control(func(file uintptr) {
				n, e = sys.SendFile(int(fd), int(file), int(min(limit, turnBudget)))
			})
			return inErr != nil || e != sys.EAGAIN
		}
		if err := out.Write(send); err != nil {
			return t, false, opError("write", dst, err)
		}
		switch {
		case inErr != nil:
			return t, true, &os.PathError{Op: "read", Path: src.Name(), Err: os.ErrClosed}
		case e == sys.EINTR:
			continue
		case e == sys.EINVAL || e == sys.ENOSYS || e == sys.EOPNOTSUPP || errors.Is(e, os.ErrPermission):
			if t.Path == datapath.None {
				t.Why = datapath.WhyKernel
			}
			return moveUser(dst, src, nil, limit, w, t)
		case e != 0:
			return t, false, opError("write", dst, os.NewSyscallError("sendfile", e))
		case n == 0:
			return moveUser(dst, src, nil, limit, w, t)
		}
		limit -= int64(n)
		t.Read += int64(n)
		t.Written += int64(n)
		t.Spliced += int64(n)
		t.Path = datapath.Splice
		w.tell(t)
	}
	return t, true, nil
}
