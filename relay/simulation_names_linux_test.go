package relay

import (
	"fmt"
	"testing"
)

// TestSimulateNamesFull has no room for more names in the ledgers: flows are relayed and not kept, and are lost with their process.
func TestSimulateNamesFull(t *testing.T) {
	s := newSimulation(simSettings{loops: 2})
	defer s.finish()
	for _, st := range s.core.streams.all {
		for i, ok := 0, true; ok; i++ {
			_, ok = st.keep.ledger.Intern(fmt.Sprintf("a listener of an earlier process, %0200d", i))
		}
		for i, ok := 0, true; ok; i++ { // what is left has room for short names
			_, ok = st.keep.ledger.Intern(fmt.Sprint(i))
		}
	}
	for kind := range 4 {
		s.connect(kind, 0)
	}
	s.settle(false)
	s.quiet()
	for _, f := range s.flows {
		if f.kept || f.half[up].got != f.half[up].sent {
			t.Errorf("flow %d is kept: %v; %d of %d bytes have arrived", f.id, f.kept, f.half[up].got, f.half[up].sent)
		}
	}
	s.kill()
	s.settle(true)
	s.check()
	if s.wrong != nil {
		t.Fatalf("%v\n%s", s.wrong, s.describe())
	}
}
