//go:build linux

package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/rounds"
	"github.com/penstock/penstock/bench/internal/stat"
)

// ours is the relay that has bars, yardstick and bare those that are not competitors.
const (
	ours      = "penstock"
	yardstick = "gotls"
	bare      = "engine" // ours without the daemon
)

// line prints one round in the Go benchmark format.
func (b *bench) line(r row, relay string, res load.Result) {
	r.figures().Line(b.Out, fmt.Sprintf("BenchmarkTLS/row=%s/relay=%s", r.name, relay), res)
}

// table prints the medians of a row, and its verdict.
func (b *bench) table(r row, results map[string][]load.Result) {
	f := r.figures()
	w := tabwriter.NewWriter(b.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "#\n# %s\t", r.name)
	f.Head(w)
	fmt.Fprintf(w, "%s / it\tnegotiated\n", ours)
	mine := stat.Of(results[ours], f.Judged.Of)
	for _, p := range b.peers {
		all := results[p.Name]
		if len(all) == 0 {
			continue
		}
		fmt.Fprintf(w, "# %s\t", p.Name)
		f.Medians(w, all)
		ratio := "-"
		if p.Name != ours && len(mine) > 0 {
			ratio = fmt.Sprintf("%.3f", ratioOf(mine, stat.Of(all, f.Judged.Of)))
		}
		fmt.Fprintf(w, "%s\t%s\n", ratio, all[0].Negotiated)
	}
	w.Flush()
	verdict := b.verdict(r, results)
	fmt.Fprintln(b.Out, verdict)
	b.verdicts = append(b.verdicts, verdict)
}

// verdict returns a line that says what the bar of a row is, and whether it holds.
func (b *bench) verdict(r row, results map[string][]load.Result) string {
	judged := r.figures().Judged
	text := fmt.Sprintf("# %s: %s", r.name, judged.Unit)
	mine := stat.Of(results[ours], judged.Of)
	beside, theirs := "", []float64(nil)
	for _, p := range b.peers {
		xs := stat.Of(results[p.Name], judged.Of)
		if len(xs) == 0 || p.Name == ours || p.Name == yardstick || p.Name == bare || r.bar.beside == "nginx" && !strings.HasPrefix(p.Name, "nginx") {
			continue
		}
		if theirs == nil || stat.Median(xs) < stat.Median(theirs) != judged.More {
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
	if xs := stat.Of(results[yardstick], judged.Of); len(xs) > 0 {
		text += fmt.Sprintf(" (/ %s = %.3f)", yardstick, ratioOf(mine, xs))
	}
	switch {
	case r.bar.beside == "":
		text += "; no bar"
	case judged.More:
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
func (b *bench) disturbance(results map[string][]load.Result) string {
	n, all := 0, 0
	for _, rs := range results {
		for _, r := range rs {
			all++
			if rounds.Disturbed(r) {
				n++
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" [DISTURBED: others took more than %d%% in %d of %d measurements]", rounds.MostOthers, n, all)
}

// ratioOf compares round by round if no round is missing.
func ratioOf(mine, theirs []float64) float64 {
	if len(mine) == len(theirs) {
		return stat.PairedRatio(mine, theirs)
	}
	return stat.Median(mine) / stat.Median(theirs)
}
