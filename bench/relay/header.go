//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/report"
)

// build compiles the daemon of this checkout.
func build(dir string) (string, error) {
	bin := filepath.Join(dir, "penstock")
	out, err := exec.Command("go", "build", "-o", bin, "github.com/penstock/penstock/cmd/penstock").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build penstock: %w\n%s", err, out)
	}
	return bin, nil
}

// header prints what a number means nothing without: when, where, of what, and
// how each relay is set up.
func (b *bench) header() error {
	if err := report.Machine(b.out); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "rounds: %d\nwarm: %v\nwindow: %v\nloops: %d\nopen-files: %d\n", b.rounds, b.warm, b.window, b.loops, b.files)
	var congestion string
	if err := b.inPlace(func() (err error) {
		congestion, err = proc.Congestion()
		return err
	}); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "fresh-network-namespace: %v\ncongestion-control: %s\ncpus: %s\n", !b.place.host, congestion, cmp.Or(b.place.cpus, "all"))
	for _, p := range b.peers {
		v, err := p.Version()
		if err != nil {
			return err
		}
		fmt.Fprintf(b.out, "%s: %s (%s)\n", p.Name, v, p.Note)
	}
	for _, p := range b.peers {
		plan := p.Plan(peer.Setup{Listen: "LISTEN", Upstream: "UPSTREAM", Loops: b.loops, Files: b.files, Dir: "DIR"})
		argv := strings.NewReplacer(b.self, "relay", b.dir+"/", "").Replace(strings.Join(plan.Argv, " "))
		fmt.Fprintf(b.out, "# %s runs: %s\n", p.Name, argv)
		for line := range strings.Lines(plan.Config) {
			fmt.Fprintf(b.out, "#     %s", line)
		}
	}
	return nil
}
