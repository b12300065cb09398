package dgram

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// TestBlocking: a socket whose description was made blocking, as
// os.File.Fd does, waits as any other: its deadlines hold, and while it waits a
// collection can stop the world.
func TestBlocking(t *testing.T) {
	for _, when := range []string{"before New", "later"} {
		for _, kind := range []string{"udp", "unixgram"} {
			for _, batch := range []int{1, 4} {
				t.Run(when+"/"+kind, func(t *testing.T) {
					dir, err := os.MkdirTemp("", "dgram")
					if err != nil {
						t.Fatal(err)
					}
					defer os.RemoveAll(dir)
					var sock interface {
						socket
						File() (*os.File, error)
					}
					var m Message
					if kind == "udp" {
						c := listen(t, "udp4", "127.0.0.1:0")
						sock, m = c, Message{Addr: local(c)}
					} else {
						c := listenUnix(t, filepath.Join(dir, "s"))
						sock, m = c, Message{Path: c.LocalAddr().(*net.UnixAddr).Name}
					}
					block := func() {
						f, err := sock.File()
						if err != nil {
							t.Fatal(err)
						}
						f.Fd()
						f.Close()
					}
					if when == "before New" {
						block()
					}
					c := bestLevel.conn(t, sock)
					if when == "later" {
						block()
					}
					sock.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
					if when == "before New" { // New has made it non-blocking for net, too
						if _, err := sock.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
							t.Errorf("Read: %v", err)
						}
					}
					sock.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
					go runtime.GC()
					if n, err := c.ReadBatch(MakeMessages(batch)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("ReadBatch = %d, %v", n, err)
					}
					sock.SetWriteDeadline(time.Now().Add(patience))
					m.Buf = []byte("x")
					ms := make([]Message, batch)
					for i := range ms {
						ms[i] = m
					}
					n, err := c.WriteBatch(ms)
					if n != batch || err != nil {
						t.Errorf("WriteBatch = %d, %v", n, err)
					}
					if kind == "unixgram" { // whose queue is full after some
						sock.SetWriteDeadline(time.Now().Add(30 * time.Millisecond))
						for err == nil {
							n, err = c.WriteBatch(ms)
						}
						if !errors.Is(err, os.ErrDeadlineExceeded) {
							t.Errorf("WriteBatch = %d, %v", n, err)
						}
					}
					sock.SetReadDeadline(time.Now().Add(patience))
					if n, err := c.ReadBatch(MakeMessages(batch)); n < 1 || err != nil {
						t.Errorf("ReadBatch = %d, %v", n, err)
					}
				})
			}
		}
	}
}
