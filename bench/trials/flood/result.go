//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/stat"
)

// result is what one round has shown.
type result struct {
	Relay, Kind string
	Rate        int
	Forged      int // datagrams of the flood
	Flood       time.Duration
	CPU         time.Duration // of the relay, during the flood
	RSS         int64         // its memory at the end of that, in KB

	Sent, Lost     int // datagrams of old sessions
	P50, P99, Last time.Duration
	Wrong          int // replies that another client got, or that have other bytes

	New, First, Served [sorts]int // new clients; served at their first attempt, and at any
	Metrics            map[string]float64
}

// count counts what became of the clients' datagrams. New clients that came too late to make all their
// attempts are left out.
func (r *result) count(cs *clients) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	r.Wrong = cs.wrong
	var took []time.Duration
	for _, c := range cs.all {
		if c.sort == old {
			for _, d := range c.took {
				switch {
				case d == unmeasured:
				case d == 0:
					r.Sent++
					r.Lost++
				default:
					r.Sent++
					took = append(took, d)
				}
			}
			continue
		}
		if !c.answered() && len(c.sent) < attempts {
			continue
		}
		r.New[c.sort]++
		if c.took[0] > 0 {
			r.First[c.sort]++
		}
		if c.answered() {
			r.Served[c.sort]++
		}
	}
	slices.Sort(took)
	r.P50, r.P99, r.Last = stat.Rank(took, 0.5), stat.Rank(took, 0.99), stat.Rank(took, 1)
}

func share(part, all int) float64 {
	if all == 0 {
		return 0
	}
	return 100 * float64(part) / float64(all)
}

// line returns the values as Go benchmarks print theirs.
func (r *result) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "BenchmarkFlood/kind=%s/rate=%d/relay=%s\t1", r.Kind, r.Rate, r.Relay)
	for _, v := range []struct {
		value float64
		unit  string
	}{
		{float64(r.Forged) / r.Flood.Seconds(), "forged/s"}, {share(r.Lost, r.Sent), "old-lost-%"}, {stat.Millis(r.P50), "p50-ms"}, {stat.Millis(r.P99), "p99-ms"}, {stat.Millis(r.Last), "max-ms"},
		{float64(r.Wrong), "wrong"}, {share(r.First[known], r.New[known]), "known-first-%"}, {share(r.Served[known], r.New[known]), "known-served-%"},
		{share(r.First[quiet], r.New[quiet]), "quiet-first-%"}, {share(r.Served[quiet], r.New[quiet]), "quiet-served-%"}, {100 * r.CPU.Seconds() / r.Flood.Seconds(), "cpu-%"}, {float64(r.RSS) / 1000, "rss-MB"},
	} {
		fmt.Fprintf(&b, "\t%.4g %s", v.value, v.unit)
	}
	names := make([]string, 0, len(r.Metrics))
	for name, value := range r.Metrics {
		if value != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		if i == 0 {
			b.WriteString("\n#")
		}
		fmt.Fprintf(&b, " %s %.0f", strings.TrimPrefix(name, "penstock_"), r.Metrics[name])
	}
	return b.String()
}

// table prints the medians of all rounds.
func table(out io.Writer, all []result) {
	fmt.Fprintf(out, "#\n# medians\n#\n# | flood from | rate/s | relay | old datagrams lost, %% | p50, p99, ms | new clients of known networks served at once, at all, %% | of quiet networks | CPU, %% | memory, MB |\n# |---|---|---|---|---|---|---|---|---|\n")
	type row struct {
		kind  string
		rate  int
		relay string
	}
	var rows []row
	by := map[row][]result{}
	for _, r := range all {
		k := row{r.Kind, r.Rate, r.Relay}
		if by[k] == nil {
			rows = append(rows, k)
		}
		by[k] = append(by[k], r)
	}
	for _, k := range rows {
		of := func(value func(r result) float64) float64 { return stat.Middle(stat.Of(by[k], value)) }
		served := func(sort int) string {
			return fmt.Sprintf("%.0f, %.0f", of(func(r result) float64 { return share(r.First[sort], r.New[sort]) }), of(func(r result) float64 { return share(r.Served[sort], r.New[sort]) }))
		}
		fmt.Fprintf(out, "# | %s | %.0f | %s | %.2f | %.2f, %.1f | %s | %s | %.0f | %.0f |\n", k.kind, of(func(r result) float64 { return float64(r.Forged) / r.Flood.Seconds() }), k.relay,
			of(func(r result) float64 { return share(r.Lost, r.Sent) }), of(func(r result) float64 { return stat.Millis(r.P50) }), of(func(r result) float64 { return stat.Millis(r.P99) }),
			served(known), served(quiet), of(func(r result) float64 { return 100 * r.CPU.Seconds() / r.Flood.Seconds() }), of(func(r result) float64 { return float64(r.RSS) / 1000 }))
	}
}
