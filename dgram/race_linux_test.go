package dgram

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// racing names the racy program that a test binary runs in place of its tests.
const racing = "PENSTOCK_TEST_RACE"

// TestRaceIsSeen runs programs that touch a buffer while a system call does, and
// expects the race detector to see it, which it cannot without being told.
func TestRaceIsSeen(t *testing.T) {
	if !testnet.RaceEnabled {
		t.Skip("needs -race")
	}
	which := os.Getenv(racing)
	for _, program := range []string{"write", "read"} {
		if which == program {
			race(t, program)
			return
		}
		if which != "" {
			continue
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "-test.run", "^TestRaceIsSeen$")
		cmd.Env = append(os.Environ(), racing+"="+program)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "DATA RACE") {
			t.Errorf("%s: no race was seen: %v\n%s", program, err, out)
		}
	}
}

// race uses a buffer of a batch with nothing between that would order the two.
func race(t *testing.T, program string) {
	p := newPath(t, "v4")
	send, recv := neither.conn(t, p.send), neither.conn(t, p.recv)
	buf := make([]byte, 100)
	other := make(chan struct{})
	switch program {
	case "write":
		go func() {
			buf[50] = 1
			close(other)
		}()
		mustWrite(t, send, []Message{{Buf: buf, Addr: p.to}})
		<-other
	case "read":
		mustWrite(t, send, []Message{{Buf: make([]byte, 100), Addr: p.to}})
		go func() {
			buf[50] = 1
			close(other)
		}()
		if _, err := recv.ReadBatch([]Message{{Buf: buf}}); err != nil {
			t.Error(err)
		}
		<-other
	}
}
