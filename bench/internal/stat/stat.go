// Package stat reduces the rounds of a measurement to the few numbers that tables show.
package stat

import (
	"cmp"
	"math"
	"slices"
	"time"
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

// Middle returns the upper one of the two middle values when their number is even.
func Middle(xs []float64) float64 {
	return slices.Sorted(slices.Values(xs))[len(xs)/2]
}

// Of returns a figure of each.
func Of[T any](all []T, figure func(T) float64) []float64 {
	xs := make([]float64, len(all))
	for i, x := range all {
		xs[i] = figure(x)
	}
	return xs
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
func Percentile[T cmp.Ordered](sorted []T, p float64) T {
	return at(sorted, p*float64(len(sorted)))
}

// Rank returns the one of the sorted samples that a share p of the others does not exceed, or 0 if
// there are none.
func Rank[T cmp.Ordered](sorted []T, p float64) T {
	return at(sorted, p*float64(len(sorted)-1))
}

func at[T cmp.Ordered](sorted []T, i float64) (x T) {
	if len(sorted) > 0 {
		x = sorted[min(int(i), len(sorted)-1)]
	}
	return x
}

// Waits sorts times, and returns their median, their 99th percentile and the longest of them.
func Waits(all []time.Duration) (p50, p99, longest time.Duration) {
	slices.Sort(all)
	return Percentile(all, 0.50), Percentile(all, 0.99), Rank(all, 1)
}

// Millis returns a time in ms.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
