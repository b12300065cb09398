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
	if err := report.Machine(b.out); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "rounds: %d\nwarm: %v\nwindow: %v\nloops: %s\nopen-files: %d\n", b.rounds, b.warm, b.window, strings.Trim(fmt.Sprint(b.loops), "[]"), b.files)
	var congestion string
	if err := b.inPlace(func(*proc.Hosts) (err error) {
		congestion, err = proc.Congestion()
		return err
	}); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "fresh-network-namespace: %v\nveth: %v\ncongestion-control: %s\ncpus: %s\n", !b.place.host, b.place.veth, congestion, cmp.Or(b.place.cpus, "all"))
	for _, p := range b.peers {
		if err := p.Missing(); err != nil {
			fmt.Fprintf(b.out, "%s: %v (%s)\n", p.Name, err, p.Note)
			continue
		}
		v, err := p.Version()
		if err != nil {
			return err
		}
		fmt.Fprintf(b.out, "%s: %s (%s)\n", p.Name, v, p.Note)
	}
	for _, setup := range b.setups() {
		for _, p := range b.peers {
			if setup.UDP && !p.UDP || !p.Installed() {
				continue
			}
			plan := p.Plan(setup)
			argv := strings.NewReplacer(b.self, "relay", b.dir+"/", "", filepath.Dir(peer.FindEnvoy())+"/", "").Replace(strings.Join(plan.Argv, " "))
			fmt.Fprintf(b.out, "# %s runs: %s\n", p.Name, argv)
			lines := slices.Collect(strings.Lines(plan.Config))
			for _, line := range lines[:min(len(lines), configLines)] {
				fmt.Fprintf(b.out, "#     %s", line)
			}
			if rest := len(lines) - configLines; rest > 0 {
				fmt.Fprintf(b.out, "#     ... and %d more lines like the last one\n", rest)
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
		s.Listen, s.Upstream, s.Loops, s.Files, s.Dir = "127.0.0.1:LISTEN", "127.0.0.1:UPSTREAM", b.loops[0], b.files, "DIR"
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
