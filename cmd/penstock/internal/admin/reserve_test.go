package admin

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// When descriptors have run out, clients are accepted in place of the reserved ones,
// and one that leaves makes room for another. It takes a process of its own, whose
// table is full.
func TestReserve(t *testing.T) {
	const env = "PENSTOCK_ADMIN_FULL_TABLE"
	if os.Getenv(env) == "" {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", "-c", `ulimit -n 64 && exec "$0" -test.run='^TestReserve$' -test.v`, exe)
		cmd.Env = append(os.Environ(), env+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("the child: %v\n%s", err, out)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	r := newReserve(l)
	for range reserveSize + 2 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	var filler []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		filler = append(filler, f)
	}
	var in []net.Conn
	for range reserveSize {
		c, err := r.Accept()
		if err != nil {
			t.Fatalf("client %d: %v", len(in), err)
		}
		in = append(in, c)
	}
	if _, err := r.Accept(); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("one more than are reserved: %v", err)
	}
	in[0].Close()
	if in[0], err = r.Accept(); err != nil {
		t.Errorf("after one has left: %v", err)
	}
	for _, f := range filler {
		f.Close()
	}
	for _, c := range in {
		c.Close()
	}
	if n := len(r.spare); n != reserveSize {
		t.Errorf("%d in reserve, want %d", n, reserveSize)
	}
	r.Close()
	if len(r.spare) != 0 {
		t.Errorf("%d left behind", len(r.spare))
	}
}
