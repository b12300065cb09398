package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// answeredFrom sends datagrams to a path from a socket with a name, and expects their echoes.
func answeredFrom(t *testing.T, name, path string) {
	t.Helper()
	c, err := net.DialUnix("unixgram", &net.UnixAddr{Net: "unixgram", Name: name}, &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	b := make([]byte, 64)
	for range 2 {
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(b); err != nil || string(b[:n]) != "hello" {
			t.Errorf("from %q: %q, %v", name, b[:n], err)
			return
		}
	}
}

// Clients of a listener for Unix datagrams are answered in the sandbox, whatever their names are, and so is another relay, whose
// sockets have names that the kernel has chosen.
func TestUnixgramInSandbox(t *testing.T) {
	t.Parallel()
	for _, keeper := range []string{"none", "{keep-after: 0, healthy-after: 0}"} {
		t.Run("keeper "+keeper, func(t *testing.T) {
			t.Parallel()
			start := func(text string, values ...any) *kept {
				k := &kept{configured: runFile(t, text+"\nkeeper: "+keeper+"\n", values...)}
				k.endWorker(t)
				testwait.Until(t, "the API answers", k.answers)
				return k
			}
			last := start("listeners: {u: {listen: 'unixgram://{dir}/u.sock', to: 'echo:'}}")
			first := start("listeners: {u: {listen: 'unixgram://{dir}/u.sock', to: 'unixgram://{0}/u.sock'}}", last.dir)
			for _, d := range []*kept{last, first} {
				path := d.dir + "/u.sock"
				for i, name := range []string{"@" + filepath.Base(d.dir), d.dir + "/client.sock"} {
					answeredFrom(t, name, path)
					if d == first && i == 0 && keeper != "none" {
						last.crash()
						first.crash()
						answeredFrom(t, name, path)
					}
				}
			}
		})
	}
}

// The same on a socket that the service manager has bound.
func TestInheritedUnixgramInSandbox(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	d := &configured{dir: dir, file: dir + "/penstock.yaml"}
	d.write(t, "listeners: {u: {inherit: u, datagrams: true, to: 'echo:'}}")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: dir + "/u.sock"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=u exec "$0" run -c "$1/penstock.yaml"`, binary, dir)
	cmd.ExtraFiles = []*os.File{file}
	d.begin(t, cmd)
	file.Close()
	answeredFrom(t, "@"+filepath.Base(dir), dir+"/u.sock")
}
