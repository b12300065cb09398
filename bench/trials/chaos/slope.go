//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A series is one number of a process over time, in segments: a process that is replaced begins anew.
type series struct {
	window   time.Duration // samples are taken together, by their median
	warm     time.Duration // the beginning of a segment that is left out, if that is more than a third
	segments []*segment
}

// segment is the life of one process.
type segment struct {
	key    string
	points []point
	open   point     // the window that is being filled: its begin
	values []float64 // in it
}

// point is a value at a time, in seconds since the run began.
type point struct{ at, value float64 }

// add adds a sample. A segment begins when key is another one than last.
func (s *series) add(key string, at time.Duration, value float64) {
	if len(s.segments) == 0 || s.segments[len(s.segments)-1].key != key {
		s.segments = append(s.segments, &segment{key: key, open: point{at: at.Seconds()}})
	}
	g := s.segments[len(s.segments)-1]
	if at.Seconds()-g.open.at >= s.window.Seconds() && len(g.values) > 0 {
		slices.Sort(g.values)
		g.points = append(g.points, point{g.open.at, g.values[len(g.values)/2]})
		g.open, g.values = point{at: at.Seconds()}, g.values[:0]
	}
	g.values = append(g.values, value)
}

// leastPoints is how many windows a segment needs, after its beginning was left out, to tell anything of a slope.
const leastPoints = 8

// A trend is the slope of a series with its 95% confidence interval, per second.
type trend struct {
	slope, low, high float64
	points, segments int
}

// trend fits one slope to all segments, each with a level of its own, by least squares. The first third of each is left
// out, or more if it is short: a process that begins takes memory for its caches and pools. Neighbouring windows resemble each other, because the
// memory of a process goes up and down with its garbage collections: the interval is as wide as that of so many fewer points as the
// correlation of neighbours, r, says, (1-r)/(1+r) of them.
func (s *series) trend() (t trend, ok bool) {
	type deviation struct{ at, value float64 }
	var all [][]deviation
	var tt, ty float64
	for _, g := range s.segments {
		points := g.points[len(g.points)/3:]
		for len(points) > 0 && points[0].at-g.points[0].at < s.warm.Seconds() {
			points = points[1:]
		}
		if len(points) < leastPoints {
			continue
		}
		var at, value float64
		for _, p := range points {
			at += p.at / float64(len(points))
			value += p.value / float64(len(points))
		}
		one := make([]deviation, len(points))
		for i, p := range points {
			one[i] = deviation{p.at - at, p.value - value}
			tt += one[i].at * one[i].at
			ty += one[i].at * one[i].value
		}
		all = append(all, one)
		t.points += len(one)
	}
	if t.segments = len(all); t.segments == 0 || tt == 0 {
		return t, false
	}
	t.slope = ty / tt
	var square, neighbours float64
	for _, one := range all {
		before := 0.0
		for i, d := range one {
			rest := d.value - t.slope*d.at
			square += rest * rest
			if i > 0 {
				neighbours += rest * before
			}
			before = rest
		}
	}
	inflation := 1.0
	if square > 0 {
		r := min(max(neighbours/square, 0), 0.98)
		inflation = (1 + r) / (1 - r)
	}
	free := max(float64(t.points)/inflation-float64(t.segments)-1, 1)
	// The variance of a value that is free of the other ones, as if there were only so many of them.
	variance := square / max(float64(t.points-t.segments-1), 1) * inflation
	half := student(free) * math.Sqrt(variance/tt)
	t.low, t.high = t.slope-half, t.slope+half
	return t, true
}

// student returns the 97.5% quantile of Student's distribution: for few degrees of freedom from its table, else by the
// expansion of Fisher and Cornish (Abramowitz and Stegun, 26.7.5).
func student(free float64) float64 {
	if table := []float64{0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262}; free < float64(len(table)) {
		return table[int(free)]
	}
	const z = 1.959964
	return z + (z*z*z+z)/(4*free) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*free*free)
}

// perHour formats a slope in KiB per second.
func perHour(kib float64) string { return fmt.Sprintf("%+.2f MiB/h", kib*3600/1024) }
