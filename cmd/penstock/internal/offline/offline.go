// Package offline has the commands that need no running daemon: they read configurations, convert, explain and compare them,
// and publish them to fleets.
package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/alecthomas/kong"
)

// A Command is a command of this package. Kong fills it.
type Command interface {
	// Run runs it, and returns the exit code.
	Run(Call) int
}

// A Call is what a command is run with.
type Call struct {
	Stdout, Stderr *os.File
	Version        string // of this program
	Grammar        *kong.Application
}

// PackagedConfig is where packages put the configuration. The commands that only read one read this
// one by default; run has to be told, so that nobody starts a second daemon by mistake.
const PackagedConfig = "/etc/penstock/penstock.yaml"

// pathsOrPackaged returns the paths, or that of the packages if there are none.
func pathsOrPackaged(paths []string) []string {
	if len(paths) == 0 {
		return []string{PackagedConfig}
	}
	return paths
}

// explainNoPackaged adds to the error of a configuration that nobody named how one is named.
func explainNoPackaged(err error, paths []string) error {
	if len(paths) == 0 && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("without -c: %w; allowed: -c FILE, which penstock status names for a running daemon", err)
	}
	return err
}
