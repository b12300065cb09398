package keeper

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// Random operations on a table and on a map, which must agree.
func TestTable(t *testing.T) {
	type item struct {
		label string
		fds   []int
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	tab, want := newTable(), make(map[[2]uint64]item)
	labels := []string{"", "", "", "early", "late"}
	for range 20_000 {
		key := [2]uint64{random.Uint64N(300), random.Uint64N(2)}
		if random.IntN(2) == 0 {
			i := item{label: labels[random.IntN(len(labels))]}
			for range random.IntN(5) {
				i.fds = append(i.fds, random.IntN(1<<20))
			}
			_, taken := want[key]
			if got := tab.add(key, i.label, i.fds); got == taken {
				t.Fatalf("add %v: %v", key, got)
			}
			if !taken {
				want[key] = i
			}
			continue
		}
		fds, ok := tab.remove(key, nil)
		w, there := want[key]
		if ok != there || !slices.Equal(fds, w.fds) {
			t.Fatalf("remove %v: %v %v, want %v", key, fds, ok, w.fds)
		}
		delete(want, key)
	}
	seen, sum := 0, 0
	early := map[string]bool{"early": true}
	for o := (order{}); o.pass < passes; {
		pass := o.pass
		at, ok := tab.next(&o, early)
		if !ok {
			continue
		}
		s := tab.slot(at)
		w := want[s.key]
		wantPass := 2
		switch w.label {
		case "early":
			wantPass = 0
		case "late":
			wantPass = 1
		}
		fds := tab.appendFDs(at, nil)
		if pass != wantPass || !slices.Equal(fds, w.fds) || tab.labels[at] != w.label {
			t.Errorf("%v in pass %d: %v %q, want %v", s.key, pass, fds, tab.labels[at], w)
		}
		seen++
		sum += len(fds)
	}
	if seen != len(want) || tab.len() != len(want) || sum != tab.descriptors {
		t.Errorf("%d items and %d descriptors, of %d and %d", seen, sum, len(want), tab.descriptors)
	}
	if n := reflect.TypeFor[slot]().Size(); n > 32 {
		t.Errorf("a slot has %d bytes", n)
	}
}
