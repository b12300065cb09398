package relay

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// A slot's generation tells its flows apart: whoever still holds an ended
// flow's ref finds nothing.
func TestSlab(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	var s slab
	live := make(map[ref]*Flow)
	var dead []ref
	for range 50_000 {
		if r.IntN(2) == 0 || len(live) == 0 {
			f := s.take()
			if f.state != flowFree || f.fd != [2]int32{} || f.gen == 0 {
				t.Fatalf("a used flow: %+v", f)
			}
			f.state, f.value = flowRelaying, "somebody's"
			if _, ok := live[f.ref()]; ok {
				t.Fatalf("%v was given out twice", f.ref())
			}
			live[f.ref()] = f
		} else {
			for id, f := range live { // any
				if s.find(id) != f {
					t.Fatalf("%v is not found", id)
				}
				s.put(f)
				delete(live, id)
				dead = append(dead, id)
				break
			}
		}
		if s.live != len(live) {
			t.Fatalf("%d live, want %d", s.live, len(live))
		}
		if len(dead) > 0 {
			if id := dead[r.IntN(len(dead))]; s.find(id) != nil {
				t.Fatalf("%v has ended and is found", id)
			}
		}
	}
	n := 0
	s.each(func(f *Flow) {
		n++
		if live[f.ref()] != f {
			t.Errorf("%v is none of ours", f.ref())
		}
	})
	if n != len(live) {
		t.Errorf("%d flows, want %d", n, len(live))
	}
	if s.find(ref{index: 1 << 20, gen: 1}) != nil {
		t.Error("a slot that never was has a flow")
	}
}

// Generation 0 is no flow's: it stands for listeners and the mailbox in events.
func TestGenerationWraps(t *testing.T) {
	var s slab
	f := s.take()
	f.state, f.gen = flowRelaying, 1<<32-1
	s.put(f)
	g := s.take()
	if g != f || g.gen != 1 {
		t.Errorf("generation %d follows the last", g.gen)
	}
}

// An idle flow's memory is this and its sockets. A chunk of flows fills what the
// runtime gives it: 27,264 bytes is a size class (runtime/sizeclasses.go), and what
// is above 32 KiB is rounded up to whole pages.
func TestFlowSize(t *testing.T) {
	if n := reflect.TypeFor[Flow]().Size() * slabChunk; n > 27264 {
		t.Errorf("a chunk of flows is %d bytes", n)
	}
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
