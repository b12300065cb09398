package console

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/packets"
	"github.com/penstock/penstock/internal/testwait"
)

// A file with payload is readable by its owner only, also one that was there before, and root writes to no place that a link names.
func TestCaptureFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"before", "target"} {
		if err := os.WriteFile(at(name), []byte("what was there"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"before", "new"} {
		f, err := createPrivate(at(name))
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil || info.Size() != 0 || info.Mode() != 0o600 {
			t.Errorf("%s: %d bytes, %v, %v", name, info.Size(), info.Mode(), err)
		}
		f.Close()
	}
	if f, err := createPrivate(os.DevNull); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	for _, target := range []string{"target", "not there"} {
		if err := os.Symlink(at(target), at("link")); err != nil {
			t.Fatal(err)
		}
		if _, err := createPrivate(at("link")); err == nil || !strings.Contains(err.Error(), "symbolic link") {
			t.Errorf("a link to %q: %v", target, err)
		}
		os.Remove(at("link"))
	}
	if b, err := os.ReadFile(at("target")); err != nil || string(b) != "what was there" {
		t.Errorf("the target has %q, %v", b, err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(at("target"), 12345, 12345); err != nil {
		t.Fatal(err)
	}
	read, err := os.Open(at("target"))
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	f, err := createPrivate(at("target"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("payload")
	if b, err := io.ReadAll(read); err != nil || string(b) != "what was there" {
		t.Errorf("another user, whose file it was, reads %q, %v", b, err)
	}
}

// The command asks no further once its flow has ended, whatever is told after that.
func TestCaptureOver(t *testing.T) {
	var asked atomic.Int32
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		io.WriteString(w, `{"flow": {"id": "7", "ended": "2026-01-01T00:00:00Z"}}
{"at": "2026-01-01T00:00:01Z", "through": "2026-01-01T00:00:01Z"}
`)
	}))
	defer daemon.Close()
	client, err := api.NewClient("tcp://"+daemon.Listener.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	lines := make(chan api.CaptureLine, 8)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- tellFlows(ctx, client, api.NewCapture{Flow: 7, For: 60}, lines) }()
	testwait.Until(t, "nobody asks any more, or asks again", func() bool { return len(ended) > 0 || asked.Load() > 1 })
	if n := asked.Load(); n != 1 || len(lines) != 2 {
		t.Errorf("%d requests, %d lines", n, len(lines))
	}
}

// A capture of a listener's flows is over when nobody tells of flows any more and none is open, and not while one is.
func TestCaptureAlone(t *testing.T) {
	k := &capturing{CaptureCmd: &CaptureCmd{Listener: "web", Flows: 10},
		Capture: packets.New(io.Discard, packets.Config{MaxBytes: 1 << 20, MaxFlows: 10}), alone: true}
	if !k.over() {
		t.Error("it goes on though there is nothing to capture")
	}
	k.Tell(&api.CaptureFlow{ID: 1})
	if k.over() {
		t.Error("it ends though a flow is open")
	}
	k.Tell(&api.CaptureFlow{ID: 1, Ended: time.Now()})
	if !k.over() {
		t.Error("it goes on though the flow has ended")
	}
	if k.alone = false; k.over() {
		t.Error("it ends though the daemon goes on to tell")
	}
}

// A command that waits for what does not come, as for a reader of its pipe, ends with the second Ctrl-C.
func TestInterruptedTwice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a capture needs CAP_NET_RAW")
	}
	r := newRig(t, newDaemon())
	reader, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer reader.Close()
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asProgram+"="+strings.Join([]string{"capture", "--admin", r.admin, "--source", "192.0.2.1", "-w", "-"}, "\n"))
	cmd.Stdout, cmd.Stderr = pipe, stderr
	go pipe.Write(make([]byte, 1<<20)) // more than a pipe takes
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill()
	testwait.Until(t, "the capture begins", func() bool {
		said, err := os.ReadFile(stderr.Name())
		return err != nil || len(ended) > 0 || strings.Contains(string(said), "capturing")
	})
	if len(ended) > 0 {
		said, _ := os.ReadFile(stderr.Name())
		t.Fatalf("it has ended before: %s", said)
	}
	testwait.Until(t, "it ends", func() bool {
		cmd.Process.Signal(os.Interrupt)
		return len(ended) > 0
	})
}
