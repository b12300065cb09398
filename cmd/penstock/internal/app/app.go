// Package app assembles the daemon from the packages around it and owns its
// lifecycle: it parses the command line, starts the engine, and stops it on a signal.
package app

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// Exit codes. docs/commands.md explains them to operators.
const (
	exitOK       = 0 // every flow has ended
	exitFailed   = 1 // could not start
	exitUsage    = 2 // the command line is wrong
	exitCut      = 3 // the drain deadline passed and the remaining flows were ended
	exitAtOnce   = 4 // a second signal ended the remaining flows
	exitCodeHelp = `Exit codes: 0 success, every flow has ended; 1 the daemon could not start; 2 invalid command line or configuration; ` +
		`3 the drain deadline passed and the remaining flows were ended; 4 a second signal ended them.`
)

// printVersion writes one line: version, toolchain, platform.
func printVersion(w io.Writer) {
	fmt.Fprintf(w, "penstock %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// release is the version of a released build, which the linker sets (-X).
var release string

// version returns the build's version, with the revision if it is known.
func version() string {
	if release != "" {
		return release
	}
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
