package console

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// StatusCmd shows the state of the daemon.
type StatusCmd struct {
	ClientFlags
}

// Run executes the command.
func (c *StatusCmd) Run(stdout, stderr *os.File) int {
	return query(&c.ClientFlags, stdout, stderr, func(ctx context.Context, client *api.Client) (api.Status, error) { return client.Status(ctx) }, printStatus)
}

func printStatus(o out, s api.Status) {
	printPairs(o, statusPairs(&s)...)
	if len(s.Listeners) > 0 {
		fmt.Fprintln(o)
		t := newTable("~LISTENER", ">FLOWS", ">BEGUN", ">REFUSED", ">FAILED", ">UP", ">DOWN")
		for _, l := range s.Listeners {
			t.add(append([]string{l.Name}, numberCells(&l.Numbers)...)...)
		}
		t.print(o)
	}
	if len(s.Groups) > 0 {
		fmt.Fprintln(o)
		t := newTable("~GROUP", ">MEMBERS", ">QUEUED", ">FLOWS", ">BEGUN", ">FAILED", ">UP", ">DOWN")
		for _, g := range s.Groups {
			t.add(g.Name, fmt.Sprintf("%d of %d", g.Up, g.Members), count(int64(g.Queued)), count(g.Flows), count(g.Begun), count(g.Failed),
				volume(float64(g.BytesUp)), volume(float64(g.BytesDown)))
		}
		t.print(o)
	}
	if len(s.Paths) > 0 {
		fmt.Fprintln(o)
		pathTable(s.Paths).print(o)
	}
}

// numberCells returns the cells of flows, begun, refused, failed, up and down.
func numberCells(n *api.Numbers) []string {
	return []string{count(n.Flows), count(n.Begun), count(n.Refused), count(n.Failed), volume(float64(n.BytesUp)), volume(float64(n.BytesDown))}
}

// statusPairs returns the state of the daemon in a few lines.
func statusPairs(s *api.Status) [][2]string {
	n, r := &s.Totals, &s.Resources
	config := s.Config.Source
	if config == "" {
		config = "the command line"
	}
	config = fmt.Sprintf("%s, loaded %s ago, %.12s", config, age(s.Time.Sub(s.Config.Loaded).Seconds()), s.Config.Hash)
	list := [][2]string{
		{"penstock", fmt.Sprintf("%s, %s, up for %s, pid %d", s.Version, s.State, age(s.Uptime), s.PID)},
		{"configuration", config},
	}
	if f := s.Config.Failed; f != nil {
		list = append(list, [2]string{"", fmt.Sprintf("the reload at %s failed and changed nothing: %s", f.Time.Local().Format(time.DateTime), configErrors(f.Errors, "; "))})
	}
	for i := range s.Config.Remote {
		for _, line := range remoteLines(&s.Config.Remote[i], s.Time) {
			list = append(list, [2]string{"", line})
		}
	}
	changed := 0
	for _, g := range s.Groups {
		changed += g.Changed
	}
	if changed > 0 {
		list = append(list, [2]string{"", fmt.Sprintf("%s from it at run time; penstock diff shows them", differ(changed))})
	}
	for _, g := range s.Groups {
		if g.LookupError != "" {
			list = append(list, [2]string{"", fmt.Sprintf("group %s: %s%s", g.Name, g.LookupError, goodAge(g.LookupGoodTime, s.Time))})
		}
	}
	if s.Keeper != nil {
		list = append(list, keeperPairs(s)...)
	}
	if s.Sandbox != nil {
		list = append(list, [2]string{"sandbox", sandboxText(s.Sandbox)})
	}
	if s.KernelTLS != "" {
		list = append(list, [2]string{"kernel's TLS", printable(s.KernelTLS)})
	}
	if s.Fleet != nil {
		list = append(list, fleetPairs(s.Fleet, s.Time)...)
	}
	busy := 0.0
	for _, l := range s.Loops {
		busy += l.Busy
	}
	list = append(list,
		[2]string{"flows", fmt.Sprintf("%s open, %s begun, %s refused, %s failed", count(n.Flows), count(n.Begun), count(n.Refused), count(n.Failed))},
		[2]string{"moved", fmt.Sprintf("%s up, %s down", volume(float64(n.BytesUp)), volume(float64(n.BytesDown)))})
	if n.DatagramsUp+n.DatagramsDown > 0 || len(r.DatagramsDropped) > 0 {
		list = append(list, [2]string{"datagrams", fmt.Sprintf("%s up, %s down, %s, %s lost by the kernel, %s GSO fallbacks",
			count(n.DatagramsUp), count(n.DatagramsDown), dropsText(r.DatagramsDropped), count(r.DatagramsLost), count(r.GSOFallbacks))})
	}
	list = append(list,
		[2]string{"loops", fmt.Sprintf("%d, busy for %s in total; CPU time %s", len(s.Loops), span(busy), span(r.CPU))},
		[2]string{"descriptors", bounded(r.FDs, r.MaxFDs)},
		[2]string{"pipes", fmt.Sprintf("%s, %s in use, %s refused", bounded(r.PipesOpen, r.PipesMax), count(r.PipesLeased), count(r.PipesRefused))},
		[2]string{"memory", fmt.Sprintf("%s heap, %s of held datagrams, %d goroutines", volume(float64(r.HeapBytes)), volume(float64(r.DatagramHeldBytes)), r.Goroutines)})
	list = append(list, overloadPairs(&s.Overload)...)
	if r.LogLinesDropped > 0 {
		list = append(list, [2]string{"logs", count(r.LogLinesDropped) + " lines dropped"})
	}
	return list
}

