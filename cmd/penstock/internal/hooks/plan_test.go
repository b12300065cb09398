package hooks

import (
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// What is never in a configuration is never in the engine, where 0 is a default.
func TestTimeouts(t *testing.T) {
	if got, want := Timeouts(spec.Timeouts{Connect: time.Second}), (relay.Timeouts{Connect: time.Second, Idle: -1, HalfClosed: -1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	all := spec.Timeouts{Connect: 1, FirstByte: 2, Idle: 3, HalfClosed: 4, Life: 5}
	if got, want := Timeouts(all), (relay.Timeouts{Connect: 1, FirstByte: 2, Idle: 3, HalfClosed: 4, Life: 5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A flow lasts at most as long as life says, and at least as long as without the jitter; how long does not change, and flows that come one after the
// other are spread evenly.
func TestLifeJitter(t *testing.T) {
	w := Target{Route: &spec.Route{Timeouts: spec.Timeouts{LifeJitter: 10 * time.Minute}}, Timeouts: relay.Timeouts{Idle: 1, Life: time.Hour}}
	var tenths [10]int
	for id := range uint64(1000) {
		got := w.TimeoutsOf(id << 20)
		if got != w.TimeoutsOf(id<<20) || got.Idle != 1 || got.Life > time.Hour || got.Life < 50*time.Minute {
			t.Fatalf("flow %d: %+v", id, got)
		}
		tenths[min(9, (time.Hour-got.Life)/time.Minute)]++
	}
	for i, n := range tenths {
		if n < 80 || n > 120 {
			t.Errorf("%d flows of 1000 end in minute %d of ten", n, i)
		}
	}
	w.Route.Timeouts.LifeJitter = 0
	if got := w.TimeoutsOf(7); got != w.Timeouts {
		t.Errorf("without jitter: %+v", got)
	}
}
