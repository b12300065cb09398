package segment

import (
	"net/netip"
	"testing"
	"time"
)

var here = netip.MustParseAddr("192.0.2.1")

func TestRefusalsStepDown(t *testing.T) {
	var r Refusals
	now := time.Now()
	steps := 0
	for size := 65507; size > 0; steps++ {
		next := r.Add(here, size, true, now).Largest
		if next >= size {
			t.Fatalf("a refused run of %d still allows %d", size, next)
		}
		size = next
	}
	if steps > 40 {
		t.Errorf("%d refusals until none is tried", steps)
	}
	if f := r.Add(here, 9000, false, now); f.Largest != 0 {
		t.Errorf("a route that refuses runs of any size still allows %d", f.Largest)
	}
}

func TestRefusalsForget(t *testing.T) {
	var r Refusals
	now := time.Now()
	if r.Of(here, now) != None || r.Len() != 0 {
		t.Fatal("nothing was refused")
	}
	r.Add(here, 9000, false, now)
	if f := r.Of(here, now.Add(refusalAge)); f.Largest != 0 {
		t.Fatal("a refusal is not remembered")
	}
	if r.Of(here.Next(), now) != None {
		t.Error("another destination is blamed")
	}
	if r.Of(here, now.Add(refusalAge+1)) != None || r.Len() != 0 {
		t.Error("an old refusal is not forgotten")
	}
	for i := range 3 * maxRefusals {
		r.Add(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 100, false, now)
	}
	if r.Len() > maxRefusals {
		t.Errorf("%d destinations are remembered", r.Len())
	}
}
