package sys

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that has given up CAP_NET_ADMIN keeps the buffers that it has when it asks for them again: by a reload, or
// for a socket that an earlier process has made.
func TestBufferStaysWithoutPrivilege(t *testing.T) {
	fd, e := Linux{}.Datagram(IPv4)
	if e != 0 {
		t.Fatal(e)
	}
	defer Linux{}.Close(fd)
	const n = 64 << 20 // more than net.core.rmem_max is anywhere
	for _, send := range []bool{false, true} {
		if got, e := SetBuffer(Linux{}, fd, send, n); e != 0 || got != n {
			t.Skipf("this process may not go beyond the limit: %d bytes, %v", got, e)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with its goroutine
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var all [2]unix.CapUserData
		if err := unix.Capget(&head, &all[0]); err != nil {
			t.Error(err)
			return
		}
		all[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		if err := unix.Capset(&head, &all[0]); err != nil {
			t.Error(err)
			return
		}
		for _, send := range []bool{false, true} {
			if got, e := SetBuffer(Linux{}, fd, send, n); e != 0 || got != n {
				t.Errorf("%d bytes are left, %v, of %d", got, e, n)
			}
		}
		if got, e := SetBuffer(Linux{}, fd, false, n+1<<20); e != 0 || got >= n {
			t.Errorf("%d bytes without the privilege, %v", got, e)
		}
	}()
	<-done
}
