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

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// Lines of a template, and a file that is renamed while flows end: each record is in one of the
// files, in order.
func TestAccessLogRotates(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	d := runFile(t, `
listeners: {l: {listen: "tcp://127.0.0.1:0", to: "{0}"}}
access-log: {to: "{dir}/a.log", format: "{cause} {listener} \"{sni}\" {bytes_up} {{{client}}}", mode: "0600"}
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
		testwait.Until(t, fmt.Sprintf("%d lines", n), func() bool {
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
	testwait.Until(t, "there is a new file", func() bool { _, err := os.Stat(now); return err == nil })
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

// A log whose lines have the field local has it for every flow, whether the daemon needed it or not: plain TCP, Unix,
// UDP, and clients that were refused.
func TestAccessLogLocal(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	d := runFile(t, `
listeners:
  tcp: {listen: "tcp://:0", to: "{0}"}
  unix: {listen: "unix://{dir}/l.sock", to: "{0}"}
  udp: {listen: "udp://127.0.0.1:0", timeouts: {idle: 1s}, to: "echo:"}
  denied: {listen: "tcp://127.0.0.1:0", deny: 127.0.0.0/8, to: "{0}"}
access-log: {to: "{dir}/a.log", format: "{listener} {local}"}
`, up.url())
	port := func(listener string) string {
		_, p, err := net.SplitHostPort(d.at(listener).String())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	want := fmt.Sprintf("denied tcp://127.0.0.1:%s\ntcp tcp://127.0.0.1:%s\nudp udp://127.0.0.1:%s\nunix unix://%s/l.sock\n",
		port("denied"), port("tcp"), port("udp"), d.dir)
	for _, c := range []net.Conn{testnet.Dial(t, netAddr(t, "tcp://127.0.0.1:"+port("tcp"))), d.to("unix")} {
		name(t, c)
		c.Close()
	}
	d.mustTurnAway("denied", "")
	mustPing(t, d.to("udp"))
	var text []byte
	testwait.Until(t, "each flow has a line", func() bool {
		text, _ = os.ReadFile(filepath.Join(d.dir, "a.log"))
		return bytes.Count(text, []byte("\n")) >= 4
	})
	if got := sorted(string(text)); got != want {
		t.Errorf("the log has\n%swant\n%s", got, want)
	}
}

// sorted sorts lines, because flows of several loops end concurrently.
func sorted(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for i := range lines {
		for j := i; j > 0 && lines[j] < lines[j-1]; j-- {
			lines[j], lines[j-1] = lines[j-1], lines[j]
		}
	}
	return strings.Join(lines, "")
}

// A log that nobody reads stops no flow: records without room are counted.
func TestAccessLogBlocked(t *testing.T) {
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
		return s.Resources.LogLinesDropped
	}
	// Refused clients make many records quickly.
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
	if n := d.metric("penstock_log_lines_dropped_total", `log="access"`); n == 0 {
		t.Error("the metrics know of no drop")
	}
	// It still exits in time, and reports what it dropped.
	c.Close()
	d.signal(os.Interrupt)
	d.mustExit(0)
	if l := d.line("the access log dropped flow records"); l["overflowed"].(float64) == 0 {
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

// A standard error that nobody reads, and that is full when the daemon starts, keeps it neither
// from serving nor from exiting.
func TestLogBlocked(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil {
		_, err = w.Write(make([]byte, 4096))
	}
	dir := shortDir(t)
	file := filepath.Join(dir, "penstock.yaml")
	text := places(dir, "listeners: {l: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\nadmin: {listen: 'unix://{dir}/s'}\n", nil)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "run", "-c", file)
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill()
	testwait.Until(t, "the daemon serves", func() bool {
		c, err := net.Dial("unix", filepath.Join(dir, "s"))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}

// A stranger's datagrams for a group without members do not fill the disk: the log has some of the
// flows, and the number of those it left out.
func TestLogFlooded(t *testing.T) {
	t.Parallel()
	d := runFile(t, `
listeners: {l: {listen: "udp://127.0.0.1:0", to: g}}
groups: {g: {members: [{to: "udp://127.0.0.1:9", drained: true}]}}
`)
	c, err := net.Dial("udp", strings.TrimPrefix(d.listener, "udp://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const flows = 1000
	refused := func() (n int) {
		text, _ := os.ReadFile(filepath.Join(d.dir, "access.log"))
		return bytes.Count(text, []byte(`"reason":"no-member"`))
	}
	for n := 1; n <= flows; n++ {
		c.Write([]byte("x"))
		if n%100 == 0 { // so many fit into the listener's buffer
			testwait.Until(t, "all so far were refused", func() bool { return refused() >= n })
		}
	}
	d.signal(syscall.SIGTERM)
	d.mustExit(0)
	told := 0
	lines := d.wait("flow", 1)
	for _, l := range lines {
		if left, ok := l["left_out"].(float64); ok {
			told += int(left)
		}
		if l["client"] != nil {
			told++
		}
	}
	if len(lines) > flows/5 || told != refused() {
		t.Errorf("%d lines in the log, which tell of %d flows, for %d", len(lines), told, refused())
	}
}
