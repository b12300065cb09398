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
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
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
	flag.DurationVar(&s.shrink, "shrink", 10*time.Minute, "how long to look for fewer events with which a run still fails")
	flag.StringVar(&s.failures, "failures", ".", "the `folder` for files of runs that failed")
	flag.DurationVar(&world.Patience, "patience", 30*time.Second, "how long anything may take")
	flag.Parse()
	trial.Main("world", s.run)
}

func (s *settings) run() error {
	s.BuildEnv = trial.Released
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
	begun := time.Now()
	for i := 0; (s.runs == 0 || i < s.runs) && (i == 0 || time.Since(begun) < s.length); i++ {
		one, start := draw(s.seed+uint64(i), s.events, os.Geteuid() == 0), time.Now()
		err := s.one(one, s.Out)
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
	good, err := play(one, s.Penstock, dir, out)
	if err == nil && !good {
		err = fmt.Errorf("seed %d failed", one.Seed)
	}
	return err
}

// fewest leaves out events of a script that fails as long as it still does, and writes it to a file.
func (s *settings) fewest(one *script) error {
	end := time.Now().Add(s.shrink)
	for i := len(one.Events) - 1; i >= 0 && time.Now().Before(end); i-- {
		fewer := *one
		fewer.Events = slices.Delete(slices.Clone(one.Events), i, i+1)
		if s.one(&fewer, io.Discard) != nil {
			one = &fewer
			fmt.Fprintf(s.Out, "it fails with %d events, too\n", len(one.Events))
		}
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
