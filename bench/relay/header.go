//go:build linux

package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/report"
)

// configLines is the maximum number of lines printed of a configuration: the longest have very many
// routes.
const configLines = 40

// header prints the conditions of a measurement: date, machine, versions, and how each relay is set
// up.
func (b *bench) header() error {
	if err := report.Machine(b.Out); err != nil {
		return err
	}
	fmt.Fprintf(b.Out, "rounds: %d\nwarm: %v\nwindow: %v\nloops: %s\nopen-files: %d\n", b.Rounds, b.Warm, b.Window, strings.Trim(fmt.Sprint(b.loops), "[]"), b.Files)
	var congestion string
	if err := b.Place.Run(func(*proc.Hosts) (err error) {
		congestion, err = proc.Congestion()
		return err
	}); err != nil {
		return err
	}
	fmt.Fprintf(b.Out, "fresh-network-namespace: %v\nveth: %v\ncongestion-control: %s\ncpus: %s\n", !b.Place.Host, b.Place.Veth, congestion, cmp.Or(b.Place.CPUs, "all"))
	if err := peer.Describe(b.Out, b.peers); err != nil {
		return err
	}
	for _, setup := range b.setups() {
		for _, p := range b.peers {
			if setup.UDP && !p.UDP || !p.Installed() {
				continue
			}
			plan := p.Plan(setup)
			argv := strings.NewReplacer(b.Self, "relay", b.Dir+"/", "", filepath.Dir(peer.FindEnvoy())+"/", "").Replace(strings.Join(plan.Argv, " "))
			fmt.Fprintf(b.Out, "# %s runs: %s\n", p.Name, argv)
			lines := slices.Collect(strings.Lines(plan.Config))
			for _, line := range lines[:min(len(lines), configLines)] {
				fmt.Fprintf(b.Out, "#     %s", line)
			}
			if rest := len(lines) - configLines; rest > 0 {
				fmt.Fprintf(b.Out, "#     ... and %d more lines like the last one\n", rest)
			}
		}
	}
	return nil
}

// setups returns the different setups that the loads need, with placeholders for what each
// measurement chooses anew.
func (b *bench) setups() (all []peer.Setup) {
	for _, l := range b.loads {
		s := l.setup()
		s.Listen, s.Upstream, s.Loops, s.Files, s.Dir = "127.0.0.1:LISTEN", "127.0.0.1:UPSTREAM", b.loops[0], b.Files, "DIR"
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
