package keeper_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/keeper"
)

func init() {
	keeper.ExampleProgram = func() {
		address = netip.MustParseAddrPort(os.Getenv(keeper.ExampleEnv))
		Example()
	}
}

// The example's connections survive kills and an upgrade of both processes.
func TestExample(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	// An address of its own, with the example's port.
	pid := os.Getpid()
	own := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, byte(1 + pid>>16), byte(pid >> 8), byte(pid)}), 7007)
	cmd.Env = append(os.Environ(), keeper.ExampleEnv+"="+own.String(), "GORACE=atexit_sleep_ms=0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	worker := 0
	defer func() {
		if !ended {
			cmd.Process.Kill()
			sys.Signal(worker, syscall.SIGKILL)
			cmd.Wait()
		}
	}()
	ready, said := make(chan bool, 100), make(chan bool)
	defer func() { <-said }()
	go func() {
		defer close(said)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			t.Log(s.Text())
			if strings.HasSuffix(s.Text(), "is ready") {
				ready <- true
			}
		}
	}()
	lines := bufio.NewScanner(stdout)
	next := func(want string) (addr string) {
		t.Helper()
		if !lines.Scan() {
			t.Fatal("the example has ended")
		}
		if !strings.Contains(lines.Text(), want) {
			t.Fatalf("%q, want %q", lines.Text(), want)
		}
		addr, rest, _ := strings.Cut(lines.Text(), ": ")
		fmt.Sscanf(rest[strings.LastIndex(rest, " ")+1:], "%d", &worker)
		return strings.TrimPrefix(addr, "tcp://")
	}
	addr := next("0 flows continue")
	files := func() int {
		names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
		return len(names)
	}
	before := files()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	ping := func(text string) {
		t.Helper()
		io.WriteString(conn, text)
		b := make([]byte, len(text))
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != text {
			t.Fatalf("%q, %v, want %q", b, err, text)
		}
	}
	ping("hello")
	for end := time.Now().Add(time.Minute); files() <= before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the flow is not held")
		}
	}
	<-ready
	for range 3 {
		sys.Signal(worker, syscall.SIGKILL)
		io.WriteString(conn, "nobody is there ")
		next("1 flows continue, 0 lost")
		b := make([]byte, len("nobody is there "))
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != "nobody is there " {
			t.Fatalf("%q, %v", b, err)
		}
		ping("again")
		<-ready
	}
	cmd.Process.Signal(syscall.SIGUSR2)
	next("1 flows continue, 0 lost")
	ping("upgraded")
	<-ready
	cmd.Process.Signal(syscall.SIGTERM)
	ended = true
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
