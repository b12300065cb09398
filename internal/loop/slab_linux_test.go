package loop

import (
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"

	"github.com/penstock/penstock/internal/testcost"
)

// flowOfTest is what the handlers of these tests keep in their slabs.
type flowOfTest struct {
	id    Ref
	value any
}

// handlerOfTest owns slots, and does nothing with them.
type handlerOfTest struct {
	Handler
	slab Slab[flowOfTest]
}

func newHandlerOfTest(s *Slots) *handlerOfTest {
	h := new(handlerOfTest)
	h.slab.Init(s, h)
	return h
}

// A slot's generation tells its flows apart: whoever still holds an ended
// flow's ref finds nothing. Handlers that share a table do not meet each other's flows.
func TestSlab(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	var table Slots
	handlers := []*handlerOfTest{newHandlerOfTest(&table), newHandlerOfTest(&table)}
	type place struct {
		h *handlerOfTest
		f *flowOfTest
	}
	live := make(map[Ref]place)
	var dead []Ref
	for range 50_000 {
		if r.IntN(2) == 0 || len(live) == 0 {
			h := handlers[r.IntN(len(handlers))]
			f, id := h.slab.Take()
			if *f != (flowOfTest{}) || id.Gen == 0 {
				t.Fatalf("a used flow: %+v of %v", f, id)
			}
			f.id, f.value = id, "somebody's"
			if _, ok := live[id]; ok {
				t.Fatalf("%v was given out twice", id)
			}
			live[id] = place{h, f}
		} else {
			for id, p := range live { // any
				if p.h.slab.Find(id) != p.f || table.Find(id) != p.h {
					t.Fatalf("%v is not found", id)
				}
				for _, other := range handlers {
					if other != p.h && other.slab.Find(id) != nil {
						t.Fatalf("%v is found by another handler", id)
					}
				}
				p.h.slab.Put(id.Slot)
				delete(live, id)
				dead = append(dead, id)
				break
			}
		}
		if n := handlers[0].slab.Live + handlers[1].slab.Live; n != len(live) || table.Live != n {
			t.Fatalf("%d and %d live, want %d", n, table.Live, len(live))
		}
		if len(dead) > 0 {
			if id := dead[r.IntN(len(dead))]; table.Find(id) != nil || handlers[0].slab.Find(id) != nil || handlers[1].slab.Find(id) != nil {
				t.Fatalf("%v has ended and is found", id)
			}
		}
	}
	n := 0
	for _, h := range handlers {
		h.slab.Each(func(f *flowOfTest) {
			n++
			if live[f.id] != (place{h, f}) {
				t.Errorf("%v is none of ours", f.id)
			}
		})
	}
	if n != len(live) {
		t.Errorf("%d flows, want %d", n, len(live))
	}
	// The flow that the slot will have next is not there yet.
	for i := range table.Len() {
		if gen := *table.gen(i); table.Owner(i) == nil && (table.Find(Ref{i, gen}) != nil || table.Find(Ref{i, gen + 1}) != nil) {
			t.Errorf("free slot %d has a flow", i)
		}
	}
	if table.Find(Ref{Slot: 1 << 20, Gen: 1}) != nil {
		t.Error("a slot that never was has a flow")
	}
}

// No flow has generation 0: in events it means a source or the mailbox.
func TestGenerationWraps(t *testing.T) {
	var table Slots
	h := newHandlerOfTest(&table)
	f, r := h.slab.Take()
	*table.gen(r.Slot) = 1<<32 - 1
	h.slab.Put(r.Slot)
	g, again := h.slab.Take()
	if g != f || again.Gen != 1 {
		t.Errorf("generation %d follows the last", again.Gen)
	}
}

// The memory of the slots of 64 flows.
func TestCostsOfSlots(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("pointers have another size")
	}
	n := int64(reflect.TypeFor[slotChunk]().Size())
	testcost.Check(t, "64 slots", "bytes of an idle flow", n)
	if n > 288 { // a size class
		t.Errorf("a chunk of slots is %d bytes", n)
	}
}
