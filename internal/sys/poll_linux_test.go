package sys

import (
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPollInterrupted has signals arrive while an empty pipe is asked for events: it has none, although the kernel
// says EINTR then.
func TestPollInterrupted(t *testing.T) {
	r, w, _, e := Linux{}.Pipe(4096)
	if e != 0 {
		t.Fatal(e)
	}
	defer Linux{}.Close(r)
	defer Linux{}.Close(w)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var done atomic.Bool
	ended := make(chan struct{})
	pid, thread := unix.Getpid(), unix.Gettid()
	go func() {
		defer close(ended)
		for !done.Load() {
			unix.Tgkill(pid, thread, unix.SIGURG)
		}
	}()
	wrong := 0
	for range 100_000 {
		if Readable(Linux{}, r) || HungUp(Linux{}, r) {
			wrong++
		}
	}
	done.Store(true)
	<-ended
	if wrong > 0 {
		t.Errorf("%d of 100000 times an empty pipe had something to read, or had hung up", wrong)
	}
}

// failingPoll is a kernel whose Poll fails.
type failingPoll struct{ Linux }

func (failingPoll) Poll(int, int16) int16 { return ^int16(PollPri) }

func TestPollFails(t *testing.T) {
	r, w, _, e := Linux{}.Pipe(4096)
	if e != 0 {
		t.Fatal(e)
	}
	defer Linux{}.Close(r)
	defer Linux{}.Close(w)
	if k := (failingPoll{}); Readable(k, r) || HungUp(k, r) || !HasError(k, r) {
		t.Errorf("after a failed poll: readable %v, hung up %v, an error %v", Readable(k, r), HungUp(k, r), HasError(k, r))
	}
}

// An urgent byte that a receive has skipped is nothing to read, though the kernel goes on to count it.
func TestHungUpBehindUrgent(t *testing.T) {
	a, b, e := StreamPair()
	if e != 0 {
		t.Fatal(e)
	}
	defer Linux{}.Close(b)
	p := make([]byte, 100)
	Linux{}.Send(a, []byte("text"))
	if e := SendUrgent(a, '!'); e == EOPNOTSUPP {
		t.Skip("the kernel has no CONFIG_AF_UNIX_OOB")
	}
	if n, e := (Linux{}).Recv(b, p); n != 4 || e != 0 {
		t.Fatal(n, e)
	}
	if n, e := (Linux{}).Recv(b, p); e != EAGAIN {
		t.Fatal(n, e)
	}
	Linux{}.Send(a, []byte("more"))
	Linux{}.Close(a)
	if HungUp(Linux{}, b) {
		t.Error("hung up with something to read")
	}
	if n, e := (Linux{}).Recv(b, p); n != 4 || e != 0 {
		t.Fatal(n, e)
	}
	if n, e := (Linux{}).ReadQueued(b); !HungUp(Linux{}, b) {
		t.Errorf("not hung up, with %d bytes to read: %v", n, e)
	}
}
