package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// defaultMode is the mode of the Unix socket: for its owner only.
const defaultMode = 0o600

// Listen listens for operators at unix:///PATH with the given mode (0 means 0600), or at
// tcp:// with a loopback address. Nobody can connect to the path before it has its mode. A
// path that a process left behind is replaced; a path on which a process listens is an
// error. Close removes the path, unless another socket has replaced it.
func Listen(at spec.Endpoint, mode uint32) (net.Listener, error) {
	switch {
	case at.Kind == spec.TCP:
		return listenTCP(at)
	case at.Kind == spec.Unix && filepath.IsAbs(at.Path):
		if mode == 0 {
			mode = defaultMode
		}
		return listenUnix(at.Path, fs.FileMode(mode))
	}
	return nil, fmt.Errorf("%s: invalid admin listener; allowed: unix:///PATH, or tcp:// with a loopback address", at)
}

func listenTCP(at spec.Endpoint) (net.Listener, error) {
	host := at.Host
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("%s: the admin API has no TLS and must stay on this host; allowed: a loopback address, or unix:///PATH", at)
	}
	return net.Listen("tcp", netip.AddrPortFrom(ip, at.Port).String())
}

// listenUnix binds in a folder that only this user may enter, sets the mode of the socket
// there, and renames it to path. A socket is identified by its inode, so its name may
// change (unix(7)). Binding at path and changing the mode afterwards would leave a gap, and
// the umask belongs to the whole process.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	if err := checkFree(path); err != nil {
		return nil, err
	}
	if in, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the folder %s does not exist; make it, or have a unit do so by RuntimeDirectory=", filepath.Dir(path))
	} else if err == nil && !in.IsDir() {
		return nil, fmt.Errorf("%s is not a folder", filepath.Dir(path))
	}
	folder, err := os.MkdirTemp(filepath.Dir(path), ".p")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	temporary := filepath.Join(folder, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(temporary, mode)
	var self fs.FileInfo
	if err == nil {
		self, err = os.Lstat(temporary)
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return &unixListener{UnixListener: l, path: path, self: self}, nil
}

// checkFree returns an error unless a Unix socket may be created at path: nothing is there,
// or a socket on which nobody listens.
func checkFree(path string) error {
	there, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil
	case err != nil:
		return err
	case there.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket; allowed: a new path", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil
	}
	c.Close()
	return fmt.Errorf("%s: another process listens there; allowed: a separate path for each daemon", path)
}

// unixListener removes its path when it is closed.
type unixListener struct {
	*net.UnixListener
	path string
	self fs.FileInfo
	left atomic.Bool // see LeavePath
}

func (l *unixListener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && !l.left.Load() && os.SameFile(now, l.self) {
		os.Remove(l.path)
	}
	return l.UnixListener.Close()
}

// Addr returns the path, not the temporary name.
func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }
