//go:build linux

// Package trial is what the programs that try relays share (those in bench/trials, of which outlive and flood measure besides):
// flags, a folder and an output, one way to start a daemon, and one way to run a round in a process of its own.
package trial

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/report"
	"github.com/penstock/penstock/internal/testport"
)

// Patience bounds each wait for something that must happen.
const Patience = 30 * time.Second

// folder is what Run.Begin has made, of which nothing is left when the program is interrupted.
var folder atomic.Pointer[string]

// Main is the main function of a program: it runs it, tells its error, and ends whatever is still running of what it started, also
// when it is interrupted.
func Main(name string, run func() error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		proc.EndAll()
		if dir := folder.Load(); dir != nil {
			os.RemoveAll(*dir)
		}
		os.Exit(130)
	}()
	err := run()
	proc.EndAll()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Build builds the daemon of this checkout as releases are, without cgo: with it, it cannot have the parts of its sandbox that Landlock
// enforces. The race detector needs cgo.
func Build(to string, flags ...string) error {
	env := []string{"CGO_ENABLED=0"}
	if slices.Contains(flags, "-race") {
		env = nil
	}
	return peer.Build("", to, env, append([]string{"-buildvcs=false"}, flags...)...)
}

// Penstock returns the path of the daemon to try: the given one, or one that it builds in a folder.
func Penstock(given, dir string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	path := filepath.Join(dir, "penstock")
	return path, Build(path)
}

// A Run is what the programs have in common: the daemon to try, a folder, and an output.
type Run struct {
	Penstock string    // the daemon: see Flags
	Files    int       `json:"-"` // that a process may have open
	Dir      string    `json:"-"`
	Out      io.Writer `json:"-"` // the standard output, and the file that a flag names, unless set before Begin

	file string
}

// Flags defines the flags of a run.
func (r *Run) Flags(fs *flag.FlagSet) {
	fs.StringVar(&r.Penstock, "penstock", "", "the daemon; built from this checkout unless given")
	fs.StringVar(&r.file, "out", "", "also write everything to this `FILE`")
}

// Begin raises the limit of open files, makes the folder, builds the daemon, and prints what machine this is. The caller must
// call end.
func (r *Run) Begin(files uint64) (end func(), err error) {
	if r.Files, err = proc.RaiseFiles(files); err != nil {
		return nil, err
	}
	if r.Dir, err = os.MkdirTemp("", "penstock-trial-"); err != nil {
		return nil, err
	}
	folder.Store(&r.Dir)
	done := func() {}
	defer func() {
		if err != nil {
			done()
			os.RemoveAll(r.Dir)
		}
	}()
	if r.Penstock, err = Penstock(r.Penstock, r.Dir); err != nil {
		return nil, err
	}
	if r.Out == nil {
		out, closeFile, err := report.Output(r.file)
		if err != nil {
			return nil, err
		}
		r.Out, done = out, closeFile
	}
	if err := report.Machine(r.Out); err != nil {
		return nil, err
	}
	return func() { done(); os.RemoveAll(r.Dir) }, nil
}

// Ports reserves a port for each, until this process ends.
func Ports(ports ...*string) (err error) {
	for _, port := range ports {
		if *port, _, err = testport.Reserve(); err != nil {
			return err
		}
	}
	return nil
}

// Named reports whether a list of names, with commas between them, has a name, or the beginning of it with a * behind.
func Named(list, name string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if prefix, many := strings.CutSuffix(one, "*"); one == name || many && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
