package upstream

import (
	"os"
	"syscall"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// control sets the options of a group's sockets that decide which way packets go; nil: there
// are none.
func control(d *spec.Dial) func(network, address string, c syscall.RawConn) error {
	if d.Interface == "" && d.Mark == 0 {
		return nil
	}
	return func(network, _ string, c syscall.RawConn) error {
		if network == "unix" || network == "unixgram" {
			return nil
		}
		var err error
		failed := c.Control(func(fd uintptr) {
			if d.Interface != "" {
				err = os.NewSyscallError("setsockopt SO_BINDTODEVICE", syscall.BindToDevice(int(fd), d.Interface))
			}
			if d.Mark != 0 && err == nil {
				err = os.NewSyscallError("setsockopt SO_MARK", syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_MARK, int(d.Mark)))
			}
		})
		if failed != nil {
			return failed
		}
		return err
	}
}
