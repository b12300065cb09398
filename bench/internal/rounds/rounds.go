//go:build linux

// Package rounds has what the programs share that measure relays under loads, in interleaved rounds: where a measurement runs and
// for how long, the children that make the load, the figures that are taken from its results, and their lines and tables.
package rounds

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/report"
)

// Settings are those of a run.
type Settings struct {
	Rounds int
	Tries  int // how often a disturbed measurement is tried
	Warm   time.Duration
	Window time.Duration
	Place  proc.Place

	Files int       // how many files a process may have open
	Dir   string    // for the relays' files
	Self  string    // this program
	Out   io.Writer // the standard output, and the file that a flag names, unless set before Begin

	outFile string
}

// Flags defines the flags of the settings, whose values are the defaults; what is measured in a round is named.
func (s *Settings) Flags(fs *flag.FlagSet, what string) {
	fs.IntVar(&s.Rounds, "rounds", s.Rounds, "rounds of each "+what+"; each runs every relay once")
	fs.IntVar(&s.Tries, "tries", 4, "maximum number of measurements while something else runs on the relay's CPUs; the least disturbed one is used")
	fs.DurationVar(&s.Warm, "warm", s.Warm, "load before the window")
	fs.DurationVar(&s.Window, "window", s.Window, "length of the measurement")
	fs.BoolVar(&s.Place.Host, "host", os.Geteuid() != 0, "measure in the machine's network namespace instead of a fresh one for each measurement (which requires root)")
	fs.StringVar(&s.Place.CPUs, "cpus", s.Place.CPUs, "bind relay, generator and sink to these CPUs, such as 0 (empty: all)")
	fs.StringVar(&s.outFile, "out", "", "also write everything to this `FILE`")
}

// Begin makes the folder and opens the output. The caller must call end.
func (s *Settings) Begin() (end func(), err error) {
	if s.Files, err = proc.RaiseFiles(1 << 17); err != nil {
		return nil, err
	}
	if s.Self, err = os.Executable(); err != nil {
		return nil, err
	}
	if s.Dir, err = os.MkdirTemp("", "penstock-bench-"); err != nil {
		return nil, err
	}
	if s.Out != nil {
		return func() { os.RemoveAll(s.Dir) }, nil
	}
	out, done, err := report.Output(s.outFile)
	if err != nil {
		os.RemoveAll(s.Dir)
		return nil, err
	}
	s.Out = out
	return func() { done(); os.RemoveAll(s.Dir) }, nil
}

// Generate runs the generator, the child at the near end, and returns its result.
func (s *Settings) Generate(args any) (r load.Result, err error) {
	cmd, err := child.Command("generate", args)
	if err == nil {
		err = child.Run(cmd, s.Warm+s.Window+2*time.Minute, &r)
	}
	if err != nil {
		err = fmt.Errorf("generator: %w", err)
	}
	return r, err
}

// MostOthers is the share of a window, in per cent, that others may take before a measurement is repeated. The
// share is 3 to 5% when nothing else runs.
const MostOthers = 10

// Disturbed reports whether others took more.
func Disturbed(r load.Result) bool { return Others.Of(r) > MostOthers }

// Undisturbed calls once, and again if something else ran on the relay's CPUs; if all tries were
// disturbed, it returns the least disturbed one.
func (s *Settings) Undisturbed(once func() (load.Result, error)) (best load.Result, err error) {
	for try := range s.Tries {
		r, err := once()
		if err != nil {
			return r, err
		}
		if try == 0 || Others.Of(r) < Others.Of(best) {
			best = r
		}
		if !Disturbed(best) {
			break
		}
	}
	return best, nil
}
