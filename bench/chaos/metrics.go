//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// metrics is one scrape: values by series, and which of them may only grow.
type metrics struct {
	values map[string]float64
	grows  map[string]bool
}

// parseMetrics reads the text format of Prometheus.
func parseMetrics(text []byte) metrics {
	m := metrics{values: make(map[string]float64), grows: make(map[string]bool)}
	kinds := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if f := strings.Fields(line); len(f) == 4 && f[0] == "#" && f[1] == "TYPE" {
			kinds[f[2]] = f[3]
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || i < 0 {
			continue
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			continue
		}
		series := line[:i]
		name, _, _ := strings.Cut(series, "{")
		m.values[series] = v
		family := name
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && kinds[base] == "histogram" {
				family = base
			}
		}
		m.grows[series] = strings.HasPrefix(name, "penstock_") && (kinds[family] == "counter" || kinds[family] == "histogram")
	}
	return m
}

// label returns the value of a label of a series.
func label(series, name string) string {
	_, rest, ok := strings.Cut(series, name+`="`)
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// sum adds up the series of a metric, by one of its labels.
func (m metrics) sum(metric, by string) map[string]float64 {
	sums := make(map[string]float64)
	for series, v := range m.values {
		if name, _, _ := strings.Cut(series, "{"); name == metric {
			sums[label(series, by)] += v
		}
	}
	return sums
}

// watcher scrapes the daemon and sees to it that no counter decreases.
type watcher struct {
	w    *world
	d    *daemon
	done chan struct{}

	// churn says that members go and return. The daemon forgets the series of those that are gone, so that they
	// begin anew, and their flows are missing in the sums of a listener: records say whether each has ended.
	churn    bool
	changing map[string]bool // the same of single listeners and groups, by name

	mu      sync.Mutex
	most    map[string]float64
	told    map[string]bool // metrics of which a decrease was told
	last    metrics
	scrapes int
	failed  int
}

func watch(w *world, d *daemon, churn bool) *watcher {
	t := &watcher{w: w, d: d, churn: churn, changing: make(map[string]bool), done: make(chan struct{}), most: make(map[string]float64), told: make(map[string]bool)}
	for _, p := range w.places {
		t.changing[p.name] = p.changing
	}
	go func() {
		defer close(t.done)
		for !w.stopping.Load() {
			t.scrape()
			w.sleep(300 * ms)
		}
	}()
	return t
}

// scrape takes one scrape; while there is no worker it fails, which is counted.
func (t *watcher) scrape() error {
	text, err := t.d.get("/metrics")
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failed++
		return err
	}
	t.scrapes++
	t.last = parseMetrics(text)
	for series, v := range t.last.values {
		if !t.last.grows[series] || label(series, "member") != "" && (t.churn || t.changing[label(series, "listener")] || t.changing[label(series, "group")]) {
			continue
		}
		if most, ok := t.most[series]; ok && v < most {
			t.w.tally.count(decreases, 1)
			if name, _, _ := strings.Cut(series, "{"); !t.told[name] {
				t.told[name] = true
				t.w.tally.fault("the counter %s was %v and is %v", series, most, v)
			}
		}
		t.most[series] = v
	}
	return nil
}

// balance waits until the stream flows have ended for the daemon too, and compares what began with what
// has ended and is open, for each listener.
func (t *watcher) balance() error {
	<-t.done
	var m metrics
	streams := func(yield func(*place, float64) bool) {
		open := m.sum("penstock_flows_open", "listener")
		for _, p := range t.w.places {
			if (p.network == "tcp" || p.network == "unix") && !yield(p, open[p.name]) {
				return
			}
		}
	}
	for end := time.Now().Add(patience); ; time.Sleep(100 * ms) {
		if err := t.scrape(); err != nil && time.Now().After(end) {
			return err
		}
		m = t.last
		left := 0.0
		for _, open := range streams {
			left += open
		}
		if left == 0 && m.values != nil {
			break
		}
		if time.Now().After(end) {
			for p, open := range streams {
				if open != 0 {
					t.w.tally.count(unbalanced, 1)
					t.w.tally.fault("listener %s: %v flows are open, though all have ended", p.name, open)
				}
			}
			break
		}
	}
	begun := m.sum("penstock_listener_flows_total", "listener")
	ended, open := m.sum("penstock_flows_ended_total", "listener"), m.sum("penstock_flows_open", "listener")
	fmt.Fprintf(t.w.tally.out, "\n%-10s %12s %12s %12s %12s\n", "listener", "clients", "begun", "ended", "open")
	for _, name := range slices.Sorted(maps.Keys(begun)) {
		clients := "-"
		if n, ok := t.w.openedAt(name); ok {
			clients = fmt.Sprint(n)
		}
		fmt.Fprintf(t.w.tally.out, "%-10s %12s %12.0f %12.0f %12.0f\n", name, clients, begun[name], ended[name], open[name])
		if begun[name] != ended[name]+open[name] && !t.churn && !t.changing[name] {
			t.w.tally.count(unbalanced, 1)
			t.w.tally.fault("listener %s: %v flows began, but %v have ended and %v are open", name, begun[name], ended[name], open[name])
		}
	}
	return nil
}
