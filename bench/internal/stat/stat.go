// Package stat reduces the rounds of a measurement to the few numbers that tables show.
package stat

import (
	"math"
	"slices"
)

// Median returns the middle of xs, the mean of the two middle values when
// their number is even, and NaN for none. It leaves xs as it is.
func Median(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(xs))
	m := len(s) / 2
	if len(s)%2 == 1 {
		return s[m]
	}
	return (s[m-1] + s[m]) / 2
}

// Spread returns half the distance between the smallest and the largest of xs, relative to the
// median: 0.1 means that the rounds lie within about ±10%.
func Spread(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	return (slices.Max(xs) - slices.Min(xs)) / 2 / Median(xs)
}

// PairedRatio returns the median over rounds of a[i]/b[i]. Adjacent rounds run under similar
// conditions, so this ratio is steadier than a ratio of medians.
func PairedRatio(a, b []float64) float64 {
	r := make([]float64, min(len(a), len(b)))
	for i := range r {
		r[i] = a[i] / b[i]
	}
	return Median(r)
}

// Percentile returns the value below which the share p (0 to 1) of the sorted samples lies, or 0 if
// there are none.
func Percentile(sorted []uint32, p float64) uint32 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}
