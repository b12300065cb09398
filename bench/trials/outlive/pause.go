//go:build linux

package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	loads "github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/stat"
	"github.com/penstock/penstock/bench/internal/trial"
)

// pauseBench is what was asked for on the command line of outlive pause. A child gets the same, as
// JSON.
type pauseBench struct {
	bench
	Conns, Active int
	Around        time.Duration
	CPUs          string
	Loops         int

	rounds int
	host   bool
	events []string
}

// A span is the median, the 99th percentile and the longest of some pauses, in ms.
type span [3]float64

func spanOf(p loads.Pauses) span {
	return span{stat.Millis(p.At(0.5)), stat.Millis(p.At(0.99)), stat.Millis(p.At(1))}
}

// pauseResult is one round.
type pauseResult struct {
	Settled            int64
	Cut                int
	First, Gap, Before span
	Took               float64 // ms
	Errors             []string
}

type pauseFigure struct {
	unit string
	of   func(r pauseResult) float64
}

// figuresOf returns the figures of an event. Before an upgrade stops the old worker, bytes move, so
// that its begin says nothing about the first one after it.
func figuresOf(event string) []pauseFigure {
	return slices.DeleteFunc(slices.Clone(pauseFigures), func(f pauseFigure) bool {
		return event == "upgrade" && strings.HasPrefix(f.unit, "first-byte")
	})
}

// pauseFigures are the figures of a round.
var pauseFigures = slices.Concat(
	[]pauseFigure{
		{"settled", func(r pauseResult) float64 { return float64(r.Settled) }},
		{"cut", func(r pauseResult) float64 { return float64(r.Cut) }},
	},
	spanFigures("first-byte", func(r pauseResult) span { return r.First }),
	spanFigures("gap", func(r pauseResult) span { return r.Gap }),
	spanFigures("gap-before", func(r pauseResult) span { return r.Before }),
	[]pauseFigure{{"event-ms", func(r pauseResult) float64 { return r.Took }}},
)

// spanFigures are those of a span.
func spanFigures(name string, of func(pauseResult) span) (all []pauseFigure) {
	for i, part := range []string{"p50", "p99", "max"} {
		all = append(all, pauseFigure{name + "-" + part + "-ms", func(r pauseResult) float64 { return of(r)[i] }})
	}
	return all
}

// pauseCommand is outlive pause.
func pauseCommand(args []string) error {
	p := &pauseBench{}
	fs := flag.NewFlagSet("outlive pause", flag.ExitOnError)
	fs.IntVar(&p.rounds, "rounds", 20, "rounds of each event")
	events := fs.String("events", "crash,upgrade", "what happens")
	fs.BoolVar(&p.host, "host", os.Geteuid() != 0, "do not make network namespaces, for which root is needed")
	p.Flags(fs)
	fs.IntVar(&p.Conns, "conns", 4500, "TCP connections, each with two sockets of the relay")
	fs.IntVar(&p.Active, "active", 450, "of these, those that send a message and wait for its echo all the time")
	fs.DurationVar(&p.Around, "around", time.Second, "load before the event, and after it")
	fs.StringVar(&p.CPUs, "cpus", "", "bind relay and load to these CPUs, such as 0 (empty: all)")
	fs.IntVar(&p.Loops, "loops", 0, "loops of the relay; 0: as many as it likes")
	fs.Parse(args)
	if fs.NArg() > 0 || p.Active < 1 || p.Active > p.Conns || p.rounds < 1 {
		return fmt.Errorf("pause: want no argument but flags, and 1 to %d active connections", p.Conns)
	}
	p.events = strings.Split(*events, ",")
	end, err := p.Begin(20_000)
	if err != nil {
		return err
	}
	defer end()
	return p.run()
}

