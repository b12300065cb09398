package loop

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// TestPatrol: each flow is looked at in turn, one chunk of slots at a time and no earlier than patrolEvery after the last.
func TestPatrol(t *testing.T) {
	l, err := New(sys.Linux{}, 0, time.Now(), false, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Free()
	one, two := &plain{loop: l}, &plain{loop: l}
	one.slab.Init(&l.Slots, one)
	two.slab.Init(&l.Slots, two)
	var want []uint32
	for i := range 2*ChunkSize + 5 {
		p := one
		if i >= ChunkSize { // a chunk of slots has one handler
			p = two
		}
		_, r := p.slab.Take()
		want = append(want, r.Slot)
	}
	slices.Sort(want)
	l.Post(Request{Do: func() {}}) // or it would wait
	if l.turn(); !slices.Equal(one.inspected, want[:ChunkSize]) {
		t.Errorf("the first turn inspects %v, want %v", one.inspected, want[:ChunkSize])
	}
	one.inspected, l.patrolAt, l.patrolNext = nil, 0, 0
	for range 3 {
		for range 3 {
			before := len(one.inspected) + len(two.inspected)
			l.patrol()
			if n := len(one.inspected) + len(two.inspected) - before; n == 0 || n > ChunkSize {
				t.Fatalf("%d flows at once", n)
			}
			l.Now += patrolEvery - 1
			l.patrol()
			l.Now++
		}
		if got := slices.Concat(one.inspected, two.inspected); !slices.Equal(got, want) {
			t.Fatalf("inspected %v, want %v", got, want)
		}
		one.inspected, two.inspected = nil, nil
	}
}
