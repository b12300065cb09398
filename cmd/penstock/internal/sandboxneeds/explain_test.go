package sandboxneeds

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/sandbox"
)

// An error that the sandbox has caused says what it does not have, and others stay as they are.
func TestExplain(t *testing.T) {
	h := &Held{Policy: sandbox.Policy{Read: []string{"/a"}, Write: []string{"/w"}, Connect: []uint16{9000}}}
	for l := range sandbox.Calls + 1 {
		h.Report.Layers = append(h.Report.Layers, sandbox.Status{Layer: l, Held: true, Wanted: true})
	}
	dial := func(e syscall.Errno, a net.Addr) error {
		return fmt.Errorf("check: %w", &net.OpError{Op: "dial", Net: a.Network(), Addr: a, Err: os.NewSyscallError("connect", e)})
	}
	open := func(path string) error { return &fs.PathError{Op: "open", Path: path, Err: syscall.EACCES} }
	at := func(port int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: port} }
	const denied, not = "permission denied", "operation not permitted"
	for _, c := range []struct {
		err  error
		want string
	}{
		{dial(syscall.EACCES, at(9001)), "check: dial tcp 10.0.0.1:9001: connect: " + denied + " (the sandbox has no port 9001)"},
		{dial(syscall.EACCES, at(9000)), "check: dial tcp 10.0.0.1:9000: connect: " + denied},
		{dial(syscall.ECONNREFUSED, at(9001)), "check: dial tcp 10.0.0.1:9001: connect: connection refused"},
		{dial(syscall.EPERM, &net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 53}), "check: dial udp 10.0.0.1:53: connect: " + not},
		{dial(syscall.EPERM, &net.UnixAddr{Net: "unix", Name: "/run/x"}), "check: dial unix /run/x: connect: " + not + " (the sandbox has no Unix sockets)"},
		{dial(syscall.EPERM, &net.UnixAddr{Net: "unixgram", Name: "@x"}), "check: dial unixgram @x: connect: " + not + " (the sandbox has no abstract Unix sockets of other processes)"},
		{open("/a/b"), "open /a/b: " + denied},
		{open("/etc/shadow"), "open /etc/shadow: " + denied + " (the sandbox has no file /etc/shadow)"},
		{open("/w/b"), "open /w/b: " + denied},
		{h.ExplainConnect(os.NewSyscallError("connect", syscall.EACCES), spec.Endpoint{Kind: spec.TCP, Port: 9001}), "connect: " + denied + " (the sandbox has no port 9001)"},
		{syscall.EACCES, denied},
	} {
		got := h.Explain(c.err)
		if got.Error() != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if again := h.Explain(got); again != got || !errors.Is(got, c.err) {
			t.Errorf("%v is explained again, as %v", got, again)
		}
		if (*Held)(nil).Explain(c.err) != c.err {
			t.Errorf("%v is explained without a sandbox", c.err)
		}
	}
	if h.Explain(nil) != nil {
		t.Error("no error is explained")
	}
}
