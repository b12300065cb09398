//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/rounds"
	"github.com/penstock/penstock/internal/testport"
)

type namedLoad struct {
	text string
	base string // the only relay, by name, that newName is compared with under this load; "": all of them
	load.Spec
}

// setup returns what a relay must know about the load.
func (l namedLoad) setup() peer.Setup {
	s := peer.Setup{UDP: l.UDP()}
	if l.Kind == load.UDPConnect {
		s.Replies = 1
	}
	return s
}

// subject is a relay with a number of loops: a row of each table.
type subject struct {
	peer.Peer
	loops int
}

// suits reports whether a subject is measured under a load: nginx-rcvbuf only differs from nginx
// for datagrams, and each load may have a commit of its own that it is compared with.
func (l namedLoad) suits(s subject) bool {
	if l.base != "" {
		return s.Name == newName || s.Name == l.base
	}
	if l.UDP() {
		return s.UDP
	}
	return s.Name != "nginx-rcvbuf"
}

// bench is one run of the whole program.
type bench struct {
	rounds.Settings
	loads   []namedLoad
	peers   []peer.Peer // the first is compared with the others
	loops   []int
	verify  bool
	profile string // folder for profiles of the relays; "" means none

	// report is called with the results of each load, a slice for each of subjects().
	report func(l namedLoad, results [][]load.Result)
}

// subjects returns the installed peers, with each number of loops.
func (b *bench) subjects() (all []subject) {
	for _, loops := range b.loops {
		for _, p := range b.peers {
			if p.Installed() {
				all = append(all, subject{p, loops})
			}
		}
	}
	return all
}

// run measures load by load. If a relay fails, the output has its error, the others go on, and the
// run as a whole fails.
func (b *bench) run() error {
	if err := b.header(); err != nil {
		return err
	}
	var failed error
	subjects := b.subjects()
	progress := b.begin(subjects)
	for _, l := range b.loads {
		fmt.Fprintf(b.Out, "\n# load %s: %s\n", l.text, describe(l.Spec))
		results := make([][]load.Result, len(subjects))
		for round := range b.Rounds {
			// Each round begins with a different relay, so that none always follows the same
			// neighbour.
			for i := range subjects {
				i = (i + round) % len(subjects)
				s := subjects[i]
				if !l.suits(s) {
					continue
				}
				if b.verify && l.Kind == load.Bulk && round == 0 {
					if _, err := b.once(l, s, true); err != nil {
						failed = errors.Join(failed, fmt.Errorf("%s, verifying %s: %w", s.Name, l.text, err))
					}
				}
				r, err := b.Undisturbed(func() (load.Result, error) { return b.once(l, s, false) })
				progress()
				if err != nil {
					fmt.Fprintf(b.Out, "# FAILED: %s, round %d: %v\n", s.Name, round+1, err)
					failed = errors.Join(failed, fmt.Errorf("%s under %s: %w", s.Name, l.text, err))
					continue
				}
				results[i] = append(results[i], r)
				b.line(l, s, r)
			}
		}
		b.report(l, results)
	}
	return failed
}

// begin prints on standard error how long the run will take, and returns a function to call after
// each measurement.
func (b *bench) begin(subjects []subject) (progress func()) {
	all, done, start := 0, 0, time.Now()
	for _, l := range b.loads {
		for _, s := range subjects {
			if l.suits(s) {
				all += b.Rounds
			}
		}
	}
	const overhead = 400 * time.Millisecond // to start and stop three processes
	fmt.Fprintf(os.Stderr, "relay: %d measurements, about %v\n", all, (time.Duration(all) * (b.Warm + b.Window + overhead)).Round(time.Second))
	return func() {
		done++
		if done%20 == 0 || done == all {
			took := time.Since(start)
			left := took / time.Duration(done) * time.Duration(all-done)
			fmt.Fprintf(os.Stderr, "relay: %d of %d after %v, about %v left\n", done, all, took.Round(time.Second), left.Round(time.Second))
		}
	}
}

// once runs one load through one relay, with fresh processes.
func (b *bench) once(l namedLoad, s subject, verify bool) (r load.Result, err error) {
	if n := s.Fit(l.Conns, b.Files); n < l.Conns && (l.Kind == load.Idle || l.Kind == load.Settle || l.Kind == load.PingPong) {
		l.Conns = n
		l.text = l.Spec.String()
	}
	err = b.Place.Run(func(h *proc.Hosts) error {
		var upstream string
		var sink *child.Child
		err := h.OnUpstream(func() (err error) {
			sink, upstream, err = child.Begin("sink", sinkArgs{l.Spec, h.Upstream, verify})
			return err
		})
		if err != nil {
			return fmt.Errorf("start the sink: %w", err)
		}
		defer sink.Kill()
		port, release, err := testport.Reserve()
		if err != nil {
			return err
		}
		defer release()
		listen := h.Relay + ":" + port
		setup := l.setup()
		setup.Listen, setup.Upstream, setup.Loops, setup.Files, setup.Dir = listen, upstream, s.loops, b.Files, b.Dir
		relay, err := peer.Start(s.Peer, setup)
		if err != nil {
			return err
		}
		var profiled *profile
		if b.profile != "" && !verify {
			if profiled, err = b.startProfile(l, s, relay.PID); err != nil {
				relay.Stop()
				return err
			}
		}
		unwatch := watched(s.Peer, setup)
		g := generateArgs{Spec: l.Spec, Config: load.Config{Addr: listen, Relay: relay.PID, Sink: sink.PID, CPUs: b.Place.CPUs, Warm: b.Warm, Window: b.Window, Verify: verify}}
		if s.Admin != nil {
			g.Admin = s.Admin(setup)
		}
		err = h.OnClient(func() (err error) {
			r, err = b.Generate(g)
			return err
		})
		err = errors.Join(err, unwatch())
		if profiled != nil {
			err = errors.Join(err, profiled.end(r))
		}
		printed := relay.Stop()
		if err != nil && printed != "" {
			err = fmt.Errorf("%w\nthe relay printed: %s", err, printed)
		}
		return err
	})
	return r, err
}

// watched runs the peer's observers until unwatch is called, which returns their error.
func watched(p peer.Peer, s peer.Setup) (unwatch func() error) {
	if p.Watch == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Watch(ctx, s) }()
	return func() error {
		cancel()
		return <-done
	}
}
