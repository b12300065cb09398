// Package testfleet is for tests only: it runs the servers of program fleetservers (module fleettest), which
// are real ones, as child processes. The program is built once by "go tool", without the race detector, and
// lies in Go's build cache, so that packages share it.
package testfleet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// program returns the path of fleetservers, and builds it if need be. That takes a minute when none of its
// packages is in the build cache; the check does it before the tests.
var program = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "fleetservers").Output()
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		return "", fmt.Errorf("build fleetservers: %w\n%s", err, e.Stderr)
	}
	return strings.TrimSpace(string(out)), err
})

// A Server is a child process. It ends with the test, or when the test process ends for whatever reason.
type Server struct {
	URL   string   // of its clients
	Ready []string // what it said besides when it was ready

	tb     testing.TB
	kind   string
	flags  []string
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr *bytes.Buffer
}

// Etcd starts an etcd server with an empty folder of data, and waits until it is ready. Its flags are those of
// "fleetservers etcd".
func Etcd(tb testing.TB, flags ...string) *Server {
	tb.Helper()
	return Start(tb, "etcd", append([]string{"-data", tb.TempDir()}, flags...)...)
}

// Start starts a server of a kind that fleetservers has, and waits until it is ready.
func Start(tb testing.TB, kind string, flags ...string) *Server {
	tb.Helper()
	s := &Server{tb: tb, kind: kind, flags: append([]string{"-ports", testnet.Port(tb) + "," + testnet.Port(tb)}, flags...)}
	s.start()
	tb.Cleanup(func() {
		s.Kill()
		if tb.Failed() && s.stderr.Len() > 0 {
			tb.Logf("the last %s server said:\n%s", kind, s.stderr)
		}
	})
	return s
}

func (s *Server) start() {
	s.tb.Helper()
	path, err := program()
	if err != nil {
		s.tb.Fatalf("testfleet: %v", err)
	}
	cmd := exec.Command(path, append([]string{s.kind}, s.flags...)...)
	s.stderr = new(bytes.Buffer)
	cmd.Stderr = s.stderr
	stdin, err := cmd.StdinPipe() // its end is the server's end
	if err != nil {
		s.tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.tb.Fatalf("testfleet: %v", err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) < 2 || words[0] != "ready" {
		cmd.Process.Kill()
		cmd.Wait()
		s.tb.Fatalf("testfleet: %s is not ready: %q, %v\n%s", s.kind, line, err, s.stderr)
	}
	s.URL, s.Ready, s.cmd, s.stdin = words[1], words[2:], cmd, stdin
}

// Kill ends the server at once, with SIGKILL.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	s.cmd.Wait() // which also closes the pipes
	s.cmd = nil
}

// Pause stops the server with SIGSTOP: its connections stay, and nobody answers. That is how a partition looks.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume continues a server after Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("testfleet: %v", err)
	}
}

// Restart starts the server again at the same URL and, unless flags say otherwise, with the same data. A server that
// runs is killed.
func (s *Server) Restart(flags ...string) {
	s.tb.Helper()
	s.Kill()
	s.flags = append(s.flags, "-listen", s.URL)
	s.flags = append(s.flags, flags...)
	s.start()
}
