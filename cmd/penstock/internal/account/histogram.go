package account

import (
	"sync/atomic"
	"time"
)

// The upper bounds of the buckets of histograms. A value that equals a bound is in its
// bucket; one more bucket holds the values above the last bound. The bounds are part of the names by which
// another version knows the buckets: with other bounds, what was counted is not shown.
var (
	connectBounds = []time.Duration{
		100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
		time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
		100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
	}
	durationBounds = []time.Duration{
		time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, 5 * time.Minute,
		30 * time.Minute, time.Hour, 4 * time.Hour, 24 * time.Hour,
	}
)

// maxBuckets is the number of buckets of the larger histogram.
const maxBuckets = 17

// histogram has the buckets, and then the sum in nanoseconds.
type histogram [histogramWords]atomic.Int64

func (h *histogram) observe(bounds []time.Duration, d time.Duration) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h[i].Add(1)
	h[maxBuckets].Add(int64(d))
}

func (h *histogram) read(bounds []time.Duration) Histogram {
	r := Histogram{Bounds: bounds, Sum: time.Duration(h[maxBuckets].Load())}
	for i := range len(bounds) + 1 {
		r.Counts[i] = h[i].Load()
		r.Count += r.Counts[i]
	}
	return r
}

// Histogram is a distribution of times.
type Histogram struct {
	Bounds []time.Duration   // upper bounds of the buckets; shared, must not be changed
	Counts [maxBuckets]int64 // per bucket; the one after the last bound has the rest
	Count  int64
	Sum    time.Duration
}

// Add adds the values of o to h. All histograms of one kind have the same bounds.
func (h *Histogram) Add(o *Histogram) {
	if h.Bounds == nil {
		h.Bounds = o.Bounds
	}
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Count += o.Count
	h.Sum += o.Sum
}
