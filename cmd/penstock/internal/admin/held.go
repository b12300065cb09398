package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Inherit returns an admin listener on a socket that another process has made with Listen for the same
// address, and that File has duplicated. Clients that wait in its queue are served. The file still
// belongs to the caller.
func Inherit(f *os.File, at spec.Endpoint, mode uint32) (net.Listener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		return l, nil
	}
	u.SetUnlinkOnClose(false)
	if mode == 0 {
		mode = defaultMode
	}
	self, err := os.Lstat(at.Path)
	if err == nil && self.Mode().Type() == fs.ModeSocket && self.Mode().Perm() != fs.FileMode(mode) {
		err = os.Chmod(at.Path, fs.FileMode(mode))
	}
	if errors.Is(err, fs.ErrPermission) {
		err = nil // a process in its sandbox may not even look at the path; the socket is the one that was made there
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return &unixListener{UnixListener: u, path: at.Path, self: self}, nil
}

// File returns a duplicate of a listener's socket, which belongs to the caller.
func File(l net.Listener) (*os.File, error) {
	if f, ok := l.(interface{ File() (*os.File, error) }); ok {
		return f.File()
	}
	return nil, fmt.Errorf("%s: a listener of type %T", l.Addr(), l)
}

// LeavePath says whether the end of a listener leaves its path to whoever has a duplicate of the socket,
// or removes it, as it does otherwise.
func LeavePath(l net.Listener, leave bool) {
	if u, ok := l.(*unixListener); ok {
		u.left.Store(leave)
	}
}
