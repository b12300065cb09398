//go:build linux

package main

import (
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/rounds"
	"github.com/penstock/penstock/bench/internal/stat"
)

// line prints one round in the Go benchmark format.
func (b *bench) line(l namedLoad, s subject, r load.Result) {
	figures(l.Spec).Line(b.Out, fmt.Sprintf("BenchmarkRelay/load=%s/peer=%s/loops=%d", l.text, s.Name, s.loops), r)
}

// table prints the medians of a load, and ours compared with the others with the same number of
// loops. It returns a summary line for each number of loops.
func (b *bench) table(l namedLoad, results [][]load.Result) (verdicts []string) {
	w := tabwriter.NewWriter(b.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "#\n# %s\tloops\t", l.text)
	figures(l.Spec).Head(w)
	fmt.Fprintf(w, "%s / it\tpaired\n", b.peers[0].Name)
	for _, loops := range b.loops {
		if v := b.rows(w, l, loops, results); v != "" {
			verdicts = append(verdicts, v)
		}
	}
	for _, p := range b.peers {
		if err := p.Missing(); err != nil {
			fmt.Fprintf(w, "# %s\t%v\n", p.Name, err)
		}
	}
	w.Flush()
	return verdicts
}

func (b *bench) tableAndVerdicts(l namedLoad, results [][]load.Result) {
	verdicts := b.table(l, results)
	if l.Kind == load.Settle {
		b.differences(l, results)
		return
	}
	for _, v := range verdicts {
		fmt.Fprintln(b.Out, v)
	}
}

// differences prints what holding a flow costs: the first relay minus each of the others, which have
// no keeper, round by round.
func (b *bench) differences(l namedLoad, results [][]load.Result) {
	subjects := b.subjects()
	for i, s := range subjects {
		first := slices.IndexFunc(subjects, func(f subject) bool { return f.loops == s.loops })
		if i == first || len(results[i]) == 0 || len(results[i]) != len(results[first]) {
			continue
		}
		fmt.Fprintf(b.Out, "# %s, loops %d: %s - %s, us per flow, medians:", l.text, s.loops, subjects[first].Name, s.Name)
		sum := 0.0
		for _, f := range []rounds.Figure{rounds.CPUPerOp, rounds.Closing} {
			var all []float64
			for round, r := range results[i] {
				all = append(all, f.Of(results[first][round])-f.Of(r))
			}
			sum += stat.Median(all)
			fmt.Fprintf(b.Out, " %.2f %s,", stat.Median(all), f.Unit)
		}
		fmt.Fprintf(b.Out, " together %.2f\n", sum)
	}
}

// rows prints the relays with the given number of loops, and returns a line that compares the first
// of them with the best of the others.
func (b *bench) rows(w *tabwriter.Writer, l namedLoad, loops int, results [][]load.Result) (verdict string) {
	f := figures(l.Spec)
	var ours, best, floor []float64
	bestName := ""
	for i, s := range b.subjects() {
		if s.loops != loops || !l.suits(s) {
			continue
		}
		xs := stat.Of(results[i], f.Judged.Of)
		fmt.Fprintf(w, "# %s\t%d\t", s.Name, loops)
		f.Medians(w, results[i])
		if s.Name == b.peers[0].Name {
			ours = xs
			fmt.Fprint(w, "\t\n")
			continue
		}
		if len(xs) == 0 || len(ours) == 0 {
			fmt.Fprint(w, "-\t-\n")
			continue
		}
		fmt.Fprintf(w, "%.3f\t%s\n", stat.Median(ours)/stat.Median(xs), paired(ours, xs))
		if s.Name == peer.FloorName {
			floor = xs
			continue
		}
		if best == nil || stat.Median(xs) < stat.Median(best) {
			best, bestName = xs, s.Name
		}
	}
	besideFloor := ""
	if floor != nil {
		besideFloor = fmt.Sprintf("; / floor = %.3f", stat.Median(ours)/stat.Median(floor))
	}
	if best == nil {
		if besideFloor == "" {
			return ""
		}
		return fmt.Sprintf("# %s, loops %d: %s of %s%s", l.text, loops, f.Judged.Unit, b.peers[0].Name, besideFloor)
	}
	ratio := stat.Median(ours) / stat.Median(best)
	return fmt.Sprintf("# %s, loops %d: %s of %s / best peer (%s) = %.3f: %s%s", l.text, loops, f.Judged.Unit, b.peers[0].Name, bestName, ratio, ratioWord(ratio), besideFloor)
}

// ratioWord returns a word for the ratio of ours to the best peer's figure. On a shared machine, a
// difference of less than 3% is not significant.
func ratioWord(ratio float64) string {
	switch {
	case ratio < 0.97:
		return "ahead"
	case ratio <= 1.03:
		return "level"
	default:
		return "BEHIND"
	}
}

// paired returns the median of the ratios round by round, if no round is missing.
func paired(ours, theirs []float64) string {
	if len(ours) != len(theirs) {
		return "-"
	}
	return fmt.Sprintf("%.3f", stat.PairedRatio(ours, theirs))
}
