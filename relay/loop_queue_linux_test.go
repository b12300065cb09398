package relay

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestQueue(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 5))
	var q queue[lagRef]
	var oracle []lagRef
	for i := range uint32(20_000) {
		if r.IntN(100) < 52 {
			x := lagRef{ref{Slot: i, Gen: i}, time.Duration(i)}
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
