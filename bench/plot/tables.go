package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/bench/internal/report"
	"github.com/penstock/penstock/bench/internal/stat"
)

// table is one of tables.md: a row for each load and figure, a column for each relay.
type table struct {
	title string
	parts []string
	rows  func(res report.Result) []row
}

type row struct {
	panel
	loops int
}

var tables = []table{
	{"TCP, all processes on one CPU", []string{"relay-one-cpu-bulk", "relay-one-cpu-messages"}, cost(bulkCost, messageCost, manyCost)},
	{"TCP, all CPUs", []string{"relay-all-cpus-bulk", "relay-all-cpus-messages"}, cost(bulkCost, messageCost, manyCost)},
	{"Idle connections", []string{"relay-idle"}, cost(idleCost)},
	{"UDP, all processes on one CPU", []string{"relay-one-cpu-udp"}, cost(udpCost)},
	{"UDP, all CPUs", []string{"relay-all-cpus-udp"}, cost(udpCost)},
	{"Latency, all processes on one CPU", []string{"relay-one-cpu-messages", "relay-one-cpu-udp"}, latency},
	{"Latency, all CPUs", []string{"relay-all-cpus-messages", "relay-all-cpus-udp"}, latency},
	{"Throughput, all CPUs: more is better; the load takes its share of the CPUs", []string{"relay-all-cpus-bulk", "relay-all-cpus-messages", "relay-all-cpus-udp"}, throughput},
	{"Cost as connections grow, all processes on one CPU", []string{"relay-one-cpu-connections"}, growth},
	{"Cost as loops grow, all CPUs", []string{"relay-loops"}, func(report.Result) (rows []row) {
		for _, p := range slices.Concat(bulkCost[3:], messageCost[1:2], messageCost[3:], udpCost[:1]) {
			for _, loops := range []int{1, 2} {
				q := p
				q.title += ", " + strconv.Itoa(loops) + map[bool]string{true: " loop", false: " loops"}[loops == 1]
				rows = append(rows, row{q, loops})
			}
		}
		return rows
	}},
	{"The machine's own namespace and congestion control", []string{"relay-host"}, cost(bulkCost[:1], bulkCost[2:3])},
}

// tableRelays are the relays and the yardstick, which does not count as a peer.
var tableRelays = append(slices.Clone(relays), relay{floor, []string{"floor"}})

const floor = "floor"

// cost returns a row for each load that was measured and for each that the pictures show.
func cost(panels ...[]panel) func(report.Result) []row {
	return func(res report.Result) (rows []row) {
		for _, p := range slices.Concat(panels...) {
			if !slices.Contains(manyCost, p) || len(res.Column(p.raw, map[string]string{"load": p.load})) > 0 {
				rows = append(rows, row{p, 1})
			}
		}
		return rows
	}
}

func latency(report.Result) (rows []row) {
	for _, p := range append(slices.Clone(messageCost), udpCost[3:]...) {
		for _, raw := range []string{"p50-us", "p99-us"} {
			rows = append(rows, row{panel{p.load, p.title, raw[:3] + " µs", raw, 1}, 1})
		}
	}
	return rows
}

func throughput(report.Result) (rows []row) {
	for _, p := range bulkCost {
		rows = append(rows, row{panel{p.load, p.title, "GB/s", "GB/s", 1}, 1})
	}
	for _, p := range append(slices.Clone(messageCost), udpCost...) {
		_, per, _ := strings.Cut(p.unit, " per ")
		rows = append(rows, row{panel{p.load, p.title, per + "s per second", "op/s", 1}, 1})
	}
	return rows
}

func growth(res report.Result) (rows []row) {
	for _, n := range connections(res, "pingpong") {
		p := messageCost[0]
		p.load, p.title = "pingpong"+strconv.Itoa(n), "64 B and echo, connections: "+thousands(float64(n))
		rows = append(rows, row{p, 1})
	}
	return rows
}

// writeTables writes the tables whose results exist to tables.md, if there are any.
func writeTables(results string) error {
	var b strings.Builder
	for _, t := range tables {
		res, err := read(results, t.parts)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "## %s\n\n| load | figure |", t.title)
		for _, r := range tableRelays {
			fmt.Fprintf(&b, " %s |", r.name)
		}
		b.WriteString(" ours / best peer |\n" + strings.Repeat("|---", len(tableRelays)+3) + "|\n")
		for _, r := range t.rows(res) {
			b.WriteString(r.text(res))
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return nil
	}
	path := filepath.Join(results, "tables.md")
	fmt.Println(path)
	head := "# Tables\n\nMade from the raw text in this folder. Medians, and half the range between the smallest and the largest round; less is better unless stated otherwise. " +
		"Where a peer is ahead by more than 3%, the ratio is bold. Floor is a bare epoll relay in C that only copies; it is a yardstick and not a peer.\n\n"
	return os.WriteFile(path, []byte(head+b.String()), 0o644)
}

// text returns the row in Markdown. Of a relay's two setups it shows the better one, or the one
// that loses nothing.
func (r row) text(res report.Result) string {
	more := strings.HasSuffix(r.raw, "/s")
	better := func(a, b float64) bool { return a < b != more }
	line := fmt.Sprintf("| %s | %s |", r.title, r.unit)
	ours, best, bestName := math.NaN(), math.NaN(), ""
	for i, relay := range tableRelays {
		cell, value, lossy := "", math.NaN(), false
		for _, peer := range relay.peers {
			xs := column(res, r.load, peer, r.raw, r.loops)
			v, loss := stat.Median(xs)*r.scale, stat.Median(column(res, r.load, peer, "loss-%", r.loops))
			loses := loss >= 0.5
			if math.IsNaN(v) || !math.IsNaN(value) && (loses && !lossy || loses == lossy && !better(v, value)) {
				continue
			}
			value, lossy = v, loses
			cell = fmt.Sprintf(" %s ±%.0f%%", figure(v), 100*stat.Spread(xs))
			if loses {
				cell += fmt.Sprintf(" (%.0f%% lost)", loss)
			}
			if n := median(res, r.load, peer, "conns"); r.load == "idle" {
				cell += fmt.Sprintf(" (%s)", thousands(n))
			}
		}
		line += cell + " |"
		if i == 0 {
			ours = value
		} else if relay.name != floor && !math.IsNaN(value) && (bestName == "" || better(value, best)) {
			best, bestName = value, relay.name
		}
	}
	ratio := ours / best
	if math.IsNaN(ratio) {
		return line + " |\n"
	}
	s := fmt.Sprintf("%.2f", ratio)
	if !more && ratio > 1.03 || more && ratio < 0.97 {
		s = "**" + s + "**"
	}
	return fmt.Sprintf("%s %s (%s) |\n", line, s, bestName)
}

// figure formats v with three significant digits and commas.
func figure(v float64) string {
	if v < 1000 {
		return short(v)
	}
	return thousands(math.Round(v))
}
