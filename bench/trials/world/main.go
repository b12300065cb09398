//go:build linux

// World draws configurations and what happens to a daemon, and holds the daemon against a model of what must be true: whoever may
// be served is served, at the members that there are and at no others, open flows go on with every byte, counters never fall, and
// what the daemon says of itself is so.
//
//	go run ./bench/trials/world -for 30m                     # one seed after the other, until one fails
//	go run ./bench/trials/world -seed 7 -runs 1              # that one
//	go run ./bench/trials/world -repeat world-7.json         # what a run that failed has left
//
// A run that fails is played again with fewer events, as long as it still fails, and written to a file.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/bench/internal/world"
)

// settings are the flags.
type settings struct {
	trial.Run
	seed     uint64
	runs     int
	length   time.Duration
	events   int
	repeat   string
	later    string
	without  string
	shrink   time.Duration
	failures string
}

func main() {
	var s settings
	s.Flags(flag.CommandLine)
	flag.Uint64Var(&s.seed, "seed", rand.Uint64()>>1, "the first seed; the next ones follow it")
	flag.IntVar(&s.runs, "runs", 0, "how many seeds; 0: as many as there is time for")
	flag.DurationVar(&s.length, "for", 10*time.Minute, "how long to go on to another seed")
	flag.IntVar(&s.events, "events", 8, "events of a run")
	flag.StringVar(&s.repeat, "repeat", "", "play this `file` instead")
	flag.StringVar(&s.without, "without", "", "events, kinds of listeners and kinds of clients that are left out, with commas in between: what they find is known; load, probed and fleet leave out the runs that have it, or them")
	flag.StringVar(&s.later, "later", "", "the daemon that upgrades lead to, and back from; default: a copy of the first one. One whose counters lie otherwise finds more")
	flag.DurationVar(&s.shrink, "shrink", 10*time.Minute, "how long to look for fewer events with which a run still fails")
	flag.StringVar(&s.failures, "failures", ".", "the `folder` for files of runs that failed")
	flag.DurationVar(&world.Patience, "patience", 30*time.Second, "how long anything may take")
	flag.Parse()
	trial.Main("world", s.run)
}

func (s *settings) run() error {
	end, err := s.Begin(100_000)
	if err != nil {
		return err
	}
	defer end()
	if s.repeat != "" {
		text, err := os.ReadFile(s.repeat)
		if err != nil {
			return err
		}
		one := &script{}
		if err := json.Unmarshal(text, one); err != nil {
			return fmt.Errorf("%s: %w", s.repeat, err)
		}
		return s.one(one, s.Out)
	}
	if err := os.MkdirAll(s.failures, 0o755); err != nil { // now, and not when there is something to write
		return err
	}
	begun := time.Now()
	for i := 0; (s.runs == 0 || i < s.runs) && (i == 0 || time.Since(begun) < s.length); i++ {
		one, start := draw(s.seed+uint64(i), s.events, os.Geteuid() == 0), time.Now()
		if s.without != "" && !one.leaveOut(strings.Split(s.without, ",")) {
			continue
		}
		err := s.one(one, s.Out)
		if errors.Is(err, errNotPlayed) {
			return err
		}
		fmt.Fprintf(s.Out, "seed %d: %d events, %.0f s, good: %v\n", one.Seed, len(one.Events), time.Since(start).Seconds(), err == nil)
		if err != nil {
			return s.fewest(one)
		}
	}
	return nil
}

// one plays a script in a folder of its own.
func (s *settings) one(one *script, out io.Writer) error {
	dir, err := os.MkdirTemp(s.Dir, "run-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(s.Dir, 0o755); err != nil { // the daemon may become another user
		return err
	}
	good, err := play(one, s.Penstock, s.later, dir, out)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errNotPlayed, err)
	case !good:
		return fmt.Errorf("seed %d failed", one.Seed)
	}
	return nil
}

// errNotPlayed is the error of a run that says nothing of the daemon.
var errNotPlayed = errors.New("the run could not be made")

// fewest leaves out events and listeners of a script that fails, and what its configuration need not have, as long as it still does, and writes
// it to a file.
func (s *settings) fewest(one *script) error {
	end := time.Now().Add(s.shrink)
	try := func(what string, change func(*script) bool) {
		fewer := *one
		fewer.Config = *one.Config.clone()
		fewer.Events = slices.Clone(one.Events)
		if time.Now().Before(end) && change(&fewer) {
			if err := s.one(&fewer, io.Discard); err == nil || errors.Is(err, errNotPlayed) {
				return
			}
			one = &fewer
			fmt.Fprintf(s.Out, "it fails %s, too\n", what)
		}
	}
	for i := len(one.Events) - 1; i >= 0; i-- {
		try(fmt.Sprintf("with %d events", len(one.Events)-1), func(s *script) bool {
			s.Events = slices.Delete(s.Events, i, i+1)
			return true
		})
	}
	for i := len(one.Config.Probed) - 1; i >= 0; i-- {
		try(fmt.Sprintf("with %d listeners", len(one.Config.Probed)-1), func(s *script) bool {
			s.Config.Probed = slices.Delete(s.Config.Probed, i, i+1)
			return len(s.Config.Probed) > 0 // without any it would be a run with load
		})
	}
	if one.Config.Fleet == nil {
		fewestKeys(try)
	}
	text, err := json.MarshalIndent(one, "", "  ")
	if err != nil {
		return err
	}
	file := fmt.Sprintf("%s/world-%d.json", s.failures, one.Seed)
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return fmt.Errorf("seed %d failed; it is written to %s, and -repeat plays it:\n%s", one.Seed, file, text)
}

// fewestKeys leaves out what the configuration of one daemon need not have.
func fewestKeys(try func(string, func(*script) bool)) {
	try("as the user that it is", func(s *script) bool { is := s.Config.User != ""; s.Config.User = ""; return is })
	try("with one loop", func(s *script) bool { is := s.Config.Loops != 1; s.Config.Loops = 1; return is })
	try("without a sandbox", func(s *script) bool { is := s.Config.Sandbox != "off"; s.Config.Sandbox = "off"; return is })
}
