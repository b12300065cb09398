package stat

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name     string
		new, old []float64
		ratio    float64
		dearer   int
		worse    bool // at a bound of 1.10
	}{
		{"alike", []float64{10, 11, 9, 10, 10, 11, 9, 10, 10}, []float64{10, 10, 10, 11, 9, 11, 9, 9, 11}, 1, 3, false},
		{"dearer by a fifth", []float64{12, 12.1, 11.9, 12, 12.2, 12, 12, 11.8, 12}, []float64{10, 10, 10, 10, 10, 10, 10, 10, 10}, 1.2, 9, true},
		{"dearer, but within the bound", []float64{10.8, 10.7, 10.9, 10.8, 10.8}, []float64{10, 10, 10, 10, 10}, 1.08, 5, false},
		{"cheaper", []float64{5, 5, 5, 5, 5}, []float64{10, 10, 10, 10, 10}, 0.5, 0, false},
		{"two modes: the median moves, the sign does not", []float64{20, 20, 20, 20, 20, 9, 9, 9, 9}, []float64{10, 10, 10, 10, 10, 10, 10, 10, 10}, 2, 5, false},
		{"too few rounds to tell", []float64{20, 20, 20, 20}, []float64{10, 10, 10, 10}, 2, 4, false},
		{"five are enough if all agree", []float64{20, 20, 20, 20, 20}, []float64{10, 10, 10, 10, 10}, 2, 5, true},
	} {
		got := Compare(c.new, c.old)
		if math.Abs(got.Ratio-c.ratio) > 1e-9 || got.Dearer != c.dearer || got.Worse(1.10) != c.worse {
			t.Errorf("%s: %v, worse %v; want the ratio %v, dearer in %d, worse %v", c.name, got, got.Worse(1.10), c.ratio, c.dearer, c.worse)
		}
	}
	if !Compare(nil, []float64{1}).Worse(1.10) {
		t.Error("no round at all passes")
	}
}

// TestSignTest compares atLeast with counting all outcomes.
func TestSignTest(t *testing.T) {
	for n := range 10 {
		for k := range n + 2 {
			count := 0
			for outcome := range 1 << n {
				heads := 0
				for i := range n {
					heads += outcome >> i & 1
				}
				if heads >= k {
					count++
				}
			}
			if got, want := atLeast(k, n), float64(count)/float64(int(1)<<n); math.Abs(got-want) > 1e-12 {
				t.Errorf("atLeast(%d, %d) = %v, want %v", k, n, got, want)
			}
		}
	}
}

// TestFalseAlarms counts how often noise alone raises an alarm: rounds of two equal versions that
// vary by a fifth in either direction.
func TestFalseAlarms(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	alarms := 0
	const tries = 10_000
	for range tries {
		var a, b [9]float64
		for i := range a {
			a[i], b[i] = math.Exp(0.2*rnd.NormFloat64()), math.Exp(0.2*rnd.NormFloat64())
		}
		if Compare(a[:], b[:]).Worse(1.05) {
			alarms++
		}
	}
	if alarms > tries/40 {
		t.Errorf("%d false alarms in %d comparisons", alarms, tries)
	}
}

func TestQuantile(t *testing.T) {
	s := []float64{1, 2, 3, 4, 5}
	for q, want := range map[float64]float64{0: 1, 0.25: 2, 0.5: 3, 0.9: 4.6, 1: 5} {
		if got := quantile(s, q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile(%v) = %v, want %v", q, got, want)
		}
	}
}
