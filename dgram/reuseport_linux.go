package dgram

import (
	"os"

	"github.com/penstock/penstock/internal/sys"
)

func setReusePort(fd uintptr) error {
	if errno := sys.SetReusePort(linux, int(fd)); errno != 0 {
		return os.NewSyscallError("setsockopt", errno)
	}
	return nil
}
