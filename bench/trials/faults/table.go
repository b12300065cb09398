//go:build linux

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/report"
)

// sortOutcomes sorts outcomes by kind, and by relay within a kind.
func sortOutcomes(all []*outcome) {
	at := func(o *outcome) int {
		return slices.IndexFunc(kinds, func(k *kind) bool { return k.name == o.Kind })*len(relays) + slices.IndexFunc(relays, func(r *relay) bool { return r.name == o.Relay })
	}
	slices.SortFunc(all, func(a, b *outcome) int { return cmp.Compare(at(a), at(b)) })
}

// short tells the verdict in a line.
func (o *outcome) short() string {
	switch {
	case o.Absent != "":
		return "- " + o.Absent
	case o.Error != "":
		line, _, _ := strings.Cut(o.Error, "\n")
		return "NOT MEASURED: " + line
	case o.Held:
		return "held"
	}
	return strings.Join(o.Bad, "; ")
}

// columns are those of the table, apart from the first two.
var columns = []struct {
	name string
	text func(o *outcome) string
}{
	{"old streams lost", func(o *outcome) string {
		s := fmt.Sprintf("%d/%d", o.Old.Lost+o.Old.Stalled, o.Old.Streams)
		if o.Old.Hit > 0 {
			s += fmt.Sprintf(" +%d/%d", o.Old.HitLost+o.Old.HitStalled, o.Old.Hit)
		}
		return s
	}},
	{"longest pause", func(o *outcome) string { return o.Old.Pause.round().String() }},
	{"datagrams lost", func(o *outcome) string {
		if o.Old.Sent == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f%%", 100*o.Old.share())
	}},
	{"wrong", func(o *outcome) string { return fmt.Sprint(o.Old.Wrong + o.New.total().Wrong) }},
	{"new clients served", func(o *outcome) string {
		c := o.New.During
		return fmt.Sprintf("%d/%d", c.Served, c.Tried)
	}},
	{"refused, cut, late", func(o *outcome) string {
		c := o.New.During
		return fmt.Sprintf("%d, %d, %d", c.Refused, c.Cut, c.Late)
	}},
	{"p99", func(o *outcome) string { return o.New.During.P99.round().String() }},
	{"back after", func(o *outcome) string {
		if o.Back < 0 {
			return "never"
		}
		return o.Back.round().String()
	}},
	{"memory", func(o *outcome) string { return megabytes(o.MemoryPeak) }},
	{"descriptors", func(o *outcome) string { return fmt.Sprint(o.FilesPeak) }},
	{"CPU s", func(o *outcome) string { return fmt.Sprintf("%.2f", o.CPU) }},
	{"ends", func(o *outcome) string { return fmt.Sprint(o.Ends) }},
}

func megabytes(kb int64) string { return fmt.Sprintf("%.1f MB", float64(kb)/1024) }

// printTable prints a line for each outcome, and what was not as expected below it.
func printTable(w io.Writer, all []*outcome) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "fault\trelay\t")
	for _, c := range columns {
		fmt.Fprintf(t, "%s\t", c.name)
	}
	fmt.Fprintln(t, "verdict")
	for _, o := range all {
		fmt.Fprintf(t, "%s\t%s\t", o.Kind, o.Relay)
		for _, c := range columns {
			if o.Error == "" && o.Absent == "" {
				fmt.Fprintf(t, "%s\t", c.text(o))
			} else {
				fmt.Fprint(t, "\t")
			}
		}
		fmt.Fprintln(t, o.short())
	}
	t.Flush()
	for _, o := range all {
		if more := figures(o); more != "" {
			fmt.Fprintf(w, "%s, %s: %s\n", o.Kind, o.Relay, more)
		}
	}
}

// figures tells the relay's counters and the figures of the fault.
func figures(o *outcome) string {
	var all []string
	for _, m := range []map[string]float64{o.Notes, o.Counters} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			all = append(all, fmt.Sprintf("%s %s", name, number(m[name])))
		}
	}
	if n := o.Notes["connections"]; n > 0 {
		all = append(all, fmt.Sprintf("CPU time of a connection %.0f us", o.CPU/n*1e6))
	}
	return strings.Join(all, ", ")
}

func number(v float64) string {
	if v == float64(int64(v)) {
		return fmt.Sprint(int64(v))
	}
	return fmt.Sprintf("%.2f", v)
}

// about names the machine and the programs.
func (r *run) about() string {
	var machine strings.Builder
	report.Machine(&machine) // it names what it can find
	parts := strings.Split(strings.TrimSpace(machine.String()), "\n")
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		parts = append(parts, "load before: "+strings.Fields(string(b))[0])
	}
	for _, l := range r.relays {
		if l == penstock {
			continue // the commit is there
		}
		line, _ := peer.FirstLine(l.version)
		line, _, _ = strings.Cut(strings.TrimPrefix(line, "nginx version: "), " - ")
		if line != "" {
			parts = append(parts, strings.TrimSpace(line))
		}
	}
	return strings.Join(parts, "; ")
}

func listKinds(w io.Writer) {
	for _, k := range kinds {
		fmt.Fprintf(w, "%-18s %s\n%18s expected: %s\n", k.name, k.what, "", k.want)
	}
}

func findKind(name string) *kind {
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	return nil
}
