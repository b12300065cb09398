//go:build linux

package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/stat"
)

// ours is the relay that has bars, yardstick and bare those that are not competitors.
const (
	ours      = "penstock"
	yardstick = "gotls"
	bare      = "engine" // ours without the daemon
)

// line prints one round in the Go benchmark format.
func (b *bench) line(r row, relay string, res load.TLSResult) {
	judged, shown := r.figures()
	fmt.Fprintf(b.out, "BenchmarkTLS/row=%s/relay=%s\t%d", r.name, relay, res.Ops)
	for _, f := range append([]figure{judged}, shown...) {
		fmt.Fprintf(b.out, "\t%.4g %s", f.of(res), f.unit)
	}
	fmt.Fprintln(b.out)
}

// table prints the medians of a row, and its verdict.
func (b *bench) table(r row, results map[string][]load.TLSResult) {
	judged, shown := r.figures()
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "#\n# %s\trounds\t%s\tspread\t", r.name, judged.unit)
	for _, f := range shown {
		fmt.Fprintf(w, "%s\t", f.unit)
	}
	fmt.Fprintf(w, "%s / it\tnegotiated\n", ours)
	mine := column(judged, results[ours])
	for _, p := range b.peers {
		all := results[p.Name]
		if len(all) == 0 {
			continue
		}
		xs := column(judged, all)
		fmt.Fprintf(w, "# %s\t%d\t%.4g\t±%.0f%%\t", p.Name, len(xs), stat.Median(xs), 100*stat.Spread(xs))
		for _, f := range shown {
			fmt.Fprintf(w, "%.4g\t", stat.Median(column(f, all)))
		}
		ratio := "-"
		if p.Name != ours && len(mine) > 0 {
			ratio = fmt.Sprintf("%.3f", ratioOf(mine, xs))
		}
		fmt.Fprintf(w, "%s\t%s\n", ratio, all[0].Negotiated)
	}
	w.Flush()
	verdict := b.verdict(r, results)
	fmt.Fprintln(b.out, verdict)
	b.verdicts = append(b.verdicts, verdict)
}

// verdict returns a line that says what the bar of a row is, and whether it holds.
func (b *bench) verdict(r row, results map[string][]load.TLSResult) string {
	judged, _ := r.figures()
	text := fmt.Sprintf("# %s: %s", r.name, judged.unit)
	mine := column(judged, results[ours])
	beside, theirs := "", []float64(nil)
	for _, p := range b.peers {
		xs := column(judged, results[p.Name])
		if len(xs) == 0 || p.Name == ours || p.Name == yardstick || p.Name == bare || r.bar.beside == "nginx" && !strings.HasPrefix(p.Name, "nginx") {
			continue
		}
		if theirs == nil || stat.Median(xs) < stat.Median(theirs) != judged.more {
			beside, theirs = p.Name, xs
		}
	}
	switch {
	case len(mine) == 0:
		return text + ": no figure of " + ours + b.disturbance(results)
	case theirs == nil:
		return text + ": nothing to compare with" + b.disturbance(results)
	}
	ratio := ratioOf(mine, theirs)
	text += fmt.Sprintf(" of %s / %s = %.3f", ours, beside, ratio)
	if xs := column(judged, results[yardstick]); len(xs) > 0 {
		text += fmt.Sprintf(" (/ %s = %.3f)", yardstick, ratioOf(mine, xs))
	}
	switch {
	case r.bar.beside == "":
		text += "; no bar"
	case judged.more:
		text += fmt.Sprintf("; bar: at least %g of the %s: %s", r.bar.limit, r.bar.beside, held(ratio >= r.bar.limit))
	default:
		text += fmt.Sprintf("; bar: at most %g of %s: %s", r.bar.limit, r.bar.beside, held(ratio <= r.bar.limit))
	}
	return text + b.disturbance(results)
}

func held(yes bool) string {
	if yes {
		return "holds"
	}
	return "MISSED"
}

// disturbance says how many figures were taken while something else ran on the CPUs.
func (b *bench) disturbance(results map[string][]load.TLSResult) string {
	n, all := 0, 0
	for _, rs := range results {
		for _, r := range rs {
			all++
			if others.of(r) > 100*disturbed {
				n++
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" [DISTURBED: others took more than %.0f%% in %d of %d measurements]", 100*disturbed, n, all)
}

// ratioOf compares round by round if no round is missing.
func ratioOf(mine, theirs []float64) float64 {
	if len(mine) == len(theirs) {
		return stat.PairedRatio(mine, theirs)
	}
	return stat.Median(mine) / stat.Median(theirs)
}

func column(f figure, rs []load.TLSResult) []float64 {
	xs := make([]float64, len(rs))
	for i, r := range rs {
		xs[i] = f.of(r)
	}
	return xs
}
