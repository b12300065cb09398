//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
)

// A census is what the processes of a daemon have at one moment.
type census struct {
	worker     int     // its process
	workerRSS  float64 // KiB, without the pages of files
	keeperRSS  float64
	workerFDs  float64
	keeperFDs  float64
	goroutines float64
	pipes      float64 // open, two descriptors each
	leased     float64 // pipes that a flow has
	resting    float64 // sockets of datagram flows that have ended
	flows      float64 // open
	items      float64 // that the keeper holds, as the worker knows it: it is told every 256 changes or so
}

// own returns the descriptors of the worker that belong neither to a flow nor to what is kept for the next one.
func (c *census) own() float64 { return c.workerFDs - 2*c.pipes - c.resting }

// census reads the metrics and /proc. It fails while there is no worker.
func (d *daemon) census() (c census, err error) {
	if c.worker, err = d.worker(); err != nil {
		return c, err
	}
	m, err := d.Metrics()
	if err != nil {
		return c, err
	}
	if c.workerRSS, err = proc.OwnMemory(c.worker); err != nil {
		return c, err
	}
	c.workerFDs = float64(proc.Files(c.worker))
	if d.kept {
		if c.keeperRSS, err = proc.OwnMemory(d.First()); err != nil {
			return c, err
		}
		c.keeperFDs = float64(proc.Files(d.First()))
	}
	c.goroutines, c.pipes, c.leased = m.Values["go_goroutines"], m.Values["penstock_pipes_open"], m.Values["penstock_pipes_leased"]
	c.resting, c.items = m.Values["penstock_datagram_resting_sockets"], m.Values["penstock_keeper_items"]
	for _, open := range m.Sum("penstock_flows_open", "listener") {
		c.flows += open
	}
	if after, err := d.worker(); err != nil || after != c.worker {
		return c, errors.New("the worker was replaced meanwhile")
	}
	return c, nil
}

// The lines of the balance of what a process has: what it had before the load came, and what it has when all flows
// have ended.
var left = []struct {
	name string
	of   func(*census) float64
	none bool // it must be 0, not what it was
}{
	{"open flows", func(c *census) float64 { return c.flows }, true},
	{"pipes that a flow has", func(c *census) float64 { return c.leased }, true},
	{"descriptors of the worker, without idle pipes and resting sockets", (*census).own, false},
	{"descriptors of the keeper", func(c *census) float64 { return c.keeperFDs - 2*c.pipes }, false},
	{"goroutines of the worker", func(c *census) float64 { return c.goroutines }, false},
}

// leftOver returns what there is more at the end than at the beginning, a line for each kind.
func leftOver(before, after *census) (all []string) {
	for _, l := range left {
		was := l.of(before)
		if l.none {
			was = 0
		}
		if is := l.of(after); is > was {
			all = append(all, fmt.Sprintf("%s: %.0f, and %.0f before the load", l.name, is, was))
		}
	}
	return all
}

// leastCensus returns the census of a daemon without load: the least of several, because the connection of one census may be
// in another.
func leastCensus(read func() (census, error)) (least census, err error) {
	for i := range 5 {
		c, err := read()
		if err != nil {
			return c, err
		}
		if i > 1 { // the first ones make what stays: a listener's buffers, the runtime's own descriptors
			c.workerFDs, c.keeperFDs = min(c.workerFDs, least.workerFDs), min(c.keeperFDs, least.keeperFDs)
			c.goroutines = min(c.goroutines, least.goroutines)
		}
		least = c
		time.Sleep(50 * ms)
	}
	return least, nil
}

// settleCensus reads the census until nothing is left over, for at most the given time.
func settleCensus(before *census, read func() (census, error), wait time.Duration) (after census, over []string, err error) {
	for end := time.Now().Add(wait); ; time.Sleep(200 * ms) {
		if after, err = read(); err == nil {
			if over = leftOver(before, &after); len(over) == 0 {
				return after, nil, nil
			}
		}
		if time.Now().After(end) {
			return after, over, err
		}
	}
}