// run runs all rounds and prints a line for each, and the medians.
func (p *pauseBench) run() error {
	out := p.Out
	fmt.Fprintf(out, "rounds: %d\nconnections: %d\nactive: %d\naround: %v\nfresh-network-namespace: %v\ncpus: %s\n", p.rounds, p.Conns, p.Active, p.Around, !p.host, cmp.Or(p.CPUs, "all"))
	results := map[string][]pauseResult{}
	for range p.rounds {
		for _, event := range p.events {
			if event != "crash" && event != "upgrade" {
				return fmt.Errorf("event %q: allowed: crash, upgrade", event)
			}
			r, err := p.round(event)
			if err != nil {
				return fmt.Errorf("%s: %w", event, err)
			}
			results[event] = append(results[event], r)
			fmt.Fprintf(out, "BenchmarkPause/event=%s/conns=%d/active=%d\t1", event, p.Conns, p.Active)
			for _, f := range figuresOf(event) {
				fmt.Fprintf(out, "\t%.4g %s", f.of(r), f.unit)
			}
			fmt.Fprintln(out)
			for _, text := range r.Errors {
				fmt.Fprintf(out, "# cut: %s\n", text)
			}
		}
	}
	fmt.Fprintf(out, "#\n# medians of the rounds, and the lowest and the highest\n#\n# | event | figure | median | lowest | highest |\n# |---|---|---|---|---|\n")
	for _, event := range p.events {
		for _, f := range figuresOf(event) {
			all := stat.Of(results[event], f.of)
			fmt.Fprintf(out, "# | %s | %s | %.4g | %.4g | %.4g |\n", event, f.unit, stat.Median(all), slices.Min(all), slices.Max(all))
		}
	}
	return nil
}

// round runs one round in a child.
func (p *pauseBench) round(event string) (r pauseResult, err error) {
	one := *p
	one.Event = event
	err = trial.Round("pause-round", one, proc.Place{CPUs: p.CPUs, Host: p.host}, &r)
	return r, err
}

// runPauseRound runs one round.
func runPauseRound(p *pauseBench) (res pauseResult, err error) {
	files, err := adopt(20000)
	if err != nil {
		return res, err
	}
	if need := 2*p.Conns + 100; need > files {
		return res, fmt.Errorf("%d connections need %d files of a process, %d are allowed", p.Conns, need, files)
	}
	return p.measure()
}

func (p *pauseBench) measure() (res pauseResult, err error) {
	// The upstream is in this process. More than one connection: one thread serves all.
	sink, err := loads.NewSink(loads.Spec{Kind: loads.PingPong, Size: 64, Conns: 2}, "127.0.0.1", false)
	if err != nil {
		return res, err
	}
	go sink.Serve()
	r, err := find(relays, "penstock")
	if err != nil {
		return res, err
	}
	// An upgrade is over when the new worker is healthy. The pause is long over then, and in ten
	// seconds, as by default, a busy machine has longer ones by itself.
	s := setup{bench: &p.bench, upstream: sink.Addr, upstreamUDP: sink.Addr, keeper: "{healthy-after: 1s}"}
	if p.Loops > 0 {
		s.engine = fmt.Sprintf("loops: %d", p.Loops)
	}
	v, err := r.begin(&s)
	if err != nil {
		return res, err
	}
	defer func() { err = v.end(err) }()
	admin := filepath.Join(s.dir, "admin.sock")
	cfg := loads.PauseConfig{
		Addr: s.listen, Conns: p.Conns, Active: p.Active, Around: p.Around,
		Settled: func() (int64, error) { return peer.Settled(admin) },
		Event:   func() (<-chan error, error) { return nil, v.crashed() },
	}
	if p.Event == "upgrade" {
		cfg.Event = func() (<-chan error, error) {
			over := make(chan error, 1)
			go func() { over <- r.upgrade(s, v.First()) }()
			return over, nil
		}
	}
	got, err := loads.Pause(cfg)
	if err != nil {
		return res, err
	}
	return pauseResult{
		Settled: got.Settled, Cut: got.Cut, Errors: got.Errors, Took: stat.Millis(got.Took),
		First: spanOf(got.First), Gap: spanOf(got.Gap), Before: spanOf(got.Before),
	}, nil
}

// crashed kills the worker and returns when it has ended: then it moves no byte any more.
func (v *service) crashed() error {
	workers := proc.Tree(v.First())[1:]
	if len(workers) == 0 {
		return fmt.Errorf("%s has no worker", v.r.name)
	}
	var ends []int
	for _, pid := range workers {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return fmt.Errorf("pidfd_open: %w", err)
		}
		defer unix.Close(fd)
		ends = append(ends, fd)
	}
	for _, pid := range workers {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill: %w", err)
		}
	}
	for _, fd := range ends {
		if err := proc.WaitDead(fd, patience); err != nil {
			return err
		}
	}
	return nil
}
