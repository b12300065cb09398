//go:build linux

// Package trial is what the programs that try relays share (those in bench/trials, and outlive and flood, which measure besides): one way to
// start a relay and to end it, one list of everything that was started, one client of the daemon's admin API, and one way to run
// a round in a process of its own.
package trial

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// Patience bounds each wait for something that must happen.
const Patience = 30 * time.Second

// Main is the main function of a program: it runs it, tells its error, and ends whatever is still running of what it started, also
// when it is interrupted.
func Main(name string, run func() error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		EndAll()
		os.Exit(130)
	}()
	err := run()
	EndAll()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Build builds the daemon of this checkout.
func Build(to string, flags ...string) error {
	args := append(append([]string{"build", "-buildvcs=false", "-o", to}, flags...), "github.com/penstock/penstock/cmd/penstock")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build penstock: %w\n%s", err, out)
	}
	return nil
}

// Penstock returns the path of the daemon to try: the given one, or one that it builds in a folder.
func Penstock(given, dir string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	path := filepath.Join(dir, "penstock")
	return path, Build(path)
}

// Output returns the standard output, which is also written to a file if one is named. The caller must call done.
func Output(file string) (out io.Writer, done func(), err error) {
	if file == "" {
		return os.Stdout, func() {}, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, nil, err
	}
	return io.MultiWriter(os.Stdout, f), func() { f.Close() }, nil
}
