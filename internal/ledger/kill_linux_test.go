package ledger

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

const childEnv = "PENSTOCK_LEDGER_CHILD"

// children are what this test binary does as a child process.
var children = map[string]func() error{
	"pump":        pumpForever,
	"one receive": func() error { return oneCall(true) },
	"one send":    func() error { return oneCall(false) },
}

func TestMain(m *testing.M) {
	what := os.Getenv(childEnv)
	if what == "" {
		testnet.Main(m)
		return
	}
	fmt.Fprintln(os.Stderr, "ledger child:", children[what]())
	os.Exit(1)
}

// The descriptors of a child.
const (
	childLedger = 3 + iota
	childSource
	childDestination
)

// oneCall makes one system call, and is gone with the next.
func oneCall(receive bool) error {
	l, err := Open(sys.Linux{}, childLedger)
	if err != nil {
		return err
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	m := l.Turn().WriteMessage()
	if receive {
		m = l.Turn().ReadMessage()
	}
	m.Clear()
	if receive {
		sys.Linux{}.RecvOne(childSource, m, l.Scratch())
	} else {
		sys.Linux{}.SendOne(childDestination, m, l.Scratch()[:300])
	}
	self.Kill()
	select {}
}

// pumpForever copies from the source to the destination, and notes each step as internal/pump does for
// sockets without counters.
func pumpForever() error {
	l, err := Open(sys.Linux{}, childLedger)
	if err != nil {
		return err
	}
	t, h, k := l.Turn(), l.Record(0).Half(0), sys.Linux{}
	read, written := t.ReadMessage(), t.WriteMessage()
	in, out := h.In(), h.Out()
	t.Begin(0, 1)
	for {
		read.Clear()
		t.SetCounts(in, out)
		t.Set(0, PhaseReading, 0)
		n, e := k.RecvOne(childSource, read, l.Scratch()[:4000]) // a Unix socket takes as much at once, or nothing
		if e == sys.EAGAIN {
			t.Set(0, PhaseNone, 0)
			continue
		}
		if e != 0 || n == 0 {
			return e
		}
		written.Clear()
		t.Set(0, PhaseRead, n)
		for at := 0; at < n; {
			m, e := k.SendOne(childDestination, written, l.Scratch()[at:n])
			if e != 0 && e != sys.EAGAIN {
				return e
			}
			if m > 0 && at+m < n {
				return fmt.Errorf("sent %d of %d", m, n-at) // the test's messages are smaller than any buffer
			}
			at += m
		}
		in += int64(n)
		out += int64(n)
		h.SetIn(in)
		h.SetOut(out)
		t.Set(0, PhaseNone, 0)
	}
}

// startChild starts this test binary with the ledger and two sockets, and returns what kills it.
func startChild(t *testing.T, what string, l *Ledger, source, destination int) (kill func()) {
	t.Helper()
	var files []*os.File
	for _, fd := range []int{l.FD(), source, destination} {
		dup, e := sys.Dup(fd)
		if e != 0 {
			t.Fatal(e)
		}
		files = append(files, os.NewFile(uintptr(dup), "child"))
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.ExtraFiles = files
	cmd.Stderr = os.Stderr
	err := cmd.Start()
	for _, f := range files {
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if what == "pump" {
			cmd.Process.Kill()
		}
		cmd.Wait()
		if cmd.ProcessState.Exited() {
			t.Fatalf("the child ended by itself: %v", cmd.ProcessState)
		}
	}
}

// stream returns a pair of Unix stream sockets, non-blocking.
func stream(t *testing.T) (a, b int) {
	t.Helper()
	fd := func(c net.Conn) (n int) {
		rc, err := c.(syscall.Conn).SyscallConn()
		if err == nil {
			err = rc.Control(func(fd uintptr) { n = int(fd) })
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return n
	}
	x, y := testnet.Pair(t, "unix")
	return fd(x), fd(y)
}

// TestKilledAfterCall: what a system call has moved is in the ledger, even if its caller did nothing
// afterwards but die.
func TestKilledAfterCall(t *testing.T) {
	for _, what := range []string{"one receive", "one send"} {
		l := small(t)
		parent, child := stream(t)
		m := l.Turn().WriteMessage()
		if what == "one receive" {
			m = l.Turn().ReadMessage()
			if n, e := (sys.Linux{}).Send(parent, make([]byte, 200)); n != 200 || e != 0 {
				t.Fatal(n, e)
			}
		}
		m.Clear()
		startChild(t, what, l, child, child)()
		n, ok := m.Moved()
		if want := map[string]int{"one receive": 200, "one send": 300}[what]; n != want || !ok {
			t.Errorf("%s: %d, %v, want %d", what, n, ok, want)
		}
	}
}

// TestKilledAnywhere: at whatever instruction a process is killed, its notes tell which bytes it held. The
// sockets have no counters: the test knows from the outside what was taken, and what was delivered.
func TestKilledAnywhere(t *testing.T) {
	kills, found := 40, 0
	if testing.Short() {
		kills = 5
	}
	l := small(t)
	l.Begin(0).SetKind(KindStream)
	l.Publish(0, 1)
	feed, source := stream(t)
	destination, drain := stream(t)
	k, p := sys.Linux{}, testnet.NewPattern(1)
	var sent, received int64
	b := make([]byte, ScratchSize)
	// step sends one message if there is room, and checks what has come out.
	step := func(fill bool) (quiet bool) {
		t.Helper()
		quiet = true
		if fill {
			size := 1 + int(sent*7919%4000)
			if n, e := k.Send(feed, p.At(sent, size)); e == 0 {
				sent += int64(n)
				quiet = false
			}
		}
		n, e := k.Recv(drain, b)
		if e != 0 {
			return quiet
		}
		if err := p.Check(received, b[:n]); err != nil {
			t.Fatal(err)
		}
		received += int64(n)
		return false
	}
	for i := range kills {
		kill := startChild(t, "pump", l, source, destination)
		for start, end := received, time.Now().Add(testPatience); received-start < 1<<20*int64(i%7+1)/4+int64(i)*997; {
			step(true)
			if time.Now().After(end) {
				t.Fatal("the child moves nothing")
			}
		}
		kill()

		note, h := l.Turn().Note(), l.Record(0).Half(0)
		in, out := h.In(), h.Out()
		var held []byte
		if note.Phase != PhaseNone {
			in, out = l.Turn().Counts()
			n, ok := l.Turn().ReadMessage().Moved()
			if !ok {
				n = 0
			}
			m := 0
			if note.Phase == PhaseRead {
				if m, ok = l.Turn().WriteMessage().Moved(); !ok {
					m = 0
				}
			}
			in, out, held = in+int64(n), out+int64(m), l.Scratch()[m:n]
		}
		for !step(false) {
		}
		queued, e := sys.Linux{}.ReadQueued(source)
		if e != 0 {
			t.Fatal(e)
		}
		if taken := sent - int64(queued); in != taken || out != received || in-out != int64(len(held)) {
			t.Fatalf("kill %d: note %+v, in %d, out %d, held %d; taken %d, delivered %d", i, note, in, out, len(held), taken, received)
		}
		if err := p.Check(out, held); err != nil {
			t.Fatalf("kill %d: held: %v", i, err)
		}
		if len(held) > 0 {
			found++
		}
		// The next child begins behind what was held.
		for at := 0; at < len(held); {
			n, e := k.Send(destination, held[at:])
			if e != 0 && e != sys.EAGAIN {
				t.Fatal(e)
			}
			at += n
			step(false)
		}
		h.SetIn(in)
		h.SetOut(in)
		l.Turn().End()
	}
	t.Logf("%d kills, %d of them with bytes held, %d bytes moved", kills, found, received)
}

const testPatience = testnet.Patience
