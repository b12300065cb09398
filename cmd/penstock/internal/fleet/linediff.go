package fleet

import (
	"fmt"
	"strings"
)

// Bounds of LineDiff.
const (
	diffContext = 3
	maxDiffArea = 4 << 20 // lines that differ of one text, times those of the other: more are shown as replaced
)

// LineDiff returns the lines in which two texts differ, with a few around them: those that are gone begin with
// "- ", those that are new with "+ ", others with two spaces. Nothing: they do not differ.
func LineDiff(a, b string) []string {
	x, y := lines(a), lines(b)
	begin := 0
	for begin < len(x) && begin < len(y) && x[begin] == y[begin] {
		begin++
	}
	end := 0
	for end < len(x)-begin && end < len(y)-begin && x[len(x)-1-end] == y[len(y)-1-end] {
		end++
	}
	if begin == len(x) && begin == len(y) {
		return nil
	}
	var all []string // of everything
	for _, l := range x[:begin] {
		all = append(all, "  "+l)
	}
	all = appendDiff(all, x[begin:len(x)-end], y[begin:len(y)-end])
	for _, l := range x[len(x)-end:] {
		all = append(all, "  "+l)
	}
	return shorter(all)
}

func lines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

// appendDiff appends the difference, found by the longest common subsequence.
func appendDiff(out, x, y []string) []string {
	if len(x)*len(y) > maxDiffArea {
		for _, l := range x {
			out = append(out, "- "+l)
		}
		for _, l := range y {
			out = append(out, "+ "+l)
		}
		return out
	}
	n := len(y) + 1
	common := make([]int32, (len(x)+1)*n) // of the rest after each pair of places
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if x[i] == y[j] {
				common[i*n+j] = common[(i+1)*n+j+1] + 1
			} else {
				common[i*n+j] = max(common[(i+1)*n+j], common[i*n+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(x) || j < len(y) {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			out = append(out, "  "+x[i])
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && common[(i+1)*n+j] >= common[i*n+j+1]:
			out = append(out, "- "+x[i])
			i++
		default:
			out = append(out, "+ "+y[j])
			j++
		}
	}
	return out
}

// shorter leaves out the lines that are far from any that differs.
func shorter(all []string) (out []string) {
	near := make([]bool, len(all))
	for i, l := range all {
		if l[0] != ' ' {
			for j := max(0, i-diffContext); j <= min(len(all)-1, i+diffContext); j++ {
				near[j] = true
			}
		}
	}
	left := 0
	for i, l := range all {
		if !near[i] {
			left++
			continue
		}
		if left > 0 {
			out = append(out, fmt.Sprintf("  ... (%d lines)", left))
			left = 0
		}
		out = append(out, l)
	}
	return out
}
