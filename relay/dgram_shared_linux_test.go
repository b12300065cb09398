package relay

import (
	"os"
	"testing"
	"time"
)

// A port whose socket others have too is forgotten when it is closed: what comes
// to it later wakes no loop.
func TestClosedPortIsForgotten(t *testing.T) {
	for _, network := range []string{"udp4", "unixgram"} {
		t.Run(network, func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			s, c := packetSocket(t, network), packetSocket(t, network)
			f, err := s.(interface{ File() (*os.File, error) }).File()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			at := gramAddr(s.LocalAddr())
			echo := func(*Flow, int) *Addr { return &Addr{Network: Echo} }
			l, err := r.e.ServePacket(s, ListenConfig{Hooks: Hooks{Done: r.done, Upstream: echo}})
			if err != nil {
				t.Fatal(err)
			}
			askGram(t, c, at, "before")
			l.Close()
			r.expect(CauseClosed)
			tellGram(t, c, at, "for somebody else")
			events := func() int64 {
				s := r.e.Stats()
				total := s.Total()
				return total.Events
			}
			before := events()
			time.Sleep(20 * time.Millisecond)
			if n := events() - before; n > 100 { // those that asking costs are a few
				t.Errorf("%d events in 20 ms without work", n)
			}
		})
	}
}
