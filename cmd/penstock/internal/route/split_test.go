package route

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

func splitOf(weights map[string]int, names ...string) *Split {
	var parts []spec.Part
	for _, name := range names {
		if name == spec.RefusePart {
			parts = append(parts, spec.Part{Refuse: true, Weight: weights[name]})
			continue
		}
		parts = append(parts, spec.Part{Group: &spec.Group{Name: name}, Weight: weights[name]})
	}
	return NewSplit(parts)
}

// Each part gets its share, at random and by hash; one with weight 0 gets nobody.
func TestSplitShares(t *testing.T) {
	const n = 200_000
	random := rand.New(rand.NewPCG(1, 2))
	for _, weights := range []map[string]int{
		{"blue": 95, "green": 5}, {"blue": 0, "green": 1}, {"blue": 1, "green": 0},
		{"blue": spec.MaxPartWeight, "green": 1, "refuse": spec.MaxPartWeight}, {"blue": 2, "green": 0, "refuse": 1},
	} {
		s, total := splitOf(weights, "blue", "green", "refuse"), 0
		for _, w := range weights {
			total += w
		}
		var chance, byHash [3]int
		for range n {
			chance[s.Random()]++
			byHash[s.ByHash(random.Uint64())]++
		}
		for i, name := range []string{"blue", "green", "refuse"} {
			share := float64(weights[name]) / float64(total)
			for what, got := range map[string]int{"at random": chance[i], "by hash": byHash[i]} {
				// Six standard deviations of a binomial distribution: less than once in a hundred million.
				if most := 6 * math.Sqrt(n*share*(1-share)); math.Abs(float64(got)-n*share) > most+1e-9 && !(share > 0 && share < 1e-4) {
					t.Errorf("%v %s: %s has %d of %d, want %.0f +- %.0f", weights, what, name, got, n, n*share, most)
				}
			}
		}
	}
}

// A part that grows takes clients from others, and loses none; one that shrinks gives clients to others, and gets none. The order of the
// parts does not matter.
func TestSplitStays(t *testing.T) {
	const clients = 5000
	hashes, random := make([]uint64, clients), rand.New(rand.NewPCG(3, 4))
	for i := range hashes {
		hashes[i] = random.Uint64()
	}
	names := []string{"blue", "green", "refuse"}
	weights := map[string]int{"blue": 90, "green": 5, "refuse": 5}
	at := func() (list []string) {
		a, b := splitOf(weights, "blue", "green", "refuse"), splitOf(weights, "refuse", "blue", "green")
		for _, h := range hashes {
			name := names[a.ByHash(h)]
			if other := []string{"refuse", "blue", "green"}[b.ByHash(h)]; other != name {
				t.Fatalf("%x is in %s, and in another order in %s", h, name, other)
			}
			list = append(list, name)
		}
		return list
	}
	was := at()
	for range 200 {
		name := names[random.IntN(3)]
		before := weights[name]
		weights[name] = random.IntN(101)
		if weights["blue"]+weights["green"]+weights["refuse"] == 0 {
			weights[name] = before
		}
		now := at()
		for i := range was {
			grew := weights[name] > before
			if was[i] != now[i] && (grew && now[i] != name || !grew && was[i] != name) {
				t.Fatalf("%s from %d to %d: a client moved from %s to %s", name, before, weights[name], was[i], now[i])
			}
		}
		was = now
	}

	// From 0 to 100 of two parts: everybody moves once, and never back.
	moves := 0
	weights = map[string]int{"blue": 100, "green": 0}
	was = at()
	for green := range 100 {
		weights["blue"], weights["green"] = 99-green, green+1
		now := at()
		for i := range was {
			if was[i] == "green" && now[i] != "green" {
				t.Fatalf("green %d: a client left", green+1)
			}
			if was[i] != now[i] {
				moves++
			}
		}
		was = now
	}
	if moves != clients {
		t.Errorf("%d moves of %d clients", moves, clients)
	}
}

// All relays agree on the parts of clients, whatever their version: these may not change.
func TestSplitAgreement(t *testing.T) {
	s := splitOf(map[string]int{"blue": 50, "green": 50}, "blue", "green")
	got := ""
	for h := range uint64(32) {
		got += string("bg"[s.ByHash(h)])
	}
	if want := "bgbggbbbbgbggbbgbbgbgbbbbgbggbgb"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A choice allocates nothing.
func TestSplitAllocates(t *testing.T) {
	s, h := splitOf(map[string]int{"blue": 95, "green": 5}, "blue", "green"), uint64(0)
	if n := testing.AllocsPerRun(1000, func() { h++; s.Random(); s.ByHash(h) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSplit(b *testing.B) {
	s := splitOf(map[string]int{"blue": 95, "green": 5}, "blue", "green")
	b.Run("by=random", func(b *testing.B) {
		for b.Loop() {
			s.Random()
		}
	})
	b.Run("by=hash", func(b *testing.B) {
		for h := uint64(0); b.Loop(); h++ {
			s.ByHash(h)
		}
	})
}
