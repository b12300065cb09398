package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// These tests run the real binary, built as the tests are: with the race detector in the race job.

func TestMain(m *testing.M) { testnet.Main(m, buildDaemon) }

// binary is the daemon under test.
var binary string

func buildDaemon() (remove func(), err error) {
	dir, err := os.MkdirTemp("", "penstock")
	if err != nil {
		return nil, err
	}
	// Another user must be able to run it.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	binary = filepath.Join(dir, "penstock")
	args := []string{"build", "-buildvcs=false", "-tags", "attack,penstock_invariants", "-o", binary}
	if testnet.RaceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, ".")...)
	if !testnet.RaceEnabled { // as it is released, so that every layer of its sandbox holds
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := build.CombinedOutput(); err != nil {
		return nil, errors.Join(err, errors.New(string(out)))
	}
	return func() { os.RemoveAll(dir) }, nil
}

// patience bounds every wait for something that is expected to happen.
const patience = testnet.Patience

// daemon is a running penstock.
type daemon struct {
	t        *testing.T
	cmd      *exec.Cmd
	listener string // the URL in its ready line
	exit     func() int

	mu    sync.Mutex
	news  *sync.Cond // a line has come, or the last one
	lines []map[string]any
	ended bool
}

// relay starts penstock relay with args and waits for its ready line. It is killed at the end of
// the test if it is still running.
func relay(t *testing.T, args ...string) *daemon {
	t.Helper()
	return run(t, exec.Command(binary, append([]string{"relay"}, args...)...))
}

// run is like relay, for a command that ends up as penstock relay.
func run(t *testing.T, cmd *exec.Cmd) *daemon {
	t.Helper()
	d := launch(t, cmd)
	d.listener, _ = d.line("ready")["listener"].(string)
	return d
}

// launch starts a command, and does not wait for it.
func launch(t *testing.T, cmd *exec.Cmd) *daemon {
	t.Helper()
	cmd.Env = append(cmd.Environ(), "GORACE=halt_on_error=1 atexit_sleep_ms=0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, cmd: cmd}
	d.news = sync.NewCond(&d.mu)
	read := make(chan struct{})
	go func() {
		defer close(read)
		d.read(stderr)
	}()
	d.exit = sync.OnceValue(func() int {
		<-read
		cmd.Wait()
		return cmd.ProcessState.ExitCode()
	})
	t.Cleanup(func() {
		cmd.Process.Kill()
		d.exit()
		if t.Failed() {
			t.Log(d.apart())
		}
	})
	return d
}

// apart returns what was printed beside the log: what the race detector found, the stacks of a panic.
func (d *daemon) apart() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	b.WriteString("beside its log the daemon printed:\n")
	for _, l := range d.lines {
		if l["level"] == nil {
			fmt.Fprintln(&b, l["msg"])
		}
	}
	return b.String()
}

// read reads the log, one JSON object per line; another line is a message with no level.
func (d *daemon) read(r io.Reader) {
	for in := bufio.NewScanner(r); in.Scan(); {
		var line map[string]any
		if json.Unmarshal(in.Bytes(), &line) != nil {
			line = map[string]any{"msg": in.Text()}
		}
		d.mu.Lock()
		d.lines = append(d.lines, line)
		d.news.Broadcast()
		d.mu.Unlock()
	}
	d.mu.Lock()
	d.ended = true
	d.news.Broadcast()
	d.mu.Unlock()
}

// line waits for the first line with a message.
func (d *daemon) line(msg string) map[string]any {
	d.t.Helper()
	return d.wait(msg, 1)[0]
}

// wait waits for n lines with a message and returns all of them.
func (d *daemon) wait(msg string, n int) (found []map[string]any) {
	d.t.Helper()
	late := false
	timer := time.AfterFunc(patience, func() {
		d.mu.Lock()
		late = true
		d.news.Broadcast()
		d.mu.Unlock()
	})
	defer timer.Stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		found = nil
		for _, l := range d.lines {
			if l["msg"] == msg {
				found = append(found, l)
			}
		}
		if len(found) >= n {
			return found
		}
		if late && !d.ended { // it prints the stacks of its goroutines, and exits
			workers := childrenOf(d.cmd.Process.Pid) // which would go on without their keeper, and have the log open
			d.cmd.Process.Signal(syscall.SIGQUIT)
			defer time.AfterFunc(patience/4, func() {
				d.cmd.Process.Kill()
				for _, pid := range workers {
					sendSignal(pid, syscall.SIGKILL)
				}
			}).Stop()
			for !d.ended {
				d.news.Wait()
			}
		}
		if d.ended {
			d.t.Fatalf("%d lines %q, want %d; the log: %v", len(found), msg, n, d.lines)
		}
		d.news.Wait()
	}
}

func (d *daemon) signal(s os.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatal(err)
	}
}

// mustExit waits for the process to exit and checks the exit code.
func (d *daemon) mustExit(code int) {
	d.t.Helper()
	got := make(chan int, 1)
	go func() { got <- d.exit() }()
	select {
	case c := <-got:
		if c != code {
			d.t.Errorf("exit code %d, want %d; the log: %v", c, code, d.lines)
		}
	case <-time.After(patience):
		d.t.Fatal("it does not end")
	}
}

// addr returns the address at which to dial the daemon.
func (d *daemon) addr() net.Addr { return netAddr(d.t, d.listener) }

func (d *daemon) dial() net.Conn { return testnet.Dial(d.t, d.addr()) }

// url formats an address as an endpoint; netAddr parses one.
func url(a net.Addr) string {
	if a.Network() == "unix" {
		if a.String()[0] == '@' {
			return "unix:" + a.String()
		}
		return "unix://" + a.String()
	}
	return "tcp://" + a.String()
}

func netAddr(t *testing.T, u string) net.Addr {
	t.Helper()
	if rest, ok := strings.CutPrefix(u, "tcp://"); ok {
		a, err := net.ResolveTCPAddr("tcp", rest)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if rest, ok := strings.CutPrefix(u, "udp://"); ok {
		a, err := net.ResolveUDPAddr("udp", rest)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	return &net.UnixAddr{Net: "unix", Name: strings.TrimPrefix(strings.TrimPrefix(u, "unix:"), "//")}
}

// mustEcho sends and expects the same bytes back, then EOF.
func mustEcho(t *testing.T, c net.Conn, size int64, chunk int) {
	t.Helper()
	r := testnet.Play(c, testnet.Script{Send: size, SendSeed: 5, SendChunk: chunk, Recv: size, RecvSeed: 5})
	if r.Err != "" {
		t.Errorf("echo of %d bytes: %+v", size, r)
	}
}
