package systemd

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// manager is a real notify socket; next reads one message from it.
func manager(t *testing.T) (next func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		t.Helper()
		c.SetReadDeadline(time.Now().Add(patience))
		b := make([]byte, 4096)
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

func TestNotify(t *testing.T) {
	testnet.CheckLeaks(t)
	next := manager(t)
	for _, c := range []struct {
		say  func() error
		want string // a regular expression
	}{
		{func() error { return new(Manager).Ready("3 listeners") }, `READY=1\nSTATUS=3 listeners`},
		{func() error { return new(Manager).Reloading("SIGHUP") }, `RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]*\nSTATUS=SIGHUP`},
		{func() error { return new(Manager).Status("two\nREADY=1") }, `STATUS=two READY=1`},
		{func() error { return new(Manager).Stopping("draining", 30*time.Second) }, `STOPPING=1\nEXTEND_TIMEOUT_USEC=35000000\nSTATUS=draining`},
	} {
		if err := c.say(); err != nil {
			t.Fatal(err)
		}
		if got := next(); !regexp.MustCompile("^" + c.want + "$").MatchString(got) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestNobodyToNotify(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := new(Manager).Ready("x"); err != nil {
		t.Error(err)
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	if err := new(Manager).Ready("x"); err == nil {
		t.Error("a manager that is gone is no error")
	}
}

func TestWatchdog(t *testing.T) {
	testnet.CheckLeaks(t)
	next := manager(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	stop, err := Watchdog(func() bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range 3 {
		if got := next(); got != "WATCHDOG=1" {
			t.Fatalf("got %q", got)
		}
	}
}

// While the loops do not answer, the watchdog hears nothing.
func TestWatchdogUnwell(t *testing.T) {
	testnet.CheckLeaks(t)
	next := manager(t)
	t.Setenv("WATCHDOG_USEC", "2000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	asked, ten := 0, make(chan struct{})
	stop, err := Watchdog(func() bool {
		if asked++; asked == 10 {
			close(ten)
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	select {
	case <-ten:
	case <-time.After(patience):
		t.Fatal("nobody asks the loops")
	}
	if err := new(Manager).Status("first"); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "STATUS=first" {
		t.Errorf("got %q", got)
	}
}

func TestNoWatchdog(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "")
	stop, err := Watchdog(func() bool {
		t.Error("nobody watches")
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	t.Setenv("WATCHDOG_USEC", "often")
	if _, err := Watchdog(nil); err == nil {
		t.Error("an interval that is no number is no error")
	}
}
