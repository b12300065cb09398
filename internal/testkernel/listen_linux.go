package testkernel

import (
	"os"

	"github.com/penstock/penstock/internal/sys"
)

// ListenUnix returns the socket of a listener at a path, whose queue has room for backlog clients and one.
func ListenUnix(path string, backlog int) (*os.File, error) {
	var sa sys.Sockaddr
	if err := sa.SetUnix(path); err != nil {
		return nil, err
	}
	fd, err := sys.Listen(sys.Linux{}, &sa, false, false, backlog, func(int) error { return nil })
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}
