package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testattack"
)

// Order and Answer are those of testdata/child.
type order struct {
	Policy Policy
	Target testattack.Target
	Enter  bool
	Attack bool
	Work   *work
	Bench  string
}

type work struct {
	Read, Write string
	Port, Bind  int
	Unix        bool
	DNS         string
}

type answer struct {
	Err     string
	Report  Report
	Threads []map[string]string
	Results map[string][]testattack.Result
	Failed  []string
	Bench   float64
}

var (
	childOnce sync.Once
	childPath string
	childErr  error
)

// child returns the program that enters. It is built without cgo, also for a test with the race detector, and once.
func child(tb testing.TB) string {
	tb.Helper()
	childOnce.Do(func() {
		childPath = filepath.Join(folder, "child")
		cmd := exec.Command("go", "build", "-o", childPath, "./testdata/child")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			childErr = err
			childPath = string(out)
		}
	})
	if childErr != nil {
		tb.Fatalf("build the child: %v\n%s", childErr, childPath)
	}
	return childPath
}

// rig is what a child is to reach, and what it is not.
type rig struct {
	testing.TB
	dir    string
	target testattack.Target
	work   work
}

func newRig(tb testing.TB) *rig {
	tb.Helper()
	dir, err := os.MkdirTemp(folder, "rig")
	if err != nil {
		tb.Fatal(err)
	}
	os.Chmod(dir, 0o755) // another user comes this way, too
	r := &rig{TB: tb, dir: dir}
	sub := func(name string) string {
		path := filepath.Join(r.dir, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			tb.Fatal(err)
		}
		return path
	}
	r.work = work{Read: sub("read"), Write: sub("write")}
	r.target = testattack.Target{PID: r.victim(), Folder: sub("outside"), File: filepath.Join(r.dir, "outside", "file")}
	os.Chmod(r.work.Write, 0o777)
	os.Chmod(r.target.Folder, 0o777)
	for _, path := range []string{filepath.Join(r.work.Read, "file"), r.target.File} {
		if err := os.WriteFile(path, []byte("text"), 0o666); err != nil {
			tb.Fatal(err)
		}
		os.Chmod(path, 0o666)
	}
	r.target.Port = r.serve("tcp", "127.0.0.1:0").(*net.TCPAddr).Port
	r.work.Port = r.serve("tcp", "127.0.0.1:0").(*net.TCPAddr).Port
	r.target.Abstract = "penstock-sandbox-" + strconv.Itoa(os.Getpid()) + filepath.Base(r.dir)
	r.serve("unix", "@"+r.target.Abstract)
	r.work.DNS = r.serveDNS()
	return r
}

// victim starts a process that does nothing.
func (r *rig) victim() (pid int) {
	r.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd.Process.Pid
}

// serveDNS answers that there is no such name.
func (r *rig) serveDNS() string {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		r.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		b := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if n >= 12 {
				b[2], b[3] = 0x81, 0x83 // an answer, NXDOMAIN
				b[10], b[11] = 0, 0     // nothing additional
				c.WriteTo(b[:n], from)
			}
		}
	}()
	r.Cleanup(func() { c.Close(); <-done })
	return c.LocalAddr().String()
}

// serve echoes.
func (r *rig) serve(network, address string) net.Addr {
	r.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		r.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(time.Minute))
				io.Copy(c, c)
			})
		}
	})
	r.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr()
}

// run runs a child.
func (r *rig) run(o order, how ...func(*exec.Cmd)) (a answer) {
	r.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		r.Fatal(err)
	}
	program := child(r) // which may take a slow machine longer than the rest
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, string(text))
	for _, f := range how {
		f(cmd)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		r.Fatalf("child: %v\n%s\n%s", err, out, stderr.Bytes())
	}
	if err := json.Unmarshal(out, &a); err != nil {
		r.Fatalf("child: %v\n%s", err, out)
	}
	return a
}
