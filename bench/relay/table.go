//go:build linux

package main

import (
	"fmt"
	"math"
	"text/tabwriter"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/stat"
)

// line prints one round in the Go benchmark format.
func (b *bench) line(l namedLoad, p peer.Peer, r load.Result) {
	judged, shown := figures(l.Spec)
	fmt.Fprintf(b.out, "BenchmarkRelay/load=%s/peer=%s/loops=%d\t%d", l.text, p.Name, b.loops, r.Ops)
	for _, f := range append([]figure{judged.figure}, shown...) {
		fmt.Fprintf(b.out, "\t%.4g %s", f.of(r), f.unit)
	}
	fmt.Fprintln(b.out)
}

// table prints the medians of a load, and ours against the others.
func (b *bench) table(l namedLoad, results [][]load.Result) {
	judged, shown := figures(l.Spec)
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "#\n# %s\trounds\t%s\tspread\t", l.text, judged.unit)
	for _, f := range shown {
		fmt.Fprintf(w, "%s\t", f.unit)
	}
	fmt.Fprintf(w, "%s / it\tpaired\n", b.peers[0].Name)

	ours := column(judged.figure, results[0])
	best := -1
	for i, p := range b.peers {
		if !l.suits(p) {
			continue
		}
		xs := column(judged.figure, results[i])
		fmt.Fprintf(w, "# %s\t%d\t%.4g\t±%.0f%%\t", p.Name, len(xs), stat.Median(xs), 100*stat.Spread(xs))
		for _, f := range shown {
			fmt.Fprintf(w, "%.4g\t", stat.Median(column(f, results[i])))
		}
		if i == 0 || len(xs) == 0 || len(ours) == 0 {
			fmt.Fprint(w, "\t\n")
			continue
		}
		fmt.Fprintf(w, "%.3f\t%s\n", stat.Median(ours)/stat.Median(xs), paired(ours, xs))
		if best < 0 || stat.Median(xs) < stat.Median(column(judged.figure, results[best])) {
			best = i
		}
	}
	w.Flush()
	if best < 0 {
		return
	}
	theirs := column(judged.figure, results[best])
	ratio := stat.Median(ours) / stat.Median(theirs)
	verdict := "reached"
	if math.IsNaN(ratio) || ratio > judged.bar {
		verdict = "BEHIND"
	}
	fmt.Fprintf(b.out, "# %s: %s of %s / best peer (%s) = %.3f, bar %.2f: %s\n", l.text, judged.unit, b.peers[0].Name, b.peers[best].Name, ratio, judged.bar, verdict)
}

// paired is the median of the ratios round by round, if no round is missing.
func paired(ours, theirs []float64) string {
	if len(ours) != len(theirs) {
		return "-"
	}
	return fmt.Sprintf("%.3f", stat.PairedRatio(ours, theirs))
}

func column(f figure, rs []load.Result) []float64 {
	xs := make([]float64, len(rs))
	for i, r := range rs {
		xs[i] = f.of(r)
	}
	return xs
}
