package main

import (
	"bytes"
	"context"
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
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// configured is a daemon that runs a configuration, in its own folder.
type configured struct {
	*daemon
	dir   string
	file  string
	admin *api.Client
}

// places replaces placeholders in a test's configuration: {dir}, and {N} for the N-th of further
// values.
func places(dir, text string, values []any) string {
	pairs := []string{"{dir}", dir}
	for i, v := range values {
		pairs = append(pairs, fmt.Sprintf("{%d}", i), fmt.Sprint(v))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// runFile starts penstock run with a configuration. It adds an admin listener and an access log, if the text has
// none.
func runFile(t *testing.T, text string, values ...any) *configured {
	t.Helper()
	dir := shortDir(t)
	c := &configured{dir: dir, file: filepath.Join(dir, "penstock.yaml")}
	c.write(t, text, values...)
	c.begin(t, exec.Command(binary, "run", "-c", c.file))
	return c
}

// begin starts a command that ends up as penstock run with the configuration.
func (c *configured) begin(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	c.daemon = run(t, cmd)
	c.connect(t)
}

// connect makes the client of the admin listener.
func (c *configured) connect(t *testing.T) {
	t.Helper()
	var err error
	if c.admin, err = api.NewClient("unix://"+c.dir+"/admin.sock", ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.admin.Close)
}

// shortDir returns a folder whose path is short enough for the paths of Unix sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "penstock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// write replaces the contents of the configuration file atomically.
func (c *configured) write(t *testing.T, text string, values ...any) {
	t.Helper()
	text = places(c.dir, text, values)
	text += "\n"
	if !strings.Contains(text, "admin:") {
		text += places(c.dir, "admin: {listen: \"unix://{dir}/admin.sock\"}\n", nil)
	}
	if !strings.Contains(text, "access-log:") {
		text += places(c.dir, "access-log: {to: \"{dir}/access.log\"}\n", nil)
	}
	next := c.file + ".next"
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, c.file); err != nil {
		t.Fatal(err)
	}
}

// at returns the address of a listener.
func (c *configured) at(name string) net.Addr {
	c.t.Helper()
	l, err := c.admin.Listeners(c.ctx())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, l := range l.Listeners {
		if l.Name == name {
			return netAddr(c.t, l.Address)
		}
	}
	c.t.Fatalf("there is no listener %s: %+v", name, l)
	return nil
}

// to dials a listener.
func (c *configured) to(name string) net.Conn {
	c.t.Helper()
	conn := testnet.Dial(c.t, c.at(name))
	conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// mustTurnAway connects, sends a text, and expects that the connection is ended, whatever it
// received. It may be reset before connect has returned.
func (c *configured) mustTurnAway(listener, text string) {
	c.t.Helper()
	conn, err := net.Dial("tcp", c.at(listener).String())
	if err != nil {
		return
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, text)
	if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("a client of %s is not turned away", listener)
	}
}

func (c *configured) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	c.t.Cleanup(cancel)
	return ctx
}

// reload makes the daemon reload its file by the API.
func (c *configured) reload() api.Diff {
	c.t.Helper()
	diff, err := c.admin.Reload(c.ctx())
	if err != nil {
		c.t.Fatal(err)
	}
	return diff
}

// records waits for n lines of the access log and returns all lines.
func (c *configured) records(n int) []map[string]any {
	c.t.Helper()
	return recordsOf(c.t, filepath.Join(c.dir, "access.log"), n)
}

// untilSpliced has streams carried, one after the other, until one was spliced towards the upstream, and returns its records. A busy
// machine may hand a stream over in small reads, and others that run as the same user may hold all of its pipes for a while.
func untilSpliced(t *testing.T, stream func() []map[string]any) []map[string]any {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		records, spliced := stream(), true
		for _, r := range records {
			mustBe(t, r, "cause", "end")
			if r["path_up"] != "splice" {
				spliced = false
				if why := r["why_up"]; why != "small reads" && why != "no pipe" || time.Now().After(end) {
					t.Fatalf("not spliced: %v", r)
				}
			}
		}
		if spliced {
			return records
		}
	}
}

func recordsOf(t *testing.T, file string, n int) (list []map[string]any) {
	t.Helper()
	testwait.Until(t, fmt.Sprintf("%d records in %s", n, file), func() bool {
		text, _ := os.ReadFile(file)
		list = list[:0]
		for line := range bytes.Lines(text) {
			if !bytes.HasSuffix(line, []byte("\n")) {
				break
			}
			var r map[string]any
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatalf("%q is not JSON: %v", line, err)
			}
			list = append(list, r)
		}
		return len(list) >= n
	})
	return list
}

// A speaker is a TCP server that sends its name to each client, and then echoes.
type speaker struct {
	net.Listener
	name string
	came atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func speak(t *testing.T, name string) *speaker {
	t.Helper()
	return speakAt(t, testnet.Listen(t, "tcp4"), name)
}

// acceptAll handles each client of a listener in a goroutine of its own, and closes the listener when the test ends.
func acceptAll(t *testing.T, l net.Listener, handle func(net.Conn)) {
	t.Helper()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { handle(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
}

// speakAt is speak with a listener, which it closes.
func speakAt(t *testing.T, l net.Listener, name string) *speaker {
	t.Helper()
	s := &speaker{Listener: l, name: name, conns: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := s.Accept()
			if err != nil {
				return
			}
			s.came.Add(1)
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			all.Go(func() {
				defer c.Close()
				if _, err := io.WriteString(c, name+"\n"); err == nil {
					io.Copy(c, c)
				}
				s.mu.Lock()
				delete(s.conns, c)
				s.mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		s.Close()
		s.hangUp()
		all.Wait()
	})
	return s
}

// hangUp closes all connections.
func (s *speaker) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

func (s *speaker) url() string { return url(s.Addr()) }

// name reads the name that a speaker sends first.
func name(t *testing.T, c net.Conn) string {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	n, err := readName(c)
	if err != nil {
		t.Fatalf("no name: %q, %v", n, err)
	}
	return n
}

func readName(c net.Conn) (string, error) {
	var n []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(c, b); err != nil {
			return string(n), err
		}
		if b[0] == '\n' {
			return string(n), nil
		}
		n = append(n, b[0])
	}
}

// mustBe checks some fields of a record or a line of the log.
func mustBe(t *testing.T, r map[string]any, pairs ...any) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := r[pairs[i].(string)]; got != pairs[i+1] {
			t.Errorf("%v is %v, want %v: %v", pairs[i], got, pairs[i+1], r)
		}
	}
}
