package host

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// The options of a group are set on the sockets of its checks.
func TestDialControl(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, c := range map[string]struct {
		dial spec.Dial
		want error
	}{"lo": {spec.Dial{Interface: "lo"}, nil}, "none": {spec.Dial{Interface: "no-such-device"}, syscall.ENODEV}} {
		d := net.Dialer{Control: DialControl(&c.dial)}
		conn, err := d.Dial("tcp", l.Addr().String())
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	if DialControl(&spec.Dial{}) != nil {
		t.Error("options where there are none")
	}
}
