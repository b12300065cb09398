package relay

import (
	"crypto/tls"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/hold"
)

// More flows than one turn settles, none of which can be settled yet, keep those behind them from nothing: these are settled while the
// loop goes on, and not by a hand-over that has stopped it.
func TestSettleBehindLater(t *testing.T) {
	h := newMemoryHolder(t)
	r := newRig(t, Config{Loops: 1, Keep: &hold.Keep{Holder: h, After: patience}})
	s := newServer(t, "tcp4")
	secure := r.listen("tcp4", (&encryption{terminate: true, kernel: true}).config(), s.addr)
	plain := r.listen("tcp4", ListenConfig{}, s.addr)
	const later = settleBurst + 1
	for range later {
		raw := dial(t, secure)
		c := tls.Client(raw, clientTLS())
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		b := s.accept(t)
		defer b.Close()
		say(t, c, b, "whole")
		if _, err := raw.Write([]byte{23, 3}); err != nil { // of a record that has not come yet, which the kernel could not have
			t.Fatal(err)
		}
	}
	last := dial(t, plain)
	say(t, last, s.accept(t), "hello")
	on := r.e.streams.all[0]
	unsettled := func() (n int) {
		on.loop.Ask(func() { n = on.keep.unsettled.len() })
		return n
	}
	testwait.Until(t, "all records have begun", func() bool {
		begun := 0
		on.loop.Ask(func() {
			on.slab.Each(func(f *streamFlow) {
				if f.tls != nil && !f.tls.conn[sideClient].Whole() {
					begun++
				}
			})
		})
		return begun == later
	})
	if n := unsettled(); n != later+1 {
		t.Fatalf("%d flows wait to be settled, want %d", n, later+1)
	}
	if err := r.e.settleRunning(t.Context(), on); err != nil {
		t.Fatal(err)
	}
	if held, left := h.count(holdFlow), unsettled(); held != 1 || left != later {
		t.Errorf("%d flows are settled, and %d wait; want 1 and %d", held, left, later)
	}
}
