package dgram

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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
		came := make([]int, n)
		var total atomic.Int64
		var wg sync.WaitGroup
		for i, c := range all {
			d, err := New(c, Config{})
			if err != nil {
				t.Fatal(err)
			}
			c.SetReadDeadline(time.Now().Add(patience))
			wg.Go(func() {
				ms := MakeMessages(clients)
				for k, err := d.ReadBatch(ms); err == nil; k, err = d.ReadBatch(ms) {
					came[i] += k
					if total.Add(int64(k)) == clients {
						for _, c := range all {
							c.SetReadDeadline(time.Now())
						}
					}
				}
			})
		}
		wg.Wait()
		if total.Load() != clients || slices.Contains(came, 0) {
			t.Errorf("%d datagrams of %d clients came: by socket %v", total.Load(), clients, came)
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
