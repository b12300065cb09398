//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/world"
)

// A soakBalance is what a soak measures.
type soakBalance struct {
	before         world.Census
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
func (b *soakBalance) sample(c *world.Census, at time.Duration, replaced int) {
	b.worker.add(fmt.Sprint(c.Worker), at, c.WorkerRSS)
	b.keeper.add(fmt.Sprint(replaced), at, c.KeeperRSS)
	b.longest.fds, b.longest.goroutines = max(b.longest.fds, c.WorkerFDs), max(b.longest.goroutines, c.Goroutines)
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
func (b *soakBalance) print(out io.Writer, after *world.Census, over []string) (faults []string) {
	fmt.Fprintf(out, "\nbefore the load, at most, and when all flows have ended:\n")
	for _, l := range []struct {
		name          string
		was, most, is float64
		withoutMost   bool
	}{
		{name: "descriptors of the worker", was: b.before.WorkerFDs, most: b.longest.fds, is: after.WorkerFDs},
		{name: "descriptors of the keeper", was: b.before.KeeperFDs, is: after.KeeperFDs, withoutMost: true},
		{name: "idle pipes", was: b.before.Pipes, is: after.Pipes, withoutMost: true},
		{name: "goroutines of the worker", was: b.before.Goroutines, most: b.longest.goroutines, is: after.Goroutines},
		{name: "items that the keeper held when it told the worker last", was: b.before.Items, is: after.Items, withoutMost: true},
		{name: "RSS of the worker, MiB", was: b.before.WorkerRSS / 1024, is: after.WorkerRSS / 1024, withoutMost: true},
		{name: "RSS of the keeper, MiB", was: b.before.KeeperRSS / 1024, is: after.KeeperRSS / 1024, withoutMost: true},
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
