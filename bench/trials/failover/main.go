//go:build linux

// Patroni fails a PostgreSQL over behind HAProxy, with the template of Patroni's documentation, and behind Penstock, with what
// convert makes of that, and shows how soon clients write again and which acknowledged rows are missing.
//
//	go run ./bench/trials/failover -rounds 5 -out result.txt
//	go run ./bench/trials/failover -events kill -synchronous
//
// It needs root, and Debian's packages patroni, etcd-server, postgresql and haproxy. Both relays see the same fail-over.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
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
	rounds       int
	events       string
	between      time.Duration
	ttl          int
	loopWait     int
	retryTimeout int
	synchronous  bool
	protocol     string
	bin          string
}

func main() {
	var s settings
	s.Flags(flag.CommandLine)
	flag.IntVar(&s.rounds, "rounds", 3, "rounds, each with an event of every kind")
	flag.StringVar(&s.events, "events", "switchover,kill,freeze", "switchover: planned; kill: SIGKILL of the primary's Patroni and PostgreSQL; freeze: SIGSTOP of these until another is primary")
	flag.DurationVar(&s.between, "between", 30*time.Second, "time between events, when the cluster is whole again; soon after each other, most members have gone down at once")
	flag.IntVar(&s.ttl, "ttl", 30, "seconds until a primary that says nothing has lost its place; Patroni's default, and 20 is its least")
	flag.IntVar(&s.loopWait, "loop-wait", 10, "seconds between two looks of Patroni; its default")
	flag.IntVar(&s.retryTimeout, "retry-timeout", 10, "seconds that Patroni tries etcd and PostgreSQL again; its default")
	flag.BoolVar(&s.synchronous, "synchronous", false, "a row is acknowledged when a standby has it")
	flag.StringVar(&s.protocol, "protocol", "etcd", "how Patroni speaks with etcd: etcd or etcd3; with etcd3, a primary of Patroni 3.0.2 that was stopped takes its place back, and rows are lost")
	flag.StringVar(&s.bin, "postgres", "", "the folder of PostgreSQL's programs; the newest of Debian's packages unless given")
	flag.Parse()
	trial.Main("failover", s.run)
}

func (s *settings) run() error {
	if s.bin == "" {
		all, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is good
		if len(all) == 0 {
			return fmt.Errorf("no PostgreSQL: install Debian's package postgresql, or give -postgres")
		}
		s.bin = all[len(all)-1]
	}
	end, err := s.Begin(1000)
	if err != nil {
		return err
	}
	defer end()
	fmt.Fprintf(s.Out, "ttl: %d s\nloop_wait: %d s\nsynchronous: %v\nprotocol: %s\n\n", s.ttl, s.loopWait, s.synchronous, s.protocol)
	c, err := startCluster(s)
	defer c.end()
	if err != nil {
		return err
	}
	primary, err := c.whole()
	if err != nil {
		return err
	}
	db, err := dial("127.0.0.1:"+primary.postgres, time.Minute)
	if err != nil {
		return err
	}
	_, err = db.query("CREATE TABLE rows (writer text, row int, PRIMARY KEY (writer, row))")
	db.Close()
	if err != nil {
		return err
	}
	r, err := startRelays(s, c)
	defer r.end()
	if err != nil {
		return err
	}
	var writers []*writer
	for _, relay := range names {
		for kind, within := range kinds {
			w := &writer{relay: relay, client: kind, addr: r.addr[relay], within: within}
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
	if err := all(writers, func(w *writer) bool { return w.wrote(since, old.postgres, false) }, "writes before the event"); err != nil {
		return err
	}
	start := time.Now()
	var ordered chan error
	switch event {
	case "kill":
		old.Kill()
	case "freeze":
		old.signal(syscall.SIGSTOP)
	case "switchover":
		to := c.members[(slices.Index(c.members, old)+1)%len(c.members)]
		ordered = make(chan error, 1)
		go func() { ordered <- c.switchover(old, to) }()
	default:
		return fmt.Errorf("there is no such event")
	}
	_, promoted, err := c.promoted(old)
	if err != nil {
		return err
	}
	missing := all(writers, func(w *writer) bool { return w.wrote(start, old.postgres, true) }, "writes to the new primary")
	switch event {
	case "kill":
		err = old.Begin()
	case "freeze":
		old.signal(syscall.SIGCONT)
	case "switchover":
		err = <-ordered
	}
	if err != nil {
		return err
	}
	now, err := c.whole()
	if err != nil {
		return err
	}
	db, err := dial("127.0.0.1:"+now.postgres, time.Minute)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, w := range writers {
		o, err := w.outcome(start, promoted, old.postgres, db)
		if err != nil {
			return err
		}
		key := fmt.Sprintf("event=%s/relay=%s/client=%s", event, w.relay, w.client)
		results[key] = append(results[key], o)
		fmt.Fprintf(s.Out, "BenchmarkPatroni/%s\t1", key)
		for _, f := range figures {
			fmt.Fprintf(s.Out, "\t%.4g %s", f.of(o), f.unit)
		}
		fmt.Fprintf(s.Out, "\t%.4g promoted-after-s\n", promoted.Sub(start).Seconds())
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
	fmt.Fprintf(s.Out, "\n# medians of %d rounds; lost and stale: sums\n#%44s", s.rounds, "")
	for _, f := range figures {
		fmt.Fprintf(s.Out, " %17s", f.unit)
	}
	for _, key := range slices.Sorted(maps.Keys(results)) {
		fmt.Fprintf(s.Out, "\n# %-43s", key)
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
