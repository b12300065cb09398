package keeper

import (
	"testing"
	"time"
)

// The keeper gives memory back once after a worker is ready, and once after many items have come or gone.
func TestTrimmer(t *testing.T) {
	m := newMachine(Config{}.withDefaults(), 1<<20, nil)
	now := time.Now()
	var tr trimmer
	key := func(i int) [2]uint64 { return [2]uint64{1 << 56, uint64(i)} }
	hold := func(from, to int) {
		for i := from; i < to; i++ {
			m.table.add(key(i), "", nil)
			tr.plan(m, now)
		}
	}
	drop := func(from, to int) {
		for i := from; i < to; i++ {
			m.table.remove(key(i), nil)
			tr.plan(m, now)
		}
	}
	expect := func(what string, wants bool) {
		t.Helper()
		if tr.due(m, now) {
			t.Errorf("%s: memory is given back at once", what)
		}
		now = now.Add(trimAfter)
		if got := tr.due(m, now); got != wants {
			t.Errorf("%s: given back: %v", what, got)
		}
		if now = now.Add(trimAfter); tr.due(m, now) {
			t.Errorf("%s: given back twice", what)
		}
	}
	tr.plan(m, now)
	expect("before there is a worker", false)
	m.active = &peer{id: 1}
	tr.plan(m, now)
	expect("while the worker starts", false)
	m.active.ready = true
	tr.plan(m, now)
	expect("when it is ready", true)
	tr.plan(m, now)
	expect("while it runs", false)
	hold(0, trimItems-1)
	expect("after few items", false)
	hold(trimItems-1, 3*trimItems)
	expect("after many", true)
	drop(0, trimItems-1)
	expect("after few have gone", false)
	drop(trimItems-1, trimItems)
	expect("after many have gone", true)
	m.active = &peer{id: 2, ready: true}
	tr.plan(m, now)
	expect("when the next worker is ready", true)
}
