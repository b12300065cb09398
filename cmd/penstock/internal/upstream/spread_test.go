package upstream

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// tallyOf returns the tally of a level: of so many members that are healthy, degraded, and draining.
func tallyOf(all, healthy, degraded, draining int) levelTally {
	t := tally{all: all, healthy: healthy, degraded: degraded, excluded: draining}
	return levelTally{t, t}
}

// weighing returns a level with the weights of its members.
func (t levelTally) weighing(all, healthy, degraded, draining int) levelTally {
	t.weights = tally{all: all, healthy: healthy, degraded: degraded, excluded: draining}
	return t
}

// shown writes shares in percent: of healthy members, after a plus of degraded ones, with a ! where a level panics.
func shown(shares []levelShare) string {
	var parts []string
	for _, s := range shares {
		text := fmt.Sprint(math.Round(s.healthy * 100))
		if s.degraded > 0 {
			text += fmt.Sprintf("+%v", math.Round(s.degraded*100))
		}
		if s.panics {
			text += "!"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// What Envoy does: the numbers are those of its own tests of load balancers (load_balancer_impl_base_test.cc, 1.40) and of
// the tables in its documentation (priority levels, degraded endpoints, panic threshold).
func TestSpreadLikeEnvoy(t *testing.T) {
	const half = 0.5
	for _, c := range []struct {
		what   string
		rule   spreadRule // without parts; factor and panic as by default if the factor is 0
		levels []levelTally
		want   string
	}{
		{"PrioritySelection: both down", spreadRule{}, []levelTally{tallyOf(1, 0, 0, 0), tallyOf(1, 0, 0, 0)}, "50! 50!"},
		{"PrioritySelection: by numbers", spreadRule{}, []levelTally{tallyOf(1, 0, 0, 0), tallyOf(2, 0, 0, 0)}, "34! 66!"},
		{"PrioritySelection: a third level is up", spreadRule{}, []levelTally{tallyOf(1, 0, 0, 0), tallyOf(2, 0, 0, 0), tallyOf(1, 1, 0, 0)}, "0 0 100"},
		{"PrioritySelection: the first one comes back", spreadRule{}, []levelTally{tallyOf(1, 1, 0, 0), tallyOf(2, 0, 0, 0), tallyOf(1, 1, 0, 0)}, "100 0 0"},

		{"OverProvisioningFactor: 1.4", spreadRule{}, []levelTally{tallyOf(4, 2, 0, 0), tallyOf(4, 2, 0, 0)}, "70 30"},
		{"OverProvisioningFactor: 1", spreadRule{factor: 100, panic: half}, []levelTally{tallyOf(4, 2, 0, 0), tallyOf(4, 2, 0, 0)}, "50 50"},
		{"WeightedPriorityHealth", spreadRule{factor: 100, panic: half, weigh: true}, []levelTally{tallyOf(4, 2, 0, 0).weighing(10, 6, 0, 0), tallyOf(1, 1, 0, 0)}, "60 40"},
		{"WeightedPriorityHealthExcluded", spreadRule{factor: 100, panic: half, weigh: true}, []levelTally{tallyOf(3, 1, 0, 1).weighing(20, 4, 0, 10), tallyOf(1, 1, 0, 0)}, "40 60"},
		{"WeightedPriorityHealthDegraded", spreadRule{factor: 100, panic: half, weigh: true}, []levelTally{tallyOf(4, 1, 1, 0).weighing(10, 4, 3, 0), tallyOf(2, 1, 1, 0).weighing(10, 1, 9, 0)}, "40+30 10+20"},

		{"GentleFailover: all up", spreadRule{}, []levelTally{tallyOf(1, 1, 0, 0), tallyOf(1, 1, 0, 0)}, "100 0"},
		{"GentleFailover: half of both", spreadRule{}, []levelTally{tallyOf(2, 1, 0, 0), tallyOf(2, 1, 0, 0)}, "70 30"},
		{"GentleFailover: a quarter", spreadRule{}, []levelTally{tallyOf(4, 1, 0, 0), tallyOf(2, 2, 0, 0)}, "35 65"},
		{"GentleFailover: a quarter of both", spreadRule{}, []levelTally{tallyOf(4, 1, 0, 0), tallyOf(4, 1, 0, 0)}, "50! 50!"},
		{"GentleFailover: all but one are excluded", spreadRule{}, []levelTally{tallyOf(4, 1, 0, 3), tallyOf(5, 1, 0, 0)}, "100 0"},
		{"GentleFailover: all are excluded", spreadRule{}, []levelTally{tallyOf(4, 0, 0, 4), tallyOf(4, 1, 0, 0)}, "50! 50!"},
		{"GentleFailover: excluded ones count in a panic", spreadRule{}, []levelTally{tallyOf(4, 0, 0, 1), tallyOf(6, 1, 0, 2)}, "40! 60!"},

		{"WithExtraLevels: all up", spreadRule{}, []levelTally{tallyOf(1, 1, 0, 0), tallyOf(1, 1, 0, 0), tallyOf(1, 1, 0, 0)}, "100 0 0"},
		{"WithExtraLevels: half", spreadRule{}, []levelTally{tallyOf(2, 1, 0, 0), tallyOf(2, 1, 0, 0), tallyOf(2, 1, 0, 0)}, "70 30 0"},
		{"WithExtraLevels: a quarter", spreadRule{}, []levelTally{tallyOf(4, 1, 0, 0), tallyOf(2, 2, 0, 0), tallyOf(2, 1, 0, 0)}, "35 65 0"},
		{"WithExtraLevels: a quarter of all", spreadRule{}, []levelTally{tallyOf(4, 1, 0, 0), tallyOf(4, 1, 0, 0), tallyOf(4, 1, 0, 0)}, "35 35 30"},
		{"WithExtraLevels: a fifth of all", spreadRule{}, []levelTally{tallyOf(5, 1, 0, 0), tallyOf(5, 1, 0, 0), tallyOf(5, 1, 0, 0)}, "34! 33! 33!"},
		{"WithExtraLevels: only the third", spreadRule{}, []levelTally{tallyOf(5, 0, 0, 0), tallyOf(5, 0, 0, 0), tallyOf(5, 5, 0, 0)}, "0 0 100"},
		{"WithExtraLevels: four of five of the third", spreadRule{}, []levelTally{tallyOf(5, 0, 0, 0), tallyOf(5, 0, 0, 0), tallyOf(5, 4, 0, 0)}, "0 0 100"},
		{"WithExtraLevels: two of five of the third", spreadRule{}, []levelTally{tallyOf(5, 0, 0, 0), tallyOf(5, 0, 0, 0), tallyOf(5, 2, 0, 0)}, "34! 33! 33!"},
		{"WithExtraLevels: healthy ones before degraded ones", spreadRule{}, []levelTally{tallyOf(5, 0, 5, 0), tallyOf(5, 2, 2, 0), tallyOf(5, 2, 0, 0)}, "0 56 44"},
		{"WithExtraLevels: all down", spreadRule{}, []levelTally{tallyOf(5, 0, 0, 0), tallyOf(3, 0, 0, 0), tallyOf(2, 0, 0, 0)}, "50! 30! 20!"},
		{"WithExtraLevels: rounding", spreadRule{}, []levelTally{tallyOf(5, 0, 0, 0), tallyOf(6, 2, 0, 0), tallyOf(3, 1, 0, 0)}, "37! 42! 21!"},
		{"WithExtraLevels: spills over to degraded ones", spreadRule{}, []levelTally{tallyOf(5, 0, 1, 0), tallyOf(5, 0, 5, 0), tallyOf(5, 1, 0, 0)}, "0+28 0+44 28"},
		{"WithExtraLevels: only degraded ones, without panic", spreadRule{factor: enough}, []levelTally{tallyOf(5, 0, 0, 0), tallyOf(5, 0, 2, 0), tallyOf(5, 0, 1, 0)}, "0 0+67 0+33"},
		{"WithExtraLevels: only degraded ones, with panic", spreadRule{}, []levelTally{tallyOf(5, 0, 0, 0), tallyOf(5, 0, 2, 0), tallyOf(5, 0, 1, 0)}, "34! 33! 33!"},
		{"WithExtraLevels: what rounding leaves goes to the first", spreadRule{}, []levelTally{tallyOf(3, 0, 0, 0), tallyOf(3, 0, 0, 0), tallyOf(3, 0, 0, 0)}, "34! 33! 33!"},
		{"WithExtraLevels: that has members", spreadRule{}, []levelTally{tallyOf(0, 0, 0, 0), tallyOf(6, 0, 0, 0), tallyOf(3, 0, 0, 0)}, "0 67! 33!"},

		{"priorities: 72%", spreadRule{}, []levelTally{tallyOf(100, 72, 0, 0), tallyOf(100, 100, 0, 0)}, "100 0"},
		{"priorities: 71%", spreadRule{}, []levelTally{tallyOf(100, 71, 0, 0), tallyOf(100, 71, 0, 0)}, "99 1"},
		{"priorities: 0%", spreadRule{}, []levelTally{tallyOf(100, 0, 0, 0), tallyOf(100, 100, 0, 0)}, "0 100"},
		{"priorities: 25%, 25%, 20%, without panic", spreadRule{factor: enough}, []levelTally{tallyOf(100, 25, 0, 0), tallyOf(100, 25, 0, 0), tallyOf(100, 20, 0, 0)}, "37 35 28"},
		{"degraded: 71% healthy, the rest down", spreadRule{}, []levelTally{tallyOf(100, 71, 0, 0)}, "100"},
		{"degraded: 71% healthy, the rest degraded", spreadRule{}, []levelTally{tallyOf(100, 71, 29, 0)}, "99+1"},
		{"degraded: 25% and 65%", spreadRule{}, []levelTally{tallyOf(100, 25, 65, 0)}, "35+65"},
		{"degraded: 5%, the rest down", spreadRule{}, []levelTally{tallyOf(100, 5, 0, 0)}, "100!"},
		{"panic: 50% and 60%", spreadRule{}, []levelTally{tallyOf(100, 50, 0, 0), tallyOf(100, 60, 0, 0)}, "70 30"},
		{"panic: 5% and 65%", spreadRule{}, []levelTally{tallyOf(100, 5, 0, 0), tallyOf(100, 65, 0, 0)}, "8! 92"},
		{"panic: no threshold, and nobody", spreadRule{factor: enough}, []levelTally{tallyOf(100, 0, 0, 0)}, "0"},
		{"panic: a threshold that is never reached, as one of two levels is enough", spreadRule{factor: enough, panic: 1}, []levelTally{tallyOf(10, 8, 0, 0)}, "100"},

		{"one of two is degraded", spreadRule{}, []levelTally{tallyOf(2, 1, 1, 0)}, "70+30"},
		{"two of three are down", spreadRule{}, []levelTally{tallyOf(3, 1, 0, 0)}, "100!"},
		{"all are draining", spreadRule{}, []levelTally{tallyOf(2, 0, 0, 2)}, "100!"},
		{"all but one are draining", spreadRule{}, []levelTally{tallyOf(9, 1, 0, 8)}, "100"},
		{"draining ones, and one that is down", spreadRule{}, []levelTally{tallyOf(4, 1, 0, 1)}, "100!"},
		{"no level", spreadRule{}, nil, ""},
		{"levels without members", spreadRule{}, []levelTally{{}, {}}, "0 0"},
	} {
		r := c.rule
		r.parts = 100
		if r.factor == 0 {
			r.factor, r.panic = enough, half
		}
		shares, _ := r.spread(c.levels, tally{})
		if got := shown(shares); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// Members from xDS do not panic while a healthy backup can take what they cannot.
func TestBackupsBeforePanic(t *testing.T) {
	r := spreadRule{parts: 100, factor: enough, panic: 0.5}
	if shares, _ := r.spread([]levelTally{tallyOf(2, 0, 0, 0)}, tally{all: 1, healthy: 1}); shown(shares) != "0" {
		t.Errorf("with a healthy backup: %s", shown(shares))
	}
	if shares, _ := r.spread([]levelTally{tallyOf(2, 0, 0, 0)}, tally{all: 1}); shown(shares) != "100!" {
		t.Errorf("with a backup that is down: %s", shown(shares))
	}
}

// The rules of docs/running.md in numbers, for members that are not from xDS.
func TestSpread(t *testing.T) {
	for _, c := range []struct {
		what    string
		panic   float64
		levels  []levelTally
		backups tally
		want    []float64
		panics  bool
	}{
		{"one level", 0, []levelTally{tallyOf(10, 10, 0, 0)}, tally{}, []float64{1}, false},
		{"one level, few up", 0, []levelTally{tallyOf(10, 1, 0, 0)}, tally{}, []float64{1}, false},
		{"none up", 0, []levelTally{tallyOf(10, 0, 0, 0)}, tally{}, []float64{0}, false},
		{"a backup is not used while another member is up", 0, []levelTally{tallyOf(10, 1, 0, 0)}, tally{all: 10, healthy: 10}, []float64{1}, false},
		{"all of the first priority up", 0, []levelTally{tallyOf(10, 10, 0, 0), tallyOf(10, 10, 0, 0)}, tally{}, []float64{1, 0}, false},
		{"72 of 100 up are enough", 0, []levelTally{tallyOf(100, 72, 0, 0), tallyOf(10, 10, 0, 0)}, tally{}, []float64{1, 0}, false},
		{"half", 0, []levelTally{tallyOf(10, 5, 0, 0), tallyOf(10, 10, 0, 0)}, tally{}, []float64{0.7, 0.3}, false},
		{"half of the weight", 0, []levelTally{tallyOf(10, 9, 0, 0).weighing(18, 9, 0, 0), tallyOf(10, 10, 0, 0)}, tally{}, []float64{0.7, 0.3}, false},
		{"a quarter", 0, []levelTally{tallyOf(100, 25, 0, 0), tallyOf(10, 10, 0, 0)}, tally{}, []float64{0.35, 0.65}, false},
		{"none of the first", 0, []levelTally{tallyOf(10, 0, 0, 0), tallyOf(10, 10, 0, 0)}, tally{}, []float64{0, 1}, false},
		{"three levels", 0, []levelTally{tallyOf(10, 2, 0, 0), tallyOf(10, 3, 0, 0), tallyOf(10, 10, 0, 0)}, tally{}, []float64{0.28, 0.42, 0.3}, false},
		{"all levels too low: in proportion", 0, []levelTally{tallyOf(10, 1, 0, 0), tallyOf(10, 3, 0, 0)}, tally{all: 10, healthy: 10}, []float64{0.25, 0.75}, false},
		{"a panic is of the whole group", 0.5, []levelTally{tallyOf(10, 1, 0, 0), tallyOf(10, 3, 0, 0)}, tally{}, []float64{1, 0}, true},
		{"with backups", 0.5, []levelTally{tallyOf(10, 1, 0, 0)}, tally{all: 10, healthy: 9}, []float64{1}, false},
		{"and if enough of it is up, no level panics", 0.5, []levelTally{tallyOf(10, 0, 0, 0), tallyOf(30, 30, 0, 0)}, tally{}, []float64{0, 1}, false},
		{"nobody, and no panic without a threshold", 0, []levelTally{tallyOf(10, 0, 0, 0)}, tally{all: 1}, []float64{0}, false},
	} {
		r := spreadRule{parts: 1 << 32, factor: enough, weigh: true, panic: c.panic, whole: true}
		got, panics := r.spread(c.levels, c.backups)
		if panics != c.panics {
			t.Errorf("%s: panic %v", c.what, panics)
		}
		for i := range got {
			if math.Abs(got[i].healthy-c.want[i]) > 1e-9 || got[i].degraded != 0 || got[i].panics != c.panics {
				t.Errorf("%s: %+v, want %.4f", c.what, got, c.want)
				break
			}
		}
	}
}

// Only levels that can take flows have shares. If there is such a level, the shares add up to 1.
func TestSpreadRandomly(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	for range 20_000 {
		rule := spreadRule{parts: []float64{100, 1 << 32}[r.IntN(2)], factor: 1 + r.IntN(300), weigh: r.IntN(2) == 0, panic: float64(r.IntN(3)) / 2, whole: r.IntN(2) == 0}
		var levels []levelTally
		some := false
		for range r.IntN(6) {
			var l levelTally
			for range r.IntN(12) {
				c := counted{class: class(r.IntN(int(healthy) + 1)), weight: 1 + r.IntN(256)}
				if rule.whole && c.class == degraded {
					c.class = healthy
				}
				l.add(c.tally(), 1)
			}
			levels = append(levels, l)
		}
		backups := tally{all: r.IntN(3)}
		backups.healthy = r.IntN(backups.all + 1)
		shares, backupsPanic := rule.spread(levels, backups)
		sum := 0.0
		for i, s := range shares {
			t2 := levels[i].members
			takes := t2.healthy+t2.degraded > 0 || s.panics && t2.all > 0
			some = some || takes
			if s.healthy < 0 || s.degraded < 0 || s.healthy+s.degraded > 0 && !takes || s.healthy > 0 && !s.panics && t2.healthy == 0 || s.degraded > 0 && !s.panics && t2.degraded == 0 {
				t.Fatalf("seed %d: %+v of %+v, %+v", seed, s, levels[i], rule)
			}
			sum += s.healthy + s.degraded
		}
		if backupsPanic && !rule.whole {
			t.Fatalf("seed %d: backups panic", seed)
		}
		// A factor of a few percent may leave less than a part for everybody.
		if sum > 1+1e-9 || sum > 0 && sum < 1-1e-9 || sum == 0 && some && rule.factor >= 100 && !(rule.parts == 100 && rule.weigh) {
			t.Fatalf("seed %d: shares of %+v are %v together: %+v, %+v", seed, levels, sum, shares, rule)
		}
	}
}
