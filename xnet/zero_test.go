package xnet

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/ipv4"

	"github.com/penstock/penstock/dgram"
)

// A Conn that New has not made says so in its own methods; those of the *net.UDPConn panic, as there is none.
func TestZeroConn(t *testing.T) {
	c := new(Conn)
	ms := []ipv4.Message{{Buffers: [][]byte{{1}}}}
	for name, call := range map[string]func() (int, error){
		"ReadBatch":           func() (int, error) { return c.ReadBatch(ms, 0) },
		"ReadBatch, flags":    func() (int, error) { return c.ReadBatch(ms, msgDontwait) },
		"ReadBatch, of none":  func() (int, error) { return c.ReadBatch(nil, 0) },
		"WriteBatch":          func() (int, error) { return c.WriteBatch(ms, 0) },
		"WriteBatch, flags":   func() (int, error) { return c.WriteBatch(ms, 0x10) },
		"Read":                func() (int, error) { return c.Read(make([]byte, 1)) },
		"ReadFrom":            func() (n int, err error) { n, _, err = c.ReadFrom(make([]byte, 1)); return },
		"ReadFromUDPAddrPort": func() (n int, err error) { n, _, err = c.ReadFromUDPAddrPort(make([]byte, 1)); return },
		"ReadMsgUDP":          func() (n int, err error) { n, _, _, _, err = c.ReadMsgUDP(make([]byte, 1), nil); return },
	} {
		n, err := call()
		var op *net.OpError
		if n != 0 || !errors.Is(err, syscall.EINVAL) || !errors.As(err, &op) || !strings.Contains(err.Error(), "New has not made") {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	if c.Stats() != (dgram.Stats{}) || c.Mode() != (dgram.Mode{}) {
		t.Errorf("%+v, %+v", c.Stats(), c.Mode())
	}
}
