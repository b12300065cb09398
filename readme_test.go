package penstock_test

import (
	"context"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/splice"
)

// The functions below are shown in README.md; TestReadme compares them.

// serve relays the clients of l to the server at addr, with a goroutine per client.
func serve(l net.Listener, addr string) error {
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("tcp", addr)
			if err != nil {
				log.Print(err)
				return
			}
			defer server.Close()
			r, err := splice.Relay(client, server)
			log.Print(r.Outcome, " up ", r.Up.Written, " down ", r.Down.Written, " error ", err)
		}()
	}
}

// run relays clients of one address to another, with an event loop per CPU, until ctx ends.
// It then waits for the clients to finish.
func run(ctx context.Context, listen, upstream string) error {
	from, err := relay.ParseAddr(listen) // such as tcp://127.0.0.1:7000
	if err != nil {
		return err
	}
	to, err := relay.ParseAddr(upstream) // such as unix:///run/app.sock
	if err != nil {
		return err
	}
	engine, err := relay.New(relay.Config{})
	if err != nil {
		return err
	}
	defer engine.Close()
	_, err = engine.Listen(from, relay.ListenConfig{
		Timeouts: relay.Timeouts{Idle: 10 * time.Minute},
		Hooks: relay.Hooks{
			Upstream: func(f *relay.Flow, attempt int) *relay.Addr {
				if attempt > 2 {
					return nil // after three failed attempts
				}
				return &to
			},
			Done: func(r *relay.Record) { log.Print(r) },
		},
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return engine.Drain(context.Background())
}

// TestReadme checks that the Go code in README.md is the code of this file, which compiles, and
// runs it.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(readme), "```go\n")[1:]
	if len(blocks) != 2 {
		t.Errorf("README.md has %d blocks of Go code, want 2", len(blocks))
	}
	for _, b := range blocks {
		code, _, closed := strings.Cut(b, "```")
		if !closed || !strings.Contains(string(source), "\n"+code) {
			t.Errorf("readme_test.go does not contain this code of README.md:\n%s", code)
		}
	}

	log.SetOutput(io.Discard)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	// A client of serve, whose server is run's client.
	ctx, cancel := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- serve(l, server.Addr().String()) }()
	go func() {
		c, err := server.Accept()
		if err == nil {
			io.WriteString(c, "hello from the server")
			c.Close()
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(30 * time.Second))
	c.(*net.TCPConn).CloseWrite()
	if b, err := io.ReadAll(c); string(b) != "hello from the server" || err != nil {
		t.Errorf("serve: %q, %v", b, err)
	}
	c.Close()
	l.Close()
	server.Close()
	<-ended

	if runtime.GOOS != "linux" {
		t.Skip("package relay needs Linux")
	}
	path := filepath.Join(t.TempDir(), "socket")
	go func() { ended <- run(ctx, "unix://"+path, "echo:") }()
	testwait.Until(t, "it listens at "+path, func() bool {
		c, err = net.Dial("unix", path)
		return err == nil
	})
	c.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(c, "hello")
	c.(*net.UnixConn).CloseWrite()
	if b, err := io.ReadAll(c); string(b) != "hello" || err != nil {
		t.Errorf("run: %q, %v", b, err)
	}
	c.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
}
