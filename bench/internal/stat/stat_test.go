package stat

import (
	"math"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		xs   []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{3, 1}, 2},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 2, 3}, 2.5},
	} {
		if got := Median(c.xs); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.xs, got, c.want)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("Median of nothing is a number")
	}
}

func TestSpread(t *testing.T) {
	if got := Spread([]float64{8, 10, 12}); got != 0.2 {
		t.Errorf("Spread = %v, want 0.2", got)
	}
}

func TestPairedRatio(t *testing.T) {
	// One bad round on one side moves the ratio of means, not this one.
	if got := PairedRatio([]float64{1, 1, 9}, []float64{2, 2, 2}); got != 0.5 {
		t.Errorf("PairedRatio = %v, want 0.5", got)
	}
}

func TestPercentile(t *testing.T) {
	s := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for _, c := range []struct {
		p    float64
		want uint32
	}{{0, 1}, {0.5, 6}, {0.99, 10}, {1, 10}} {
		if got := Percentile(s, c.p); got != c.want {
			t.Errorf("Percentile(%v) = %v, want %v", c.p, got, c.want)
		}
	}
	if Percentile([]uint32(nil), 0.5) != 0 {
		t.Error("Percentile of nothing is not 0")
	}
}

func TestWaits(t *testing.T) {
	if p50, p99, longest := Waits([]time.Duration{9, 1, 5, 7}); p50 != 7 || p99 != 9 || longest != 9 {
		t.Errorf("%d, %d, %d", p50, p99, longest)
	}
	if p50, p99, longest := Waits(nil); p50 != 0 || p99 != 0 || longest != 0 {
		t.Errorf("of nothing: %d, %d, %d", p50, p99, longest)
	}
	if got := Rank([]time.Duration{1, 5, 7, 9}, 0.5); got != 5 {
		t.Errorf("Rank = %d", got)
	}
}
