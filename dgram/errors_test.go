package dgram

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// TestErrorInTheMiddle puts messages that cannot leave among ones that can: each
// is named by n, and going on behind it loses nothing.
func TestErrorInTheMiddle(t *testing.T) {
	eachLevel(t, func(t *testing.T, l level) {
		for _, bad := range []struct {
			name string
			m    Message
		}{
			{"too long", Message{Buf: make([]byte, 65508)}},
			{"segment too long", Message{Buf: make([]byte, 140_000), Segment: 65508}},
			{"other family", Message{Buf: []byte("x"), Addr: netip.MustParseAddrPort("[2001:db8::1]:9")}},
			{"negative segment", Message{Buf: make([]byte, 100), Segment: -1}},
			{"no address", Message{Buf: []byte("x"), Flags: 1}},
		} {
			t.Run(bad.name, func(t *testing.T) {
				p := newPath(t, "v4")
				send, recv := l.conn(t, p.send), l.conn(t, p.recv)
				var ms []Message
				var want [][]byte
				isBad := func(i int) bool { return i%7 == 3 || i%7 == 4 }
				for i := range 40 {
					m := Message{Buf: payload(i, 100), Addr: p.to}
					if isBad(i) {
						m = bad.m
						if !m.Addr.IsValid() && m.Flags == 0 {
							m.Addr = p.to
						}
					} else {
						want = append(want, m.Buf)
					}
					ms = append(ms, m)
				}
				for at := 0; at < len(ms); {
					n, err := send.WriteBatch(ms[at:])
					at += n
					if (err != nil) != (at < len(ms)) {
						t.Fatalf("WriteBatch = %d of %d, %v", n, len(ms)-at+n, err)
					}
					if at < len(ms) {
						if !isBad(at) {
							t.Fatalf("message %d is blamed: %v", at, err)
						}
						if ms[at].N != 0 {
							t.Fatalf("message %d: N = %d, nothing of it has left", at, ms[at].N)
						}
						at++
					}
				}
				if diff := sameDatagrams(collect(t, recv, len(want)), want); diff != "" {
					t.Error(diff)
				}
			})
		}
	})
}

// TestNothing: no socket is an error, and so is a negative segment.
func TestNothing(t *testing.T) {
	if _, err := New(nil, Config{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("New of no socket: %v", err)
	}
	if _, err := New(new(net.UDPConn), Config{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("New of the zero socket: %v", err)
	}
	if _, err := NewUnix(nil, Config{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("NewUnix of no socket: %v", err)
	}
	if _, err := NewUnix(new(net.UnixConn), Config{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("NewUnix of the zero socket: %v", err)
	}
	eachLevel(t, func(t *testing.T, l level) {
		p := newPath(t, "v4")
		c := l.conn(t, p.send)
		if n, err := c.WriteBatch([]Message{{Buf: []byte("x"), Addr: p.to, Segment: -1}}); n != 0 || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a segment of -1 bytes: %d, %v", n, err)
		}
	})
}

func TestErrorForms(t *testing.T) {
	eachLevel(t, func(t *testing.T, l level) {
		p := newPath(t, "connected-v4")
		c := l.conn(t, p.send)
		other := netip.MustParseAddrPort("127.0.0.9:9")
		if n, err := c.WriteBatch([]Message{{Buf: []byte("x"), Addr: other}}); n != 0 || !errors.Is(err, net.ErrWriteToConnected) {
			t.Errorf("write elsewhere on a connected socket = %d, %v", n, err)
		}
		if n, err := c.WriteBatch(nil); n != 0 || err != nil {
			t.Errorf("write of nothing = %d, %v", n, err)
		}
		if n, err := c.ReadBatch(nil); n != 0 || !errors.Is(err, io.ErrShortBuffer) {
			t.Errorf("read into nothing = %d, %v", n, err)
		}
		var oe *net.OpError
		if _, err := c.WriteBatch([]Message{{Buf: make([]byte, 70_000)}}); !errors.As(err, &oe) || oe.Op != "write" || oe.Net != "udp" {
			t.Errorf("%v (%T) does not say which call on which socket failed", err, err)
		}
	})
}

// TestDeadlineAndClose wakes calls that wait, and fails those that come after.
func TestDeadlineAndClose(t *testing.T) {
	eachLevel(t, func(t *testing.T, l level) {
		p := newPath(t, "v4")
		c := l.conn(t, p.recv)
		read := func(want error) <-chan error {
			done := make(chan error, 1)
			ms := MakeMessages(1)
			go func() {
				n, err := c.ReadBatch(ms)
				if n != 0 || !errors.Is(err, want) {
					done <- errors.Join(errors.New("the wrong end of a read"), err)
				}
				close(done)
			}()
			return done
		}
		wait := func(done <-chan error) {
			t.Helper()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Fatal("still waiting")
			}
		}
		p.recv.SetReadDeadline(time.Now().Add(-time.Second))
		wait(read(os.ErrDeadlineExceeded))

		p.recv.SetReadDeadline(time.Time{})
		begun := func() bool { _, blocked := testwait.Goroutines("dgram.(*Conn).ReadBatch("); return blocked == 2 }
		first, second := read(os.ErrDeadlineExceeded), read(os.ErrDeadlineExceeded)
		testwait.Until(t, "both reads wait", begun)
		p.recv.SetReadDeadline(time.Now())
		wait(first)
		wait(second)

		// Past deadlines are over: the socket still works.
		p.recv.SetReadDeadline(time.Now().Add(patience))
		mustWrite(t, l.conn(t, p.send), []Message{{Buf: []byte("alive"), Addr: p.to}})
		collect(t, c, 1)

		first, second = read(net.ErrClosed), read(net.ErrClosed)
		testwait.Until(t, "both reads wait", begun)
		p.recv.Close()
		wait(first)
		wait(second)
		wait(read(net.ErrClosed))
		if n, err := c.WriteBatch([]Message{{Buf: []byte("x"), Addr: p.from}}); n != 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("write to a closed socket = %d, %v", n, err)
		}
		p.send.SetWriteDeadline(time.Now().Add(-time.Second))
		if n, err := l.conn(t, p.send).WriteBatch([]Message{{Buf: []byte("x"), Addr: p.to}}); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write past its deadline = %d, %v", n, err)
		}
		if _, err := newConn(p.recv, l.cfg, l.open); l.name != "portable" && !errors.Is(err, net.ErrClosed) {
			t.Errorf("New on a closed socket: %v", err)
		}
		c.Stats() // of a closed socket: what was counted stands
	})
}