// A soakBalance is what a soak measures.
type soakBalance struct {
	before         census
	worker, keeper series  // RSS in KiB
	bound          float64 // of their slopes, in KiB per second
	longest        struct{ fds, goroutines float64 }
}

func newSoakBalance(window, warm time.Duration, mibPerHour float64) *soakBalance {
	b := &soakBalance{bound: mibPerHour * 1024 / 3600}
	b.worker.window, b.keeper.window = window, window
	b.worker.warm, b.keeper.warm = warm, warm
	return b
}

// sample adds a census. The keeper begins anew with its number of replacements.
func (b *soakBalance) sample(c *census, at time.Duration, replaced int) {
	b.worker.add(fmt.Sprint(c.worker), at, c.workerRSS)
	b.keeper.add(fmt.Sprint(replaced), at, c.keeperRSS)
	b.longest.fds, b.longest.goroutines = max(b.longest.fds, c.workerFDs), max(b.longest.goroutines, c.goroutines)
}

// memoryAborts returns how many connections of this network namespace the kernel has reset because TCP had no memory left,
// which is a limit of the whole machine (net.ipv4.tcp_mem): whoever else runs on it may cause that.
func memoryAborts() int64 {
	text, _ := os.ReadFile("/proc/self/net/netstat")
	lines := strings.Split(string(text), "\n")
	for i := 1; i < len(lines); i++ {
		names, values := strings.Fields(lines[i-1]), strings.Fields(lines[i])
		for j := range min(len(names), len(values)) {
			if names[j] == "TCPAbortOnMemory" {
				n, _ := strconv.ParseInt(values[j], 10, 64)
				return n
			}
		}
	}
	return 0
}

// print writes the balance, and returns what must not be.
func (b *soakBalance) print(out io.Writer, after *census, over []string) (faults []string) {
	fmt.Fprintf(out, "\nbefore the load, at most, and when all flows have ended:\n")
	for _, l := range []struct {
		name          string
		was, most, is float64
		withoutMost   bool
	}{
		{name: "descriptors of the worker", was: b.before.workerFDs, most: b.longest.fds, is: after.workerFDs},
		{name: "descriptors of the keeper", was: b.before.keeperFDs, is: after.keeperFDs, withoutMost: true},
		{name: "idle pipes", was: b.before.pipes, is: after.pipes, withoutMost: true},
		{name: "goroutines of the worker", was: b.before.goroutines, most: b.longest.goroutines, is: after.goroutines},
		{name: "items that the keeper held when it told the worker last", was: b.before.items, is: after.items, withoutMost: true},
		{name: "RSS of the worker, MiB", was: b.before.workerRSS / 1024, is: after.workerRSS / 1024, withoutMost: true},
		{name: "RSS of the keeper, MiB", was: b.before.keeperRSS / 1024, is: after.keeperRSS / 1024, withoutMost: true},
	} {
		most := fmt.Sprintf("%.0f", l.most)
		if l.withoutMost {
			most = "-"
		}
		fmt.Fprintf(out, "%10.0f %10s %10.0f  %s\n", l.was, most, l.is, l.name)
	}
	faults = append(faults, over...)
	fmt.Fprintf(out, "\nslope of the RSS without files, which must not be significantly above %s:\n", perHour(b.bound))
	for _, s := range []struct {
		name   string
		series *series
	}{{"worker", &b.worker}, {"keeper", &b.keeper}} {
		t, ok := s.series.trend()
		if !ok {
			fmt.Fprintf(out, "  %s: too short a run to tell\n", s.name)
			continue
		}
		fmt.Fprintf(out, "  %s: %s, 95%% confidence %s to %s, of %d windows of %v in %d lives\n", s.name, perHour(t.slope), perHour(t.low), perHour(t.high), t.points, s.series.window, t.segments)
		if t.low > b.bound {
			faults = append(faults, fmt.Sprintf("the RSS of the %s grows by %s, 95%% confidence %s to %s; bound: %s", s.name, perHour(t.slope), perHour(t.low), perHour(t.high), perHour(b.bound)))
		}
	}
	if len(faults) > 0 {
		fmt.Fprintf(out, "left over or growing:\n  %s\n", strings.Join(faults, "\n  "))
	}
	return faults
}
