//go:build unix

package dgram

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

func listenUnix(tb testing.TB, path string) *net.UnixConn {
	tb.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// TestUnix sends between Unix datagram sockets, whose short queue blocks the
// writer again and again.
func TestUnix(t *testing.T) {
	eachLevel(t, func(t *testing.T, l level) {
		dir, err := os.MkdirTemp("", "dgram") // t.TempDir is too long a path on some systems
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		names := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
		if runtime.GOOS == "linux" {
			names = append(names, "@penstock-dgram-test-"+filepath.Base(dir))
		}
		server := listenUnix(t, filepath.Join(dir, "server"))
		r := l.conn(t, server)
		for _, name := range names {
			s := l.conn(t, listenUnix(t, name))
			var ms []Message
			for i := range 50 {
				ms = append(ms, Message{Buf: payload(i, 1+rand.IntN(5000)), Path: server.LocalAddr().String(), Segment: i % 3 * 1000})
			}
			want := datagrams(ms)
			done := make(chan error, 1)
			go func() {
				n, err := s.WriteBatch(ms)
				if n != len(ms) {
					err = errors.Join(errors.New("not all was sent"), err)
				}
				done <- err
			}()
			came := collect(t, r, len(want))
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if diff := sameDatagrams(came, want); diff != "" {
				t.Fatal(diff)
			}
			for _, g := range came {
				if g.m.Path != name || g.m.Addr.IsValid() {
					t.Fatalf("from %q, want %q", g.m.Path, name)
				}
			}
			// An answer.
			mustWrite(t, r, []Message{{Buf: []byte("ok"), Path: name}})
			collect(t, s, 1)
		}
	})
}

// TestUnixPair uses a connected socket without a name, and a write that blocks
// until its deadline.
func TestUnixPair(t *testing.T) {
	eachLevel(t, func(t *testing.T, l level) {
		dir, err := os.MkdirTemp("", "dgram")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		server := listenUnix(t, filepath.Join(dir, "s"))
		client, err := net.DialUnix("unixgram", nil, server.LocalAddr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		s, r := l.conn(t, client), l.conn(t, server)
		ms := make([]Message, 1000)
		for i := range ms {
			ms[i].Buf = payload(i, 1000)
		}
		client.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		n, err := s.WriteBatch(ms)
		for wait := 40 * time.Millisecond; n == 0 && wait < patience; wait *= 2 { // a busy machine may let it pass before the first
			client.SetWriteDeadline(time.Now().Add(wait))
			n, err = s.WriteBatch(ms)
		}
		if n == 0 || n == len(ms) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("WriteBatch = %d, %v; want some and a deadline", n, err)
		}
		for _, g := range collect(t, r, n) {
			if g.m.Path != "" {
				t.Errorf("an unnamed socket is called %q", g.m.Path)
			}
		}
		// The path may be the peer's, and no other.
		client.SetWriteDeadline(time.Time{})
		mustWrite(t, s, []Message{{Buf: []byte("x"), Path: server.LocalAddr().String()}})
		collect(t, r, 1)
		if n, err := s.WriteBatch([]Message{{Buf: []byte("x"), Path: server.LocalAddr().String() + "x"}}); n != 0 || !errors.Is(err, net.ErrWriteToConnected) {
			t.Errorf("to another path: %d, %v", n, err)
		}
		// What was not sent is the caller's to send again.
		client.SetWriteDeadline(time.Time{})
		mustWrite(t, s, ms[n:n+1])
		if diff := sameDatagrams(collect(t, r, 1), datagrams(ms[n:n+1])); diff != "" {
			t.Error(diff)
		}
		if l.name == "portable" {
			return
		}
		out, in := ms[:4], MakeMessages(4)
		if allocs := testing.AllocsPerRun(50, func() {
			mustWrite(t, s, out)
			for got := 0; got < len(out); {
				k, err := r.ReadBatch(in)
				if err != nil {
					t.Fatal(err)
				}
				got += k
			}
		}); allocs != 0 {
			t.Errorf("%v allocations a batch", allocs)
		}
	})
}

func TestUnixKinds(t *testing.T) {
	dir, err := os.MkdirTemp("", "dgram")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	stream, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	c, err := net.DialUnix("unix", nil, stream.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := NewUnix(c, Config{}); err == nil {
		t.Error("a stream socket was taken for datagrams")
	}
	d := listenUnix(t, filepath.Join(dir, "d"))
	u, err := NewUnix(d, Config{ECN: true, Local: true, Pace: true, Errors: true})
	if err != nil {
		t.Fatal(err)
	}
	if m := u.Mode(); m.GSO || m.GRO || m.ECN || m.Local || m.Pace || m.Errors || m.Lost {
		t.Errorf("a Unix socket in mode %+v", m)
	}
	if n, err := u.WriteBatch([]Message{{Buf: []byte("x"), Path: string(make([]byte, 200))}}); n != 0 || err == nil {
		t.Errorf("a path that is too long: %d, %v", n, err)
	}
}
