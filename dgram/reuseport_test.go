package dgram

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"
)

func TestListenReusePort(t *testing.T) {
	for _, n := range []int{1, 4} {
		all, err := ListenReusePort(context.Background(), "udp", "127.0.0.1:0", n)
		if n > 1 && runtime.GOOS != "linux" {
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%d sockets: %v", n, err)
			}
			continue
		}
		if err != nil || len(all) != n {
			t.Fatalf("%d sockets of %d: %v", len(all), n, err)
		}
		for _, c := range all {
			defer c.Close()
			if c.LocalAddr().String() != all[0].LocalAddr().String() {
				t.Errorf("%s and %s differ", c.LocalAddr(), all[0].LocalAddr())
			}
		}
		// Many clients: their datagrams reach the sockets, each socket some of them.
		const clients = 64
		for range clients {
			c, err := net.Dial("udp", all[0].LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
		total := 0
		for _, c := range all {
			d, err := New(c, Config{})
			if err != nil {
				t.Fatal(err)
			}
			c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			ms := Batch(clients)
			came := 0
			for k, err := d.ReadBatch(ms); err == nil; k, err = d.ReadBatch(ms) {
				came += k
			}
			if total += came; came == 0 {
				t.Errorf("one of %d sockets got nothing from %d clients", n, clients)
			}
		}
		if total != clients {
			t.Errorf("%d of %d datagrams", total, clients)
		}
	}
}

func TestListenReusePortErrors(t *testing.T) {
	if _, err := ListenReusePort(context.Background(), "udp", "127.0.0.1:0", 0); err == nil {
		t.Error("no sockets, and no error")
	}
	if _, err := ListenReusePort(context.Background(), "unixgram", t.TempDir()+"/s", 1); err == nil {
		t.Error("a Unix socket is no UDP socket")
	}
	taken := listen(t, "udp4", "127.0.0.1:0")
	if _, err := ListenReusePort(context.Background(), "udp4", taken.LocalAddr().String(), 2); err == nil {
		t.Error("a port that somebody else has was taken")
	}
}
