package host

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A signal that this process has taken is in its channel once the signals have settled, however busy the machine is.
func TestSettle(t *testing.T) {
	s := NotifySignals()
	defer s.Close()
	var stop atomic.Bool
	defer stop.Store(true)
	for range 4 * runtime.GOMAXPROCS(0) {
		go func() {
			for !stop.Load() {
			}
		}()
	}
	runtime.LockOSThread() // whose handler runs before tgkill(2) returns
	defer runtime.UnlockOSThread()
	for i := range 20 {
		if err := unix.Tgkill(unix.Getpid(), unix.Gettid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		s.Settle()
		select {
		case <-s.Reload:
		default:
			t.Fatalf("signal %d is not in its channel", i)
		}
	}
}
