package sys

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/internal/testwait"
)

// A handler that was taken away comes back, and one that is running is waited for.
func TestMakeFatal(t *testing.T) {
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGWINCH) // whose default is to be ignored, so that this process goes on
	defer signal.Stop(got)
	handler := func() uintptr {
		var now sigaction
		action(syscall.SIGWINCH, nil, &now)
		return now[0]
	}
	before := handler()
	if before <= ignored {
		t.Fatal("there is no handler")
	}
	undo := makeFatal(syscall.SIGWINCH)
	if h := handler(); h != 0 {
		t.Errorf("the handler is %#x", h)
	}
	undo()
	if h := handler(); h != before {
		t.Errorf("the handler is %#x, and was %#x", h, before)
	}
	Signal(os.Getpid(), syscall.SIGWINCH)
	<-got
}

// A thread that has a signal blocked, as in a handler, is found.
func TestInHandler(t *testing.T) {
	blocked, unblock, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer setMask(mask(unix.SIG_BLOCK))
		close(blocked)
		<-unblock
	}()
	<-blocked
	if !inHandler([]syscall.Signal{syscall.SIGTERM}) {
		t.Error("a thread with the signal blocked is not found")
	}
	close(unblock)
	<-done
	testwait.Until(t, "no thread has it blocked", func() bool { return !inHandler([]syscall.Signal{syscall.SIGTERM}) })
}
