package relay

import (
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testcost"
)

// flowOfTest is what the handlers of these tests keep in their slabs.
type flowOfTest struct {
	id    ref
	value any
}

// handlerOfTest owns slots, and does nothing with them.
type handlerOfTest struct {
	handler
	slab slab[flowOfTest]
}

func newHandlerOfTest(s *slots) *handlerOfTest {
	h := new(handlerOfTest)
	h.slab.slots, h.slab.owner = s, h
	return h
}

// A slot's generation tells its flows apart: whoever still holds an ended
// flow's ref finds nothing. Handlers that share a table do not meet each other's flows.
func TestSlab(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	var table slots
	handlers := []*handlerOfTest{newHandlerOfTest(&table), newHandlerOfTest(&table)}
	type place struct {
		h *handlerOfTest
		f *flowOfTest
	}
	live := make(map[ref]place)
	var dead []ref
	for range 50_000 {
		if r.IntN(2) == 0 || len(live) == 0 {
			h := handlers[r.IntN(len(handlers))]
			f, id := h.slab.take()
			if *f != (flowOfTest{}) || id.gen == 0 {
				t.Fatalf("a used flow: %+v of %v", f, id)
			}
			f.id, f.value = id, "somebody's"
			if _, ok := live[id]; ok {
				t.Fatalf("%v was given out twice", id)
			}
			live[id] = place{h, f}
		} else {
			for id, p := range live { // any
				if p.h.slab.find(id) != p.f || table.find(id) != p.h {
					t.Fatalf("%v is not found", id)
				}
				for _, other := range handlers {
					if other != p.h && other.slab.find(id) != nil {
						t.Fatalf("%v is found by another handler", id)
					}
				}
				p.h.slab.put(id.slot)
				delete(live, id)
				dead = append(dead, id)
				break
			}
		}
		if n := handlers[0].slab.live + handlers[1].slab.live; n != len(live) || table.live != n {
			t.Fatalf("%d and %d live, want %d", n, table.live, len(live))
		}
		if len(dead) > 0 {
			if id := dead[r.IntN(len(dead))]; table.find(id) != nil || handlers[0].slab.find(id) != nil || handlers[1].slab.find(id) != nil {
				t.Fatalf("%v has ended and is found", id)
			}
		}
	}
	n := 0
	for _, h := range handlers {
		h.slab.each(func(f *flowOfTest) {
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
	for i := range table.len() {
		if gen := *table.gen(i); table.owner(i) == nil && (table.find(ref{i, gen}) != nil || table.find(ref{i, gen + 1}) != nil) {
			t.Errorf("free slot %d has a flow", i)
		}
	}
	if table.find(ref{slot: 1 << 20, gen: 1}) != nil {
		t.Error("a slot that never was has a flow")
	}
}

// No flow has generation 0: in events it means a source or the mailbox.
func TestGenerationWraps(t *testing.T) {
	var table slots
	h := newHandlerOfTest(&table)
	f, r := h.slab.take()
	*table.gen(r.slot) = 1<<32 - 1
	h.slab.put(r.slot)
	g, again := h.slab.take()
	if g != f || again.gen != 1 {
		t.Errorf("generation %d follows the last", again.gen)
	}
}

// An idle flow's memory is this, its slot, and its sockets. A chunk of stream flows
// fills what the runtime gives it: 27,264 bytes is a size class (runtime/sizeclasses.go),
// and what is above 32 KiB is rounded up to whole pages. One of datagram flows has the
// largest class below that.
func TestFlowSize(t *testing.T) {
	if n := reflect.TypeFor[streamFlow]().Size() * slotChunkSize; n > 27264 {
		t.Errorf("a chunk of stream flows is %d bytes", n)
	}
	if n := reflect.TypeFor[datagramFlow]().Size() * slotChunkSize; n > 32768 {
		t.Errorf("a chunk of datagram flows is %d bytes", n)
	}
	if n := reflect.TypeFor[slotChunk]().Size(); n > 288 {
		t.Errorf("a chunk of slots is %d bytes", n)
	}
}

// The memory of an idle flow, without its share of a chunk's rest.
func TestCostsOfIdleFlows(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("pointers have another size")
	}
	const bytes = "bytes of an idle flow"
	testcost.Check(t, "stream flow", bytes, int64(reflect.TypeFor[streamFlow]().Size()))
	testcost.Check(t, "datagram flow", bytes, int64(reflect.TypeFor[datagramFlow]().Size()))
	testcost.Check(t, "64 slots", bytes, int64(reflect.TypeFor[slotChunk]().Size()))
}

func TestQueue(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 5))
	var q queue[lagRef]
	var oracle []lagRef
	for i := range uint32(20_000) {
		if r.IntN(100) < 52 {
			x := lagRef{ref{i, i}, time.Duration(i)}
			q.push(x)
			oracle = append(oracle, x)
		} else if len(oracle) > 0 {
			if *q.first() != oracle[0] {
				t.Fatalf("first is %v, want %v", *q.first(), oracle[0])
			}
			if got := q.pop(); got != oracle[0] {
				t.Fatalf("got %v, want %v", got, oracle[0])
			}
			oracle = oracle[1:]
		}
		if q.len() != len(oracle) {
			t.Fatalf("%d in the queue, want %d", q.len(), len(oracle))
		}
	}
}
