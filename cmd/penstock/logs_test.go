package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A template's lines, and a file that is moved away while flows end: each record is in one
// of the files, in order.
func TestAccessLogRotates(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	d := runFile(t, `
listeners: {l: {listen: "tcp://127.0.0.1:0", to: "{0}"}}
access-log: {to: "{dir}/a.log", format: "{cause} {listener} \"{sni}\" {bytes_sent} {{{client}}}", mode: "0600"}
`, up.url())
	now := filepath.Join(d.dir, "a.log")
	if info, err := os.Stat(now); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	var want, got bytes.Buffer
	visit := func(n int) {
		for range n {
			c := d.to("l")
			name(t, c)
			fmt.Fprintf(&want, "end l \"-\" 4 {tcp://%s}\n", c.LocalAddr())
			mustPing(t, c)
			c.(*net.TCPConn).CloseWrite()
			if _, err := io.Copy(io.Discard, c); err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
	}
	lines := func(file string, n int) {
		eventually(t, fmt.Sprintf("%d lines", n), func() bool {
			text, _ := os.ReadFile(file)
			return bytes.Count(text, []byte("\n")) >= n
		})
	}
	visit(5)
	lines(now, 5)
	before := now + ".1"
	if err := os.Rename(now, before); err != nil {
		t.Fatal(err)
	}
	visit(5)
	lines(before, 10)
	d.signal(syscall.SIGUSR1)
	eventually(t, "there is a new file", func() bool { _, err := os.Stat(now); return err == nil })
	visit(5)
	lines(now, 5)
	for _, f := range []string{before, now} {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		got.Write(text)
	}
	if sorted(got.String()) != sorted(want.String()) {
		t.Errorf("the files have\n%swant\n%s", &got, &want)
	}
}

// sorted orders lines: flows of several loops end side by side.
func sorted(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for i := range lines {
		for j := i; j > 0 && lines[j] < lines[j-1]; j-- {
			lines[j], lines[j-1] = lines[j-1], lines[j]
		}
	}
	return strings.Join(lines, "")
}

// A log that nobody reads stops no flow: what finds no room is counted.
func TestAccessLogStuck(t *testing.T) {
	need(t, "mkfifo")
	t.Parallel()
	up := speak(t, "up")
	dir := shortDir(t)
	fifo := filepath.Join(dir, "fifo")
	if out, err := exec.Command("mkfifo", fifo).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d := runFile(t, `
listeners:
  l: {listen: "tcp://127.0.0.1:0", to: "{0}"}
  denied: {listen: "tcp://127.0.0.1:0", deny: 127.0.0.0/8, to: "{0}"}
access-log: {to: "{1}"}
`, up.url(), fifo)
	c := d.to("l")
	name(t, c)
	denied := d.at("denied").String()
	drops := func() int64 {
		s, err := d.admin.Status(d.ctx())
		if err != nil {
			t.Fatal(err)
		}
		return s.Resources.LogDrops
	}
	// Refused clients make records fast.
	for deadline := time.Now().Add(patience); drops() == 0; {
		for range 500 {
			if x, err := net.Dial("tcp", denied); err == nil {
				x.Close()
			}
		}
		mustPing(t, c)
		if time.Now().After(deadline) {
			t.Fatal("there is room for ever")
		}
	}
	late := d.to("l")
	name(t, late)
	mustEcho(t, late, 1<<20, 64<<10)
	mustPing(t, c)
	if n := d.metric("penstock_log_dropped_total", `log="access"`); n == 0 {
		t.Error("the metrics know of no drop")
	}
	// It ends in time all the same, and says what it has lost.
	c.Close()
	d.signal(os.Interrupt)
	d.mustExit(0)
	if l := d.line("the access log has lost records of flows"); l["dropped"].(float64) == 0 {
		t.Errorf("%v", l)
	}
}

func TestAccessLogToSyslog(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	dir := shortDir(t)
	server, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(dir, "log")})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	d := runFile(t, `
listeners: {l: {listen: "tcp://127.0.0.1:0", to: "{0}"}}
access-log: {to: "syslog:unix://{1}/log", format: "gone: {cause} {client}"}
`, up.url(), dir)
	c := d.to("l")
	name(t, c)
	want := "gone: end tcp://" + c.LocalAddr().String()
	mustEcho(t, c, 4, 4)
	server.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 4096)
	n, err := server.Read(buf)
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(buf[:n])), want) || buf[0] != '<' {
		t.Errorf("%q, %v, want %q at its end", buf[:n], err, want)
	}
}
