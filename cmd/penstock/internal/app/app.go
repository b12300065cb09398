// Package app assembles the daemon from the packages around it and owns its
// lifecycle: it parses the command line, starts the engine, and stops it on a signal.
package app

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
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