// dropsText returns how many datagrams were dropped, and why, the most frequent reason first.
func dropsText(drops []api.DatagramDrop) string {
	drops = slices.Clone(drops)
	slices.SortStableFunc(drops, func(a, b api.DatagramDrop) int { return cmp.Compare(b.Count, a.Count) })
	total, reasons := int64(0), []string{}
	for _, d := range drops {
		total += d.Count
		reasons = append(reasons, printable(d.Reason)+" "+count(d.Count))
	}
	text := count(total) + " dropped"
	if total > 0 {
		text += " (" + strings.Join(reasons, ", ") + ")"
	}
	return text
}

// remoteLines says which version of a text in a registry runs, and what is wrong.
func remoteLines(r *api.RemoteConfig, now time.Time) (lines []string) {
	text := r.Source + ": version " + r.Version
	if !r.Published.IsZero() {
		text += " of " + r.Published.Local().Format(time.DateTime)
	}
	if r.Trial {
		text += ", which only some relays try"
	}
	if r.Saved != "" {
		text += ", from " + r.Saved
	}
	lines = append(lines, text)
	if r.Error != "" {
		lines = append(lines, fmt.Sprintf("%s: for %s: %s", r.Source, age(now.Sub(r.Since).Seconds()), r.Error))
	}
	if f := r.Refused; f != nil {
		lines = append(lines, fmt.Sprintf("%s: version %s was refused at %s: %s", r.Source, f.Version, f.Time.Local().Format(time.DateTime), f.Error))
	}
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return lines
}

// bounded returns a gauge with its bound, if that is known.
func bounded(n, most int64) string {
	if most == 0 {
		return count(n)
	}
	return count(n) + " of " + count(most)
}

// configErrors returns the errors of a configuration in the format of compilers.
func configErrors(errs []api.ConfigError, sep string) string {
	var lines []string
	for _, e := range errs {
		line := e.Message
		if e.Line > 0 {
			line = fmt.Sprintf("%s:%d:%d: %s", e.Source, e.Line, e.Column, line)
		}
		if e.Allowed != "" {
			line += "; allowed: " + e.Allowed
		}
		lines = append(lines, printable(line))
	}
	return strings.Join(lines, sep)
}

// pathTable returns a table of the data paths of directions, most used first.
func pathTable(paths []api.PathCount) *table {
	paths = slices.Clone(paths)
	slices.SortStableFunc(paths, func(a, b api.PathCount) int { return int(min(1, max(-1, b.Directions-a.Directions))) })
	total := int64(0)
	for _, p := range paths {
		total += p.Directions
	}
	t := newTable("PATH", ">DIRECTIONS", ">SHARE", "~WHY NOT A FASTER ONE")
	for _, p := range paths {
		t.add(p.Path, count(p.Directions), percent(float64(p.Directions)/float64(max(1, total))), dash(p.Why))
	}
	return t
}

// differ returns the text for a number of members that differ.
func differ(n int) string {
	if n == 1 {
		return "1 member differs"
	}
	return fmt.Sprintf("%d members differ", n)
}
