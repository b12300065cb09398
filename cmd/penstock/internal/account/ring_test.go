package account

import (
	"fmt"
	"sync"
	"testing"
)

// Each entry that was put comes out once and whole, in the order of its
// producer; each that was not was refused.
func TestRing(t *testing.T) {
	const producers, each = 4, 20000
	r := newRing(64)
	var wg sync.WaitGroup
	refused := make([]int, producers)
	for p := range producers {
		wg.Go(func() {
			for i := range each {
				e := Entry{Member: fmt.Sprint(p, " ", i)}
				e.ID, e.Attempts = uint64(p), i
				if !r.put(&e) {
					refused[p]++
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	taken := make([]int, producers)
	last := make([]int, producers)
	for ended := false; ; {
		e := r.next()
		if e == nil {
			if ended {
				break
			}
			select {
			case <-done:
				ended = true
			default:
			}
			continue
		}
		p := e.ID
		if e.Member != fmt.Sprint(p, " ", e.Attempts) || e.Attempts < last[p] {
			t.Fatalf("%+v after %d", e, last[p])
		}
		last[p] = e.Attempts
		taken[p]++
		r.drop()
	}
	for p := range producers {
		if taken[p]+refused[p] != each {
			t.Errorf("producer %d: %d taken and %d refused of %d", p, taken[p], refused[p], each)
		}
	}
}

func TestRingIsBounded(t *testing.T) {
	r := newRing(4)
	e := entry()
	for round := range 3 {
		for i := range 4 {
			if !r.put(e) {
				t.Fatalf("round %d: entry %d refused", round, i)
			}
		}
		if r.put(e) {
			t.Fatalf("round %d: a fifth entry has found room", round)
		}
		for range 4 {
			if got := r.next(); got == nil || got.Member != e.Member {
				t.Fatalf("got %+v", got)
			}
			r.drop()
		}
		if r.next() != nil {
			t.Fatal("an entry that nobody put")
		}
	}
}
