//go:build linux

// Failover fails a database over behind HAProxy, with the template of its documentation, and behind Penstock, with what convert
// makes of that, and shows how soon clients write again and which acknowledged rows are missing.
//
//	go run ./bench/trials/failover -rounds 5 -out result.txt
//	go run ./bench/trials/failover -cluster sentinel -events kill
//
// It needs root, and Debian's packages: haproxy, and those of the cluster. Both relays see the same failover.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/stat"
	"github.com/penstock/penstock/bench/internal/trial"
)

// patience bounds each wait for something that must happen.
const patience = 2 * time.Minute

// names are the relays.
var names = []string{"haproxy", "penstock"}

// settings are the flags.
type settings struct {
	trial.Run
	rounds  int
	events  string
	between time.Duration
}

func main() {
	var s settings
	var patroni patroni
	var sentinel sentinel
	clusters := map[string]kind{"patroni": &patroni, "sentinel": &sentinel, "galera": new(galera)}
	s.Flags(flag.CommandLine)
	name := flag.String("cluster", "patroni", "patroni: PostgreSQL, in packages postgresql, patroni and etcd-server; sentinel: Redis, in redis-server and redis-sentinel; galera: MariaDB, in mariadb-server, galera-4 and rsync")
	flag.IntVar(&s.rounds, "rounds", 3, "rounds, each with an event of every kind")
	flag.StringVar(&s.events, "events", "switchover,kill,freeze", "switchover: planned; kill: SIGKILL of the primary and what watches it; freeze: SIGSTOP of these until all write to another one")
	flag.DurationVar(&s.between, "between", 30*time.Second, "time between events, when the cluster is whole again; soon after each other, most members have gone down at once")
	patroni.flags(flag.CommandLine)
	sentinel.flags(flag.CommandLine)
	flag.Parse()
	trial.Main("failover", func() error {
		if clusters[*name] == nil {
			return fmt.Errorf("-cluster is patroni, sentinel or galera, not %q", *name)
		}
		return s.run(*name, clusters[*name])
	})
}

func (s *settings) run(name string, kind kind) error {
	end, err := s.Begin(1000)
	if err != nil {
		return err
	}
	defer end()
	fmt.Fprintf(s.Out, "cluster: %s\n", name)
	c := &cluster{kind: kind, settings: s, name: name, http: http.Client{Timeout: 2 * time.Second}}
	defer c.end()
	if err := c.begin(); err != nil {
		return err
	}
	r, err := startRelays(c)
	defer r.end()
	if err != nil {
		return err
	}
	var writers []*writer
	for _, relay := range names {
		for client, within := range kinds {
			w := &writer{relay: relay, client: client, addr: r.addr[relay], within: within, on: c.connect}
			w.begin()
			defer w.end()
			writers = append(writers, w)
		}
	}
	slices.SortFunc(writers, func(a, b *writer) int { return cmp.Compare(a.name(), b.name()) })
	results := map[string][]outcome{}
	for range s.rounds {
		for event := range strings.SplitSeq(s.events, ",") {
			time.Sleep(s.between)
			if err := s.round(event, c, writers, results); err != nil {
				return fmt.Errorf("%s: %w\n%s", event, err, r.penstock.LogTail(20))
			}
			if err := r.failed(); err != nil {
				return err
			}
		}
	}
	s.table(results)
	return nil
}

// round fails the cluster over once.
func (s *settings) round(event string, c *cluster, writers []*writer, results map[string][]outcome) error {
	old, err := c.whole()
	if err != nil {
		return err
	}
	for _, w := range writers {
		w.forget()
	}
	since := time.Now()
	if err := all(writers, func(w *writer) bool { return w.wrote(since, old.port, false) }, "writes before the event"); err != nil {
		return err
	}
	start := time.Now()
	ordered := make(chan error, 1)
	ordered <- nil
	switch event {
	case "kill":
		old.Kill()
	case "freeze":
		old.signal(syscall.SIGSTOP)
	case "switchover":
		<-ordered
		go func() { ordered <- c.switchover(c, old) }()
	default:
		return fmt.Errorf("there is no such event")
	}
	promoted, err := c.waitPromoted(old)
	if err != nil {
		return err
	}
	missing := all(writers, func(w *writer) bool { return w.wrote(start, old.port, true) }, "writes to the new primary")
	if err := cmp.Or(<-ordered, old.recover()); err != nil {
		return err
	}
	now, err := c.whole()
	if err != nil {
		return err
	}
	server, err := c.dial(now, time.Minute)
	if err != nil {
		return err
	}
	defer server.Close()
	for _, w := range writers {
		o, lost, err := w.outcome(start, promoted, old.port, server)
		if err != nil {
			return err
		}
		key := fmt.Sprintf("cluster=%s/event=%s/relay=%s/client=%s", c.name, event, w.relay, w.client)
		results[key] = append(results[key], o)
		fmt.Fprintf(s.Out, "BenchmarkFailover/%s\t1", key)
		for _, f := range figures {
			fmt.Fprintf(s.Out, "\t%.4g %s", f.of(o), f.unit)
		}
		fmt.Fprintf(s.Out, "\t%.4g promoted-after-s\n", promoted.Sub(start).Seconds())
		for _, row := range lost {
			fmt.Fprintf(s.Out, "# missing: %s\n", row)
		}
	}
	return missing
}

// figures are what is printed of an outcome.
var figures = []struct {
	unit string
	of   func(outcome) float64
}{
	{"resumed-s", func(o outcome) float64 { return o.Resumed }},
	{"gap-s", func(o outcome) float64 { return o.Gap }},
	{"after-promotion-s", func(o outcome) float64 { return o.Promoted }},
	{"lost", func(o outcome) float64 { return o.Lost }},
	{"read-only", func(o outcome) float64 { return o.ReadOnly }},
	{"stale", func(o outcome) float64 { return o.Stale }},
	{"failed", func(o outcome) float64 { return o.Failed }},
}

// table prints the medians; of rows that are lost or stale, the sums.
func (s *settings) table(results map[string][]outcome) {
	fmt.Fprintf(s.Out, "\n# medians of %d rounds; lost and stale: sums\n#%60s", s.rounds, "")
	for _, f := range figures {
		fmt.Fprintf(s.Out, " %17s", f.unit)
	}
	for _, key := range slices.Sorted(maps.Keys(results)) {
		fmt.Fprintf(s.Out, "\n# %-59s", key)
		for _, f := range figures {
			xs := stat.Of(results[key], f.of)
			x := stat.Median(xs)
			if f.unit == "lost" || f.unit == "stale" {
				x = 0
				for _, one := range xs {
					x += one
				}
			}
			fmt.Fprintf(s.Out, " %17.4g", x)
		}
	}
	fmt.Fprintln(s.Out)
}

// all waits until something holds of all writers.
func all(writers []*writer, holds func(*writer) bool, what string) error {
	return proc.Until(what, patience, 10*time.Millisecond, func() error {
		for _, w := range writers {
			if !holds(w) {
				return fmt.Errorf("%s does not", w.name())
			}
		}
		return nil
	})
}
