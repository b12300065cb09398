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

// result is what became of the flows of a round. What happened before the event is not in it.
type result struct {
	TCP, Alive int
	CleanEnds  int // cut, but the client saw the end of the stream as if it were complete
	Resets     int
	Stalled    int // neither an echo nor an end
	Wrong      int // other bytes than were sent

	UDP, UDPAlive int // alive: by the same port of the relay
	DatagramsLost int

	New, NewFailed int // clients that came after the event

	P50, P99, Longest time.Duration // pauses of the TCP flows that live

	Took            time.Duration // the command, or commands
	Starts          int           // by the service manager
	ProcessesBefore int
	Processes       int   // at the end
	Memory          int64 // KB, resident, of all of them
}

func (r *result) setPauses(pauses []time.Duration) {
	slices.Sort(pauses)
	r.P50, r.P99, r.Longest = stat.Rank(pauses, 0.5), stat.Rank(pauses, 0.99), stat.Rank(pauses, 1)
}

// line returns the values as Go benchmarks print theirs.
func (r result) line() string {
	ms := stat.Millis
	var b strings.Builder
	for _, v := range []struct {
		value float64
		unit  string
	}{
		{float64(r.TCP), "tcp-flows"}, {float64(r.Alive), "tcp-alive"}, {float64(r.CleanEnds), "tcp-cut-as-if-complete"}, {float64(r.Resets), "tcp-reset"},
		{float64(r.Stalled), "tcp-stalled"}, {float64(r.Wrong), "tcp-wrong-bytes"}, {float64(r.UDP), "udp-flows"}, {float64(r.UDPAlive), "udp-alive"},
		{float64(r.DatagramsLost), "datagrams-lost"}, {float64(r.New), "new-clients"}, {float64(r.NewFailed), "new-clients-failed"},
		{ms(r.P50), "pause-p50-ms"}, {ms(r.P99), "pause-p99-ms"}, {ms(r.Longest), "pause-max-ms"}, {ms(r.Took), "command-ms"}, {float64(r.Starts), "starts"},
		{float64(r.ProcessesBefore), "processes-before"}, {float64(r.Processes), "processes-after"}, {float64(r.Memory) / 1024, "rss-MB-after"},
	} {
		fmt.Fprintf(&b, "%.4g %s\t", v.value, v.unit)
	}
	return strings.TrimSuffix(b.String(), "\t")
}

// table prints the medians of all rounds, event by event.
func table(out io.Writer, keys [][2]string, results map[[2]string][]result) {
	fmt.Fprintf(out, "#\n# medians\n#\n# | event | relay | TCP flows alive | cut: seen as complete, as reset | UDP flows alive | datagrams lost | new clients failed | pause p50, p99, ms | processes before, after | MB after |\n# |---|---|---|---|---|---|---|---|---|---|\n")
	for _, e := range events {
		for _, r := range relays {
			all := results[[2]string{e.name, r.name}]
			if len(all) == 0 {
				continue
			}
			of := func(value func(r result) float64) float64 { return stat.Middle(stat.Of(all, value)) }
			count := func(value func(r result) int) string {
				return fmt.Sprint(int(of(func(r result) float64 { return float64(value(r)) })))
			}
			pause := "-"
			if of(func(r result) float64 { return float64(r.Alive) }) > 0 {
				pause = fmt.Sprintf("%.0f, %.0f", of(func(r result) float64 { return r.P50.Seconds() * 1000 }), of(func(r result) float64 { return r.P99.Seconds() * 1000 }))
			}
			datagrams, lost := "no UDP", "-"
			if all[0].UDP > 0 {
				datagrams = count(func(r result) int { return r.UDPAlive }) + " of " + fmt.Sprint(all[0].UDP)
				lost = count(func(r result) int { return r.DatagramsLost })
			}
			fmt.Fprintf(out, "# | %s | %s | %s of %d | %s, %s | %s | %s | %s of %s | %s | %s, %s | %.0f |\n", e.name, r.name,
				count(func(r result) int { return r.Alive }), all[0].TCP, count(func(r result) int { return r.CleanEnds }), count(func(r result) int { return r.Resets }),
				datagrams, lost, count(func(r result) int { return r.NewFailed }), count(func(r result) int { return r.New }), pause,
				count(func(r result) int { return r.ProcessesBefore }), count(func(r result) int { return r.Processes }), of(func(r result) float64 { return float64(r.Memory) / 1024 }))
		}
	}
}
