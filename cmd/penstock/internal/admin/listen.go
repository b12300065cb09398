package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// defaultMode is of the Unix socket: its owner only.
const defaultMode = 0o600

// Listen binds where operators ask: unix:///PATH with the permissions of mode (0: 0600),
// or tcp:// with a loopback address. Nobody can connect to the path before it has its mode. A path that is
// left over from a process that is gone is replaced; one that somebody listens on
// is an error. Close takes the path away, unless it is somebody else's by then.
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
	return nil, fmt.Errorf("%s: nothing to ask the daemon at; allowed: unix:///PATH, or tcp:// with a loopback address", at)
}

func listenTCP(at spec.Endpoint) (net.Listener, error) {
	host := at.Host
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("%s: the admin API has no TLS, so it stays on this host; allowed: a loopback address, or unix:///PATH", at)
	}
	return net.Listen("tcp", netip.AddrPortFrom(ip, at.Port).String())
}

// listenUnix binds in a folder that only this user may enter, gives the socket its
// mode there, and moves it to its place: a socket is connected to by its inode, so
// the name may change (unix(7)). To bind in place and change the mode then would leave
// a moment in between, and the umask is everybody's in this process.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	if err := free(path); err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(filepath.Dir(path), ".p")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	born := filepath.Join(folder, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: born, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(born, mode)
	var self fs.FileInfo
	if err == nil {
		self, err = os.Lstat(born)
	}
	if err == nil {
		err = os.Rename(born, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return &unixListener{UnixListener: l, path: path, self: self}, nil
}

// free tells whether a Unix socket may be put at path: nothing is there, or a
// socket that nobody listens on.
func free(path string) error {
	there, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case there.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and is no socket; allowed: a new path", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil
	}
	c.Close()
	return fmt.Errorf("%s: somebody listens there already; allowed: a path of its own for each daemon", path)
}

// unixListener takes its path away when it is closed.
type unixListener struct {
	*net.UnixListener
	path string
	self fs.FileInfo
}

func (l *unixListener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.self) {
		os.Remove(l.path)
	}
	return l.UnixListener.Close()
}

// Addr is the path, not the name at birth.
func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }
