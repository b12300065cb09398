package relay

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// A listener that is paused is bound, and takes nobody in before it is updated.
func TestPaused(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		t.Run(network, func(t *testing.T) {
			r := newRig(t, Config{Loops: 2})
			cfg := ListenConfig{Paused: true}
			l := r.listen(network, cfg, echoServer(t, "tcp4"))
			c := dial(t, l)
			if _, err := c.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("a paused listener: %d, %v", n, err)
			}
			if s := r.e.Stats(); s.Flows() != 0 {
				t.Fatalf("%d flows", s.Flows())
			}
			next := *l.cfg.Load()
			next.Paused = false
			if err := l.Update(next); err != nil {
				t.Fatal(err)
			}
			hear(t, c, "hello")
			next.Paused = true
			if err := l.Update(next); err == nil {
				t.Error("paused again")
			}
			c.Close()
			r.expect(CauseEnd)
		})
	}
}

// One that is never opened gives everything back.
func TestPausedClose(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		r := newRig(t, Config{Loops: 2})
		l := r.listen(network, ListenConfig{Paused: true}, &Addr{Network: Discard})
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if c, err := net.Dial(toNet(l.Addr()).Network(), toNet(l.Addr()).String()); err == nil {
			t.Errorf("%s: somebody still listens", network)
			c.Close()
		}
		r.listen(network, ListenConfig{Paused: true}, &Addr{Network: Discard}) // the engine's Close ends it
	}
}
