package dgram

import (
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

var (
	bestLevel = level{"best", Config{}, bestDriver}
	noGRO     = level{"no-gro", Config{NoGRO: true}, bestDriver}
	noGSO     = level{"no-gso", Config{NoGSO: true}, bestDriver}
	neither   = level{"neither", Config{NoGSO: true, NoGRO: true}, bestDriver}
	refusing  = level{"refused", Config{}, refuseRuns(syscall.EIO)}

	levels = []level{bestLevel, noGRO, noGSO, neither, refusing, portableLevel}
)

// refuseRuns is the best driver on a kernel that refuses every run with errno,
// as a route without checksum offload does.
func refuseRuns(errno syscall.Errno) func(*Conn, Config) (driver, error) {
	return seam(func(w *writer, v *sys.Vector, fd uintptr, from, to int) (int, sys.Errno) {
		n := from
		for n < to && !w.entries[n].run.Segmented() {
			n++
		}
		if n == from {
			return 0, errno
		}
		return v.Send(fd, from, n)
	})
}

// seam is the best driver with another way to send.
func seam(send func(w *writer, v *sys.Vector, fd uintptr, from, to int) (int, sys.Errno)) func(*Conn, Config) (driver, error) {
	return func(c *Conn, cfg Config) (driver, error) {
		d, err := bestDriver(c, cfg)
		if err == nil {
			w := &d.(*kernel).writer
			w.send = func(v *sys.Vector, fd uintptr, from, to int) (int, sys.Errno) { return send(w, v, fd, from, to) }
		}
		return d, err
	}
}
