package systemd

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

const patience = testnet.Patience

// start runs the test binary as a service with these descriptors, as systemd
// does: LISTEN_PID is the process's own number. What it writes is returned
// when it has ended; end closes its standard input.
func start(t *testing.T, names string, files ...*os.File) (end func() (stdout, stderr string, err error)) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", `export LISTEN_PID=$$; exec "$0"`, exe)
	cmd.Env = append(os.Environ(), childEnv+"=1", "LISTEN_FDS="+string(rune('0'+len(files))), "LISTEN_FDNAMES="+names, "GORACE=atexit_sleep_ms=0")
	cmd.ExtraFiles = files
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return func() (string, string, error) {
		in.Close()
		err := cmd.Wait()
		return out.String(), errs.String(), err
	}
}

func TestInherit(t *testing.T) {
	testnet.CheckLeaks(t)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	path := filepath.Join(t.TempDir(), "s")
	unix, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()

	var files []*os.File
	for _, c := range []interface{ File() (*os.File, error) }{tcp.(*net.TCPListener), unix.(*net.UnixListener), udp.(*net.UDPConn)} {
		f, err := c.File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	end := start(t, "web:web:dns", files...)

	read := func(c net.Conn) string {
		c.SetDeadline(time.Now().Add(patience))
		b := make([]byte, 100)
		n, err := c.Read(b)
		if err != nil && err != io.EOF {
			t.Error(err)
		}
		return string(b[:n])
	}
	for _, l := range []net.Listener{tcp, unix} {
		c := testnet.Dial(t, l.Addr())
		if got := read(c); got != "web" {
			t.Errorf("%v answered %q", l.Addr(), got)
		}
		c.Close()
	}
	c, err := net.Dial("udp", udp.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("?"))
	if got := read(c); got != "dns" {
		t.Errorf("%v answered %q", udp.LocalAddr(), got)
	}
	out, errs, err := end()
	if err != nil || out != "[dns web]\n" {
		t.Errorf("the service said %q, %q and ended with %v", out, errs, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the socket's path is the manager's: %v", err)
	}
}

// What is no socket is refused by name.
func TestInheritRefuses(t *testing.T) {
	testnet.CheckLeaks(t)
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, errs, err := start(t, "fifo", f)()
	if err == nil || !strings.Contains(errs, `descriptor 3, "fifo", is not a listening socket`) {
		t.Errorf("ended with %v and said %q", err, errs)
	}
}

// Variables that are meant for another process, or for none, are not obeyed.
func TestInheritNothing(t *testing.T) {
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("LISTEN_FDS", "2")
	s, err := Inherit()
	if err != nil || len(s.Names()) != 0 {
		t.Errorf("%v, %v", s, err)
	}
}
