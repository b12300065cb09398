// Package app assembles the daemon from its stations and owns its life: it
// parses the command line, starts the engine, and ends it on a signal.
package app

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// Exit codes. docs/operations.md explains them to operators.
const (
	exitOK       = 0 // every flow has ended
	exitFailed   = 1 // could not start
	exitUsage    = 2 // the command line is wrong
	exitCut      = 3 // the drain deadline passed and flows were cut
	exitAtOnce   = 4 // a second signal ended it with flows left
	exitCodeHelp = `Exit codes: 0 all is well, every flow has ended; 1 it could not start; 2 the command line is wrong; ` +
		`3 the drain deadline passed and flows were cut; 4 a second signal cut them.`
)

// printVersion writes one line: version, toolchain, platform.
func printVersion(w io.Writer) {
	fmt.Fprintf(w, "penstock %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// version is that of the build, with the revision where it is known.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v += " " + s.Value[:min(12, len(s.Value))]
		}
		if s.Key == "vcs.modified" && s.Value == "true" {
			v += "+"
		}
	}
	return v
}
