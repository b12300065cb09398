package account

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

func open(t *testing.T, to string, log io.Writer) *Log {
	t.Helper()
	l, err := Open(spec.AccessLog{To: to, Format: "{id} {member}", Mode: 0o604}, textLog(log), Progress{}, Opening{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func enter(l *Log, ids ...uint64) {
	for _, id := range ids {
		e := entry()
		e.ID = id
		l.Record(e)
	}
}

func TestFile(t *testing.T) {
	testnet.CheckLeaks(t)
	dir := t.TempDir()
	name := filepath.Join(dir, "access.log")
	var log bytes.Buffer
	l := open(t, name, &log)
	enter(l, 1, 2)
	testwait.Until(t, "two lines", func() bool { return l.Stats().Written == 2 })
	if err := os.Rename(name, name+".1"); err != nil {
		t.Fatal(err)
	}
	l.Reopen()
	testwait.Until(t, "a new file", func() bool { _, err := os.Stat(name); return err == nil })
	enter(l, 3)
	l.Close()
	for file, want := range map[string]string{name + ".1": "1 app-1\n2 app-1\n", name: "3 app-1\n"} {
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", file, got, err, want)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o604 {
			t.Errorf("%s: mode %v, %v", file, info.Mode(), err)
		}
	}
	// The next start goes on in the same file, and leaves its mode alone.
	if err := os.Chmod(name, 0o600); err != nil {
		t.Fatal(err)
	}
	l = open(t, name, &log)
	enter(l, 4)
	l.Close()
	got, _ := os.ReadFile(name)
	if info, _ := os.Stat(name); string(got) != "3 app-1\n4 app-1\n" || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, mode %v", got, info.Mode())
	}
	if log.Len() > 0 {
		t.Errorf("the log says %q", log.String())
	}
}

// A name that cannot be opened again leaves the old file in use.
func TestReopenFails(t *testing.T) {
	testnet.CheckLeaks(t)
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	l := open(t, filepath.Join(dir, "access.log"), &log)
	moved := dir + ".old"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	l.reopen <- struct{}{} // full: the writer takes it before the next one
	l.reopen <- struct{}{}
	enter(l, 1)
	l.Close()
	if got, err := os.ReadFile(filepath.Join(moved, "access.log")); err != nil || string(got) != "1 app-1\n" {
		t.Errorf("%q, %v", got, err)
	}
	if !strings.Contains(log.String(), "cannot reopen the access log; the old file stays open") {
		t.Errorf("the log says %q", log.String())
	}
}

func TestOpenRefuses(t *testing.T) {
	testnet.CheckLeaks(t)
	for _, c := range []struct{ to, format, want string }{
		{filepath.Join(t.TempDir(), "no", "such"), JSON, "no such file or directory"},
		{"relative", JSON, `invalid target "relative"; allowed: stdout, stderr, otlp, /PATH, syslog:`},
		{"syslog:", JSON, `invalid syslog server "syslog:"; allowed:`},
		{"syslog:echo://", JSON, "invalid syslog server"},
		{"stdout", "{x}", "access log's format: column 1"},
	} {
		l, err := Open(spec.AccessLog{To: c.to, Format: c.format}, textLog(io.Discard), Progress{}, Opening{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.to, err, c.want)
		}
		l.Close()
	}
	if l, err := Open(spec.AccessLog{}, nil, Progress{}, Opening{}); l != nil || err != nil {
		t.Errorf("%v, %v", l, err)
	}
	for _, to := range []string{"stdout", "stderr", "/a", "syslog:localhost:514", "syslog:tcp://[::1]:601", "syslog:unix:///dev/log", "syslog:unixgram:///dev/log"} {
		if err := CheckTarget(to); err != nil {
			t.Error(err)
		}
	}
}

// A full disk costs lines, which are counted and told of, and nothing else.
func TestFullDisk(t *testing.T) {
	testnet.CheckLeaks(t)
	if _, err := os.Stat("/dev/full"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("there is no /dev/full")
	}
	var log bytes.Buffer
	l := open(t, "/dev/full", &log)
	enter(l, 1, 2, 3)
	testwait.Until(t, "three failures", func() bool { return l.Stats().Failed == 3 })
	enter(l, 4)
	l.Close()
	if got := l.Stats(); got != (LogStats{Failed: 4}) {
		t.Errorf("%+v", got)
	}
	if want := `msg="the access log dropped flow records" overflowed=0 failed=4 error="write /dev/full: no space left on device"`; !strings.Contains(log.String(), want) {
		t.Errorf("the log says %q", log.String())
	}
}

// A process that is killed while it writes leaves a part of a line. The next one begins a line of its own,
// when it opens the file and when it opens it again.
func TestTornFile(t *testing.T) {
	testnet.CheckLeaks(t)
	name := filepath.Join(t.TempDir(), "access.log")
	tear := func(part string) {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			_, err = f.WriteString(part)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := newFormatter("{id} {member}")
	if err != nil {
		t.Fatal(err)
	}
	tear("1 m1\n2 ")
	s, err := newFile(name, 0o600, f, Opening{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	write := func(id uint64) {
		e := entry()
		e.ID = id
		s.put(e)
		if written, _, err := s.flush(); written != 1 {
			t.Fatal(written, err)
		}
	}
	write(3)
	tear("4 m")
	if err := s.reopen(); err != nil {
		t.Fatal(err)
	}
	write(5)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for line := range strings.Lines(string(text)) {
		id, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		ids = append(ids, id)
	}
	if got := strings.Join(ids, " "); got != "1 2 3 4 5" {
		t.Errorf("lines begin with %s:\n%s", got, text)
	}
}

// A write that ends within a line does not spoil the next one.
func TestTornLine(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := newFormatter("{member}{id}")
	if err != nil {
		t.Fatal(err)
	}
	s := &file{f: w, name: "pipe", format: f}
	defer s.close()
	long := entry()
	long.Member = strings.Repeat("x", 1<<20)
	type outcome struct {
		written, failed int
		err             error
	}
	ended := make(chan outcome)
	go func() {
		written, failed, err := s.put(long) // more than the pipe holds
		ended <- outcome{written, failed, err}
	}()
	if _, err := r.Read(make([]byte, 1)); err != nil { // so something was written
		t.Fatal(err)
	}
	s.abort()
	if got := <-ended; got.written != 0 || got.failed != 1 || !errors.Is(got.err, os.ErrDeadlineExceeded) {
		t.Fatalf("%+v", got)
	}
	short := entry()
	short.Member = "y"
	s.put(short)
	if _, failed, _ := s.flush(); failed != 1 {
		t.Fatalf("%d failed", failed)
	}
	w.SetWriteDeadline(time.Time{})
	lines := make(chan string, 2)
	go func() {
		for in := bufio.NewReader(r); ; {
			text, err := in.ReadString('\n')
			if err != nil {
				return
			}
			lines <- text
		}
	}()
	s.put(short)
	if written, _, err := s.flush(); written != 1 {
		t.Fatal(err)
	}
	if midLine := <-lines; strings.Trim(midLine, "x\n") != "" {
		t.Errorf("%q in the midLine line", strings.Trim(midLine, "x\n"))
	}
	if got := <-lines; got != "y72057594037927943\n" {
		t.Errorf("%q", got)
	}
}

// A FIFO that nobody reads: flows go on, records are dropped and counted, Close
// comes back, and nothing is left behind.
func TestFIFO(t *testing.T) {
	testnet.CheckLeaks(t)
	name := filepath.Join(t.TempDir(), "fifo")
	if out, err := exec.Command("mkfifo", name).CombinedOutput(); err != nil {
		t.Skipf("mkfifo: %v %s", err, out)
	}
	var log bytes.Buffer
	l := open(t, name, &log)
	e := entry()
	e.Member = strings.Repeat("m", 100)
	const most = 1 << 20
	n := 0
	for ; l.Stats().Dropped() == 0 && n < most; n++ {
		l.Record(e)
	}
	if n == most {
		t.Fatal("a FIFO without a reader takes all")
	}
	l.Close()
	<-l.done
	<-l.reported
	if !strings.Contains(log.String(), "the access log dropped flow records") {
		t.Errorf("the log says %q", log.String())
	}
}

const syslogLine = `^<30>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z [!-~]{1,255} penstock \d+ flow - (\d+) app-1$`

func TestSyslogDatagrams(t *testing.T) {
	testnet.CheckLeaks(t)
	path := filepath.Join(t.TempDir(), "log")
	for _, at := range [][2]string{{"udp", "127.0.0.1:0"}, {"unixgram", path}} {
		server, err := net.ListenPacket(at[0], at[1])
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		to := "syslog:" + server.LocalAddr().String()
		if at[0] == "unixgram" {
			to = "syslog:unix://" + path
		}
		l := open(t, to, io.Discard)
		enter(l, 1, 2)
		server.SetReadDeadline(time.Now().Add(patience))
		b := make([]byte, 2000)
		for id := range 2 {
			n, _, err := server.ReadFrom(b)
			if err != nil {
				t.Fatal(err)
			}
			m := regexp.MustCompile(syslogLine).FindSubmatch(b[:n])
			if m == nil || string(m[2]) != fmt.Sprint(id+1) {
				t.Errorf("%s: %q", to, b[:n])
			}
		}
		l.Close()
	}
}

// On a stream messages are counted; a server that comes back is found again.
func TestSyslogStreams(t *testing.T) {
	testnet.CheckLeaks(t)
	path := filepath.Join(t.TempDir(), "log")
	for _, at := range [][2]string{{"tcp", "127.0.0.1:0"}, {"unix", path}} {
		server, err := net.Listen(at[0], at[1])
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		to := "syslog:" + at[0] + "://" + server.Addr().String()
		l := open(t, to, io.Discard)
		for round := range 2 {
			// A server that went away is noticed by a write that fails, so some
			// records of the second round are lost.
			got := make(chan string, 1)
			go func() {
				c, err := server.Accept()
				if err != nil {
					got <- err.Error()
					return
				}
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience))
				got <- readCounted(c)
			}()
			testwait.Until(t, "a message", func() bool {
				enter(l, uint64(round))
				select {
				case text := <-got:
					m := regexp.MustCompile(syslogLine).FindStringSubmatch(text)
					if m == nil || round == 0 && m[2] != "0" {
						t.Errorf("%s: %q", to, text)
					}
					return true
				default:
					return false
				}
			})
		}
		l.Close()
	}
}

// readCounted reads one message of counted octets.
func readCounted(r io.Reader) string {
	in := bufio.NewReader(r)
	count, err := in.ReadString(' ')
	if err != nil {
		return err.Error()
	}
	n, err := strconv.Atoi(strings.TrimSuffix(count, " "))
	if err != nil {
		return err.Error()
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(in, b); err != nil {
		return err.Error()
	}
	return string(b)
}

func TestSyslogIsGone(t *testing.T) {
	testnet.CheckLeaks(t)
	l := open(t, "syslog:unix://"+filepath.Join(t.TempDir(), "gone"), io.Discard)
	enter(l, 1, 2, 3)
	l.Close()
	<-l.done
	if got := l.Stats(); got != (LogStats{Failed: 3}) {
		t.Errorf("%+v", got)
	}
	if err := l.lastErr.Load(); err != nil && !errors.Is(*err, syscall.ENOENT) {
		t.Error(*err)
	}
}

// Standard output, which the log does not close.
func TestStdout(t *testing.T) {
	testnet.CheckLeaks(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	old := os.Stdout
	os.Stdout = w
	l, err := Open(spec.AccessLog{To: "stdout", Format: JSON}, textLog(io.Discard), Progress{}, Opening{})
	os.Stdout = old
	if err != nil {
		t.Fatal(err)
	}
	enter(l, 9)
	l.Close()
	w.Close() // Close has left it open
	out, _ := io.ReadAll(r)
	var got map[string]any
	if err := json.Unmarshal(out, &got); err != nil || got["id"] != "9" {
		t.Errorf("%q: %v", out, err)
	}
}

// A file that cannot be opened is tried again; records are dropped and counted until then.
func TestFileThatCannotBeOpened(t *testing.T) {
	testnet.CheckLeaks(t)
	name := filepath.Join(t.TempDir(), "access.log")
	if err := os.Mkdir(name, 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := spec.AccessLog{To: name, Format: "{id}"}
	if l, err := Open(cfg, textLog(io.Discard), Progress{}, Opening{}); l != nil || err == nil {
		t.Fatalf("%v, %v", l, err)
	}
	l, err := Open(cfg, textLog(io.Discard), Progress{}, Opening{Retry: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	enter(l, 1, 2)
	testwait.Until(t, "two records are dropped", func() bool { return l.Stats().Failed == 2 })
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	id := uint64(2)
	testwait.Until(t, "a record is written", func() bool {
		id++
		enter(l, id)
		return l.Stats().Written > 0
	})
	testwait.Until(t, "each record is written or dropped", func() bool { s := l.Stats(); return uint64(s.Written+s.Failed) == id })
	text, err := os.ReadFile(name)
	if n := int64(bytes.Count(text, []byte("\n"))); err != nil || n != l.Stats().Written {
		t.Errorf("%d lines, %v: %+v", n, err, l.Stats())
	}
}
