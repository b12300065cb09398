//go:build linux

package world

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/internal/admin"
)

// Watcher scrapes the daemon and sees to it that no counter decreases.
type Watcher struct {
	w    *World
	d    *Daemon
	done chan struct{}

	// churn says that members go and return. The daemon forgets the series of those that are gone, so that they
	// begin anew, and their flows are missing in the sums of a listener: records say whether each has ended.
	churn    bool
	changing map[string]bool // the same of single listeners and groups, by name

	mu      sync.Mutex
	most    map[string]float64
	told    map[string]bool // metrics of which a decrease was told
	last    admin.Metrics
	Scrapes int
	Failed  int
}

func Watch(w *World, d *Daemon, churn bool) *Watcher {
	t := &Watcher{w: w, d: d, churn: churn, changing: make(map[string]bool), done: make(chan struct{}), most: make(map[string]float64), told: make(map[string]bool)}
	for _, p := range w.Places {
		t.changing[p.Name] = p.Changing
	}
	go func() {
		defer close(t.done)
		for !w.stopping.Load() {
			t.scrape()
			w.Sleep(300 * ms)
		}
	}()
	return t
}

// scrape takes one scrape; while there is no worker it fails, which is counted.
func (t *Watcher) scrape() error {
	begun := time.Now()
	m, err := t.d.Metrics()
	if err == nil {
		t.w.Kills.answered(begun)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.Failed++
		return err
	}
	t.Scrapes++
	t.last = m
	for series, v := range t.last.Values {
		if !t.last.Grows[series] || admin.Label(series, "member") != "" && (t.churn || t.changing[admin.Label(series, "listener")] || t.changing[admin.Label(series, "group")]) {
			continue
		}
		if most, ok := t.most[series]; ok && v < most {
			t.w.Tally.Count(decreases, 1)
			if name, _, _ := strings.Cut(series, "{"); !t.told[name] {
				t.told[name] = true
				t.w.Tally.show("the counter %s was %v and is %v", series, most, v)
			}
		}
		t.most[series] = v
	}
	return nil
}

// Balance waits until the stream flows have ended for the daemon too, and compares what began with what
// has ended and is open, for each listener.
func (t *Watcher) Balance() error {
	<-t.done
	var m admin.Metrics
	streams := func(yield func(*Place, float64) bool) {
		open := m.Sum("penstock_flows_open", "listener")
		for _, p := range t.w.Places {
			if (p.Network == "tcp" || p.Network == "unix") && !yield(p, open[p.Name]) {
				return
			}
		}
	}
	for end := time.Now().Add(Patience); ; time.Sleep(100 * ms) {
		if err := t.scrape(); err != nil && time.Now().After(end) {
			return err
		}
		m = t.last
		left := 0.0
		for _, open := range streams {
			left += open
		}
		if left == 0 && m.Values != nil {
			break
		}
		if time.Now().After(end) {
			for p, open := range streams {
				if open != 0 {
					t.w.Tally.Fault(unbalanced, "listener %s: %v flows are open, though all have ended", p.Name, open)
				}
			}
			break
		}
	}
	begun := m.Sum("penstock_listener_flows_total", "listener")
	ended, open := m.Sum("penstock_flows_ended_total", "listener"), m.Sum("penstock_flows_open", "listener")
	dropped := m.Sum("penstock_datagrams_dropped_total", "reason")
	fmt.Fprint(t.w.Tally.Out, "\ndatagrams that the daemon has dropped:")
	for _, reason := range slices.Sorted(maps.Keys(dropped)) {
		if dropped[reason] > 0 {
			fmt.Fprintf(t.w.Tally.Out, " %s %.0f", reason, dropped[reason])
		}
	}
	fmt.Fprintf(t.w.Tally.Out, "\n\n%-10s %12s %12s %12s %12s\n", "listener", "clients", "begun", "ended", "open")
	for _, name := range slices.Sorted(maps.Keys(begun)) {
		clients := "-"
		if n, ok := t.w.openedAt(name); ok {
			clients = fmt.Sprint(n)
		}
		fmt.Fprintf(t.w.Tally.Out, "%-10s %12s %12.0f %12.0f %12.0f\n", name, clients, begun[name], ended[name], open[name])
		if begun[name] != ended[name]+open[name] && !t.churn && !t.changing[name] {
			t.w.Tally.Fault(unbalanced, "listener %s: %v flows began, but %v have ended and %v are open", name, begun[name], ended[name], open[name])
		}
	}
	return nil
}
