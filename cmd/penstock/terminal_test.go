package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"github.com/penstock/penstock/internal/testwait"
)

// screenOf runs the daemon with standard error at a terminal. The function that it returns waits
// until the terminal has shown a text.
func screenOf(t *testing.T, columns uint16, args ...string) (tty *os.File, see func(*regexp.Regexp) []string, exited chan error) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: columns})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var shown strings.Builder
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := tty.Read(b)
			mu.Lock()
			shown.Write(b[:n])
			mu.Unlock()
			if err != nil { // EIO: the daemon is gone
				return
			}
		}
	}()
	exited = make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-read
		tty.Close()
	})
	return tty, func(want *regexp.Regexp) []string {
		t.Helper()
		var text string
		var m []string
		if !testwait.For(func() bool {
			mu.Lock()
			text = shown.String()
			mu.Unlock()
			m = want.FindStringSubmatch(text)
			return m != nil
		}) {
			t.Fatalf("no %s in %q", want, text)
		}
		return m
	}, exited
}

// At a terminal the daemon greets a person: where it listens, how to try it, and one live line
// under readable log lines. Ctrl-C stops it.
func TestGreeting(t *testing.T) {
	closed := strings.TrimPrefix(refusing(t, "tcp4"), "tcp://")
	for _, columns := range []uint16{120, 40} {
		tty, see, exited := screenOf(t, columns, "relay", "tcp://127.0.0.1:0", "tcp://"+closed, "--drain-timeout=1s")
		m := see(regexp.MustCompile(`tcp://(127\.0\.0\.1):(\d+) -> tcp://` + regexp.QuoteMeta(closed) + `\r\n\r\nTry it:  nc (127\.0\.0\.1) (\d+)\r\n`))
		if m[2] != m[4] {
			t.Errorf("it listens at %s, and suggests %s", m[2], m[4])
		}
		see(regexp.MustCompile(`Stop: +Ctrl-C`))
		see(regexp.MustCompile(`0 flows open, 0/s new`))
		if c, err := net.Dial("tcp", m[1]+":"+m[2]); err == nil { // or it was reset already
			io.Copy(io.Discard, c)
			c.Close()
		}
		see(regexp.MustCompile(`\r\x1b\[K\d\d:\d\d:\d\d warn: flow tcp://[0-9.:]+ -> tcp://` + regexp.QuoteMeta(closed) + `: no-upstream \(connect-failed\): connection refused`))
		if columns > 100 {
			see(regexp.MustCompile(`, 1 failed \(`))
		}
		if _, err := io.WriteString(tty, "\x03"); err != nil {
			t.Fatal(err)
		}
		see(regexp.MustCompile(`\d\d:\d\d:\d\d ended  how=drained accepted=1 `))
		if err := <-exited; err != nil {
			t.Error(err)
		}
	}
}

// With a keeper the terminal shows the keeper's lines as the worker's, above the live line, and greets once.
func TestGreetingWithKeeper(t *testing.T) {
	own := fmt.Sprintf("--drain-timeout=%dms", 1000000+os.Getpid()) // by which the worker is found
	tty, see, exited := screenOf(t, 120, "relay", "tcp://127.0.0.1:0", "echo:", "--keep", own)
	see(regexp.MustCompile(`(?s)Try it:.*0 flows open`))
	testwait.Until(t, "the worker is killed", func() bool {
		names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, name := range names {
			args, _ := os.ReadFile(name)
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if bytes.HasPrefix(args, []byte("penstock\x00")) && bytes.Contains(args, []byte(own)) && sendSignal(pid, os.Kill) == nil {
				return true
			}
		}
		return false
	})
	all := see(regexp.MustCompile(`(?s)^(.*\r\x1b\[K\d\d:\d\d:\d\d warn: keeper: worker \d+ died: signal 9.*\d\d:\d\d:\d\d warn: worker restarted after signal 9: 0 flows continue.*0 flows open)`))
	if n := strings.Count(all[1], "Try it:"); n != 1 {
		t.Errorf("%d greetings: %q", n, all[1])
	}
	if _, err := io.WriteString(tty, "\x03"); err != nil {
		t.Fatal(err)
	}
	if err := <-exited; err != nil {
		t.Error(err)
	}
}

// With a log format of its own the terminal shows the log as before.
func TestNoGreeting(t *testing.T) {
	_, see, _ := screenOf(t, 120, "relay", "tcp://127.0.0.1:0", "echo:", "--log-format=text")
	if m := see(regexp.MustCompile(`(?s)^(.*)level=INFO msg=ready name=relay listener=tcp://127\.0\.0\.1:\d+ upstreams=1\r\n`)); strings.Contains(m[1], "Try it") {
		t.Errorf("%q", m[1])
	}
}
