//go:build linux

// Package peer runs the relays that are measured, one process tree each, all
// between one listener and one upstream, TCP or UDP.
package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Peer is a relay that can be run.
type Peer struct {
	Name string
	Note string   // how it is set up, in a line
	Ask  []string // the command that prints its version

	UDP bool // it relays datagrams too

	FilesEach int // open files that a connection costs it; 0: the two sockets

	complete func() error // says what the installed program lacks; nil: it is one file

	// Watch, if not nil, asks the relay what an operator asks, until ctx ends.
	Watch func(ctx context.Context, s Setup) error

	// plan makes the command line, and the configuration file if it takes one.
	plan func(s Setup) Plan
}

// Setup is what every relay is told.
type Setup struct {
	Listen   string // host:port
	Upstream string // host:port
	UDP      bool   // datagrams, and not streams
	Loops    int    // threads or processes that carry traffic, where that can be said
	Files    int    // how many files it may have open
	Replies  int    // datagrams: a flow is over after so many replies to each of its datagrams; 0: it stays
	Dir      string // for configuration and run files
}

// Plan is how a peer is started.
type Plan struct {
	Argv   []string
	File   string // where Config is to be written; "": it needs none
	Config string
}

// Binaries names the programs that are not found by their usual name.
type Binaries struct {
	Penstock string
	Envoy    string
	Floor    string // from BuildFloor
	Self     string // this program, for the peers that are part of it
}

// All returns every peer that is known.
func All(bin Binaries) []Peer {
	return append(observed(bin.Penstock),
		Penstock("penstock", "this checkout", bin.Penstock),
		stages(bin.Penstock),
		haproxy("haproxy", "splice forced", true),
		haproxy("haproxy-auto", "splice-auto", false),
		nginx("nginx", "stream module", ""),
		nginx("nginx-rcvbuf", "stream module, UDP with rcvbuf=4m", " rcvbuf=4m"),
		envoy(bin.Envoy),
		goCopy(bin.Self),
		floor(bin.Floor),
	)
}

// FindEnvoy returns the Envoy of the search path, or else the one that
// bench/install-envoy.sh fetched.
func FindEnvoy() string {
	if path, err := exec.LookPath("envoy"); err == nil {
		return path
	}
	cache, _ := os.UserCacheDir() // without one there is no such file
	return filepath.Join(cache, "penstock-bench", "envoy", "_bin", "envoy")
}

// Installed reports whether the peer can be run.
func (p Peer) Installed() bool { return p.Missing() == nil }

// Missing returns an error that says what the peer needs and this machine does not have, or nil.
func (p Peer) Missing() error {
	if _, err := exec.LookPath(p.Ask[0]); err != nil {
		return errors.New("not installed")
	}
	if p.complete == nil {
		return nil
	}
	return p.complete()
}

// Pick returns the named peers in the order of names.
func Pick(all []Peer, names string) ([]Peer, error) {
	var known []string
	for _, p := range all {
		known = append(known, p.Name)
	}
	var picked []Peer
	for name := range strings.SplitSeq(names, ",") {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, fmt.Errorf("peer %q: want some of %s", name, strings.Join(known, ","))
		}
		picked = append(picked, all[i])
	}
	return picked, nil
}

// Version asks the program what it is; the answer is one line.
func (p Peer) Version() (string, error) {
	out, err := exec.Command(p.Ask[0], p.Ask[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", p.Name, err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return strings.TrimSpace(strings.TrimPrefix(line, p.Ask[0])), nil
}

// Fit returns how many connections the peer can carry with so many open files,
// at most want.
func (p Peer) Fit(want, files int) int {
	return min(want, (files-400)/max(p.FilesEach, 2))
}

// Plan returns how the peer would be started.
func (p Peer) Plan(s Setup) Plan { return p.plan(s) }
