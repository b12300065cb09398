package relay

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Each flow has an ID of its own, and is found by it, whatever its loop, slot and generation.
func TestFlowID(t *testing.T) {
	edges := func(bits int) (all []uint32) {
		for b := range bits + 1 {
			for d := range 3 {
				if v := uint64(1)<<b + uint64(d) - 1; v < 1<<bits {
					all = append(all, uint32(v))
				}
			}
		}
		return all
	}
	of := make(map[uint64]earlierID)
	check := func(loop int, r ref) {
		id, x := flowID(loop, r), earlierID{loop, r}
		if l, s, ok := splitFlowID(id); !ok || l != loop || s != r || id == 0 {
			t.Fatalf("%+v has the ID %d, which is read as %d, %+v, %v", x, id, l, s, ok)
		}
		if before, known := of[id]; known && before != x {
			t.Fatalf("%+v and %+v have the ID %d", before, x, id)
		}
		of[id] = x
	}
	for _, loop := range edges(8) {
		for _, slot := range edges(24) {
			for _, half := range edges(31) {
				check(int(loop), ref{Slot: slot, Gen: half<<1 | 1})
			}
		}
	}
	for range 100_000 {
		check(rand.IntN(maxLoops), ref{Slot: rand.Uint32N(1 << 24), Gen: rand.Uint32() | 1})
	}
}

type earlierID struct {
	loop int
	ref
}

// Most flows have IDs that somebody can type, on every loop.
func TestFlowIDIsShort(t *testing.T) {
	for _, c := range []struct {
		loop   int
		r      ref
		longer uint64 // than the ID
	}{
		{0, ref{Slot: 0, Gen: 1}, 2},
		{7, ref{Slot: 63, Gen: 1}, 10_000},
		{7, ref{Slot: 63, Gen: 2*999 + 1}, 10_000_000},
		{63, ref{Slot: 1<<14 - 1, Gen: 1}, 10_000_000},
		{7, ref{Slot: 63, Gen: 2*10_000_000 + 1}, 100_000_000_000},
		{255, ref{Slot: 1<<24 - 1, Gen: math.MaxUint32}, math.MaxUint64},
	} {
		if id := flowID(c.loop, c.r); id >= c.longer {
			t.Errorf("loop %d, %+v: %d, want less than %d", c.loop, c.r, id, c.longer)
		}
	}
}

// A number that is no flow's ID finds none, although its bits name one.
func TestFlowIDIsOne(t *testing.T) {
	for range 100_000 {
		id := rand.Uint64() >> rand.IntN(64)
		if loop, r, ok := splitFlowID(id); ok && flowID(loop, r) != id {
			t.Fatalf("%d is read as %d, %+v, whose ID is %d", id, loop, r, flowID(loop, r))
		}
	}
	for _, id := range []uint64{0, 0b10, 1<<44 | 1, 1<<63 | 1, 5<<33 | 1<<9} { // too high a generation for its size, or a size that is too large
		if loop, r, ok := splitFlowID(id); ok {
			t.Errorf("%d is read as %d, %+v", id, loop, r)
		}
	}
}
