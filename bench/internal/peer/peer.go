//go:build linux

// Package peer runs the relays that are measured. Each is a process tree between one listener and
// one upstream, TCP or UDP.
package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Peer is a relay that can be run.
type Peer struct {
	Name string
	Note string   // how it is set up, in one line
	Ask  []string // the command that prints its version

	UDP bool // it also relays datagrams

	FilesEach int // open files per connection; 0 means the two sockets

	// Watch, if not nil, makes an operator's requests to the relay until ctx ends.
	Watch func(ctx context.Context, s Setup) error

	// Admin, if not nil, returns the admin socket of a penstock with a keeper, for Settled.
	Admin func(s Setup) string

	// plan returns the command line, and the configuration file if there is one.
	plan func(s Setup) Plan
}

// Setup is the part of a relay's configuration that all relays share.
type Setup struct {
	Listen   string // host:port
	Upstream string // host:port
	UDP      bool   // datagrams instead of streams
	Loops    int    // threads or processes that carry traffic, if that can be set
	Files    int    // how many files it may have open
	Replies  int    // datagrams: a flow ends after this many replies to each of its datagrams; 0 means never
	TLS      TLS    // for the relays that Secured returns
	Dir      string // for configuration and run files
}

// Plan is how a peer is started.
type Plan struct {
	Argv   []string
	File   string // where to write Config; "" if there is none
	Config string
}

// Binaries has the paths of programs that are not found by their usual names.
type Binaries struct {
	Penstock string
	Envoy    string
	Floor    string // from BuildFloor
	Self     string // this program, for the peers that are part of it
}

// All returns every known peer.
func All(bin Binaries) []Peer {
	return append(slices.Concat(observed(bin.Penstock), kept(bin.Penstock), guarded(bin.Penstock), sniffed(bin.Penstock)),
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

// FindEnvoy returns the path of Envoy in PATH, or else of the one that bench/install-envoy.sh
// fetched.
func FindEnvoy() string {
	if path, err := exec.LookPath("envoy"); err == nil {
		return path
	}
	cache, _ := os.UserCacheDir() // without one there is no such file
	return filepath.Join(cache, "penstock-bench", "envoy", "_bin", "envoy")
}

// Installed reports whether the peer can be run.
func (p Peer) Installed() bool { return p.Missing() == nil }

// Missing returns an error that says what the peer needs but this machine lacks, or nil.
func (p Peer) Missing() error { return Missing(p.Ask[0]) }

// Missing returns an error that says that a program, or what a relay needs besides, is not installed, or nil.
func Missing(program string) error {
	if _, err := exec.LookPath(program); err != nil {
		return errors.New("not installed")
	}
	if program == "nginx" {
		_, err := StreamModule()
		return err
	}
	return nil
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

// Version returns the program's version, in one line.
func (p Peer) Version() (string, error) {
	line, err := FirstLine(p.Ask)
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", p.Name, err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, p.Ask[0])), nil
}

// FirstLine returns the first line that a command prints.
func FirstLine(argv []string) (string, error) {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line, err
}

// Describe prints the versions of peers, and how each is set up, or what it lacks.
func Describe(w io.Writer, peers []Peer) error {
	for _, p := range peers {
		text := ""
		if err := p.Missing(); err != nil {
			text = err.Error()
		} else if text, err = p.Version(); err != nil {
			return err
		}
		fmt.Fprintf(w, "%s: %s (%s)\n", p.Name, text, p.Note)
	}
	return nil
}

// Build builds the daemon of the checkout in a folder, "" for this one, with further variables of the environment and flags of go build.
func Build(checkout, to string, env []string, flags ...string) error {
	cmd := exec.Command("go", append(append([]string{"build", "-o", to}, flags...), "github.com/penstock/penstock/cmd/penstock")...)
	cmd.Dir, cmd.Env = checkout, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build penstock: %w\n%s", err, out)
	}
	return nil
}

// Fit returns how many connections, at most want, the peer can carry with the given number of open
// files.
func (p Peer) Fit(want, files int) int {
	return min(want, (files-400)/max(p.FilesEach, 2))
}

// Plan returns how the peer would be started.
func (p Peer) Plan(s Setup) Plan { return p.plan(s) }
