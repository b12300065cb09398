package relay

import (
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/relay/hold"
)

// A holder that is full does not keep the next process from starting: it has the loops that the flows of the one before need, and their
// counters go on.
func TestFewerLoopsWithFullHolder(t *testing.T) {
	testnet.CheckLeaks(t)
	h := newMemoryHolder(t)
	first, err := New(Config{Loops: 2, Keep: &hold.Keep{Holder: h}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range first.streams.all {
		s.loop.Ask(func() { s.loopStats.Accepted = 10 })
	}
	given := h.of(holdLedger)
	first.Close()
	h.set(true)
	if e, err := New(Config{Loops: 2, Keep: &hold.Keep{Holder: h}}); err == nil {
		e.Close()
		t.Error("the first engine of a holder that holds nothing")
	}
	e, err := New(Config{Loops: 4, Keep: &hold.Keep{Holder: h, Held: given}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Restore(RestoreConfig{}); err != nil {
		t.Error(err)
	}
	if s := e.Stats(); len(s.Loops) != 2 || s.Total().Accepted != 20 {
		t.Errorf("%d loops, %d accepted", len(s.Loops), s.Total().Accepted)
	}
	l, err := e.Listen(Addr{Network: TCP, AddrPort: loopback}, toEcho)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, l)
	defer c.Close()
	say(t, c, c, "text")
}