// TestShortBuffers: without super-packets a datagram is cut and says so; with
// them a short buffer is refused before anything is lost.
func TestShortBuffers(t *testing.T) {
	eachLevel(t, func(t *testing.T, l level) {
		p := newPath(t, "v4")
		send, recv := l.conn(t, p.send), l.conn(t, p.recv)
		mustWrite(t, send, []Message{{Buf: payload(1, 300), Addr: p.to}})
		ms := []Message{{Buf: make([]byte, 100), Flags: ControlTruncated}}
		n, err := recv.ReadBatch(ms)
		if recv.Mode().GRO {
			if n != 0 || !errors.Is(err, io.ErrShortBuffer) {
				t.Fatalf("ReadBatch with a short buffer and GRO = %d, %v", n, err)
			}
			collect(t, recv, 1)
			return
		}
		if n != 1 || err != nil || ms[0].N != 100 || ms[0].Flags != Truncated {
			t.Errorf("%d, %v: N = %d, flags %b; want 100 bytes and Truncated", n, err, ms[0].N, ms[0].Flags)
		}
		if s := recv.Stats(); s.Truncated != 1 {
			t.Errorf("Stats.Truncated = %d", s.Truncated)
		}
	})
}

// A Conn that New has not made says so, and does not panic.
func TestZeroConn(t *testing.T) {
	var c Conn
	ms := []Message{{Buf: make([]byte, 10)}}
	_, read := c.ReadBatch(ms)
	_, empty := c.ReadBatch(nil)
	_, write := c.WriteBatch(ms)
	_, set := c.SetReadBuffer(1000)
	for name, err := range map[string]error{"ReadBatch": read, "ReadBatch of nothing": empty, "WriteBatch": write, "SetReadBuffer": set} {
		if !errors.Is(err, errZeroConn) || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.TryReadBatch(ms); err == nil {
		t.Error("TryReadBatch reads")
	}
	if _, err := c.ReadErrors(nil); err == nil {
		t.Error("ReadErrors reads")
	}
	if c.Stats() != (Stats{}) || c.Mode() != (Mode{}) {
		t.Error("it has counted something")
	}
}
