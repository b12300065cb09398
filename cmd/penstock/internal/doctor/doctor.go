// Package doctor examines the host for a relay: what the kernel can do, found by trying
// it; limits, capabilities and offloads; and the speed of the fast paths, measured on
// loopback. For whatever could be better it says what that costs, and how to fix it.
//
// It changes nothing: it reads files below /proc and /sys, and opens its own sockets on
// loopback.
package doctor

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"

	"github.com/charmbracelet/x/term"
	"github.com/safchain/ethtool"

	"github.com/penstock/penstock/sandbox"
)

// Cmd is the command doctor, filled by kong.
type Cmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// Help returns the text that penstock doctor --help prints below the flags.
func (Cmd) Help() string {
	return "It changes nothing, and takes about two seconds. Exit codes: 0: nothing is missing; 1: something is missing. Warnings do not count."
}

// Run examines the host, prints the findings on stdout, and returns the exit code: 1 if something
// is missing, or if writing to stdout fails. If stderr is a terminal, it shows there what is being
// measured.
func (c *Cmd) Run(stdout, stderr *os.File) int {
	progress := func(string) {}
	if term.IsTerminal(stderr.Fd()) {
		progress = func(what string) {
			if what != "" {
				what = "measuring: " + what
			}
			fmt.Fprintf(stderr, "\r\033[K%s", what)
		}
	}
	r := Report{Findings: examine(thisMachine(), progress)}
	r.Missing, r.Warnings = r.count()
	var err error
	if c.JSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		err = e.Encode(r)
	} else {
		err = r.print(stdout, term.IsTerminal(stdout.Fd()) && os.Getenv("NO_COLOR") == "")
	}
	if err != nil {
		fmt.Fprintln(stderr, "penstock doctor: write:", err)
		return 1
	}
	if r.Missing > 0 {
		return 1
	}
	return 0
}

// A Status says how serious a finding is.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Warn    Status = "warn"    // it works, but something is slower or smaller than it could be, or gets lost
	Missing Status = "missing" // a fast path, or something that the daemon relies on, is missing
)

// A Finding is the result of examining one thing.
type Finding struct {
	Group  string `json:"group"` // kernel, limits, capabilities, sandbox, offloads, speed
	Name   string `json:"name"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Cost   string `json:"cost,omitempty"` // what it costs, unless ok
	Fix    string `json:"fix,omitempty"`  // a command or setting
}

// A Report has all findings, in the order of printing.
type Report struct {
	Findings []Finding `json:"findings"`
	Missing  int       `json:"missing"`
	Warnings int       `json:"warnings"`
}

func (r *Report) count() (missing, warnings int) {
	for _, f := range r.Findings {
		switch f.Status {
		case Missing:
			missing++
		case Warn:
			warnings++
		}
	}
	return missing, warnings
}

// A machine is where the answers come from; tests provide their own.
type machine struct {
	root     fs.FS                                                     // of /: only proc and sys are read
	try      func(feature) error                                       // tries a feature
	offloads func(nic string) (map[string]ethtool.FeatureState, error) // by ethtool's names
	measure  func(progress func(string)) (speeds, error)
	sandbox  func() sandbox.Report // nil: not examined
}

func thisMachine() machine {
	return machine{
		root:     os.DirFS("/"),
		try:      func(f feature) error { return f.try() },
		offloads: ethtoolFeatures,
		measure:  measure,
		sandbox:  sandbox.Available,
	}
}

// examine examines everything. Measurements come first, because other findings quote them.
func examine(m machine, progress func(string)) (all []Finding) {
	s, err := m.measure(progress)
	progress("")
	all = append(all, kernel(m.root)...)
	all = append(all, features(m.try, s)...)
	all = append(all, kernelTLS(m.root, m.try))
	all = append(all, limits(m.root)...)
	all = append(all, capabilities(m.root)...)
	if m.sandbox != nil {
		all = append(all, sandboxed(m.sandbox())...)
	}
	all = append(all, offloads(m.root, m.offloads, s)...)
	return append(all, speed(s, err)...)
}
