package xnet

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/penstock/penstock/dgram"
)

// What is left of a super-packet is handed out as the kernel would hand it out:
// not past the deadline, and not once the socket is closed.
func TestWhatIsLeft(t *testing.T) {
	a, b := listen(t, "udp4", "127.0.0.1:0", dgram.Config{}), listen(t, "udp4", "127.0.0.1:0", dgram.Config{})
	if !a.Mode().GSO || !b.Mode().GRO {
		t.Skip("no super-packets here")
	}
	out := make([]ipv4.Message, 3)
	for i := range out {
		out[i] = ipv4.Message{Buffers: [][]byte{{byte(i)}}, Addr: b.LocalAddr()}
	}
	if n, err := a.WriteBatch(out, 0); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	buf := make([]byte, 1)
	m := []ipv4.Message{{Buffers: [][]byte{buf}}}
	read := func(want byte, wantErr error) {
		t.Helper()
		if n, err := b.ReadBatch(m, 0); wantErr != nil && (n != 0 || !errors.Is(err, wantErr)) || wantErr == nil && (n != 1 || err != nil || buf[0] != want) {
			t.Errorf("%d, %v, byte %d; want %d, %v", n, err, buf[0], want, wantErr)
		}
	}
	read(0, nil)
	b.SetReadDeadline(time.Now().Add(-time.Second))
	read(0, os.ErrDeadlineExceeded)
	b.SetReadDeadline(time.Now().Add(patience))
	read(1, nil)
	b.Close()
	read(0, net.ErrClosed)
}
