//go:build linux

// Peers tries the daemon with programs that others have written and that their users have: MQTT clients and a pool of connections
// whose flows find new members, programs that ban clients, and a DNS server that reads PROXY headers.
//
//	go run ./bench/trials/peers
//	go run ./bench/trials/peers -cases mqtt -clients 300 -out result.txt
//
// It needs root, and Debian's packages: those of each case are in its line of -list.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// trialCase is one program, or several that belong together.
type trialCase struct {
	name     string
	packages string
	what     string
	run      func(*setup) error
}

var cases = []trialCase{
	{"mqtt", "mosquitto, mosquitto-clients", "when a broker joins, clients find it by rebalance, and by life", mqtt},
	{"pgbouncer", "pgbouncer, postgresql", "with life behind a pool, no query fails if the pool ends its connections earlier", pgbouncer},
	{"fail2ban", "fail2ban", "addresses in a log are banned and no longer banned", fail2ban},
	{"crowdsec", "crowdsec", "a list follows the decisions of CrowdSec", crowdsec},
	{"coredns", "none; -coredns", "CoreDNS reads the PROXY headers of TCP and UDP and sees the clients", coredns},
}

// setup is what a case is given.
type setup struct {
	trial.Run
	clients int
	coredns string
	name    string // of the case
}

func main() {
	var s setup
	s.Flags(flag.CommandLine)
	list := flag.Bool("list", false, "list the cases")
	named := flag.String("cases", "*", "cases to try, with commas between them")
	flag.IntVar(&s.clients, "clients", 100, "mqtt: clients of each kind, which are processes")
	flag.StringVar(&s.coredns, "coredns", "", "coredns: the program, which is built in fleettest/coredns")
	flag.Parse()
	trial.Main("peers", func() error {
		if *list {
			for _, c := range cases {
				fmt.Printf("%-10s %-30s %s\n", c.name, c.packages, c.what)
			}
			return nil
		}
		return s.all(*named)
	})
}

// all tries the cases, each in a folder of its own.
func (s *setup) all(named string) error {
	if os.Geteuid() != 0 {
		return errors.New("root is needed, for the users of servers")
	}
	end, err := s.Begin(4000)
	if err != nil {
		return err
	}
	defer end()
	if err := os.Chmod(s.Dir, 0o755); err != nil { // for these users
		return err
	}
	fmt.Fprintln(s.Out)
	var failed []error
	for _, c := range cases {
		if !trial.Named(named, c.name) {
			continue
		}
		one := *s
		one.name, one.Dir = c.name, filepath.Join(s.Dir, c.name)
		if err := os.Mkdir(one.Dir, 0o755); err != nil {
			return err
		}
		if err := c.run(&one); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.name, err))
		}
		proc.EndAll()
	}
	return errors.Join(failed...)
}

// report prints a line of figures: each a value and its unit.
func (s *setup) report(what string, figures ...any) {
	fmt.Fprintf(s.Out, "BenchmarkPeers/case=%s/%s\t1", s.name, what)
	for pair := range slices.Chunk(figures, 2) {
		if took, ok := pair[0].(time.Duration); ok {
			pair[0] = took.Round(10 * time.Millisecond).Seconds()
		}
		fmt.Fprintf(s.Out, "\t%v %s", pair[0], pair[1])
	}
	fmt.Fprintln(s.Out)
}

// daemon starts a daemon.
func (s *setup) daemon(format string, args ...any) (*trial.Daemon, error) {
	return trial.StartDaemon(s.Penstock, filepath.Join(s.Dir, "relay"), fmt.Sprintf(format, args...))
}

// file writes a file for a program and returns its path.
func (s *setup) file(name, format string, args ...any) (string, error) {
	path := filepath.Join(s.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o644)
}

// begin begins a program, in a folder of its own for what it prints.
func (s *setup) begin(name string, argv ...string) (*proc.Process, error) {
	p := &proc.Process{Argv: argv, Dir: filepath.Join(s.Dir, "printed", name)}
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return p, err
	}
	return p, p.Begin()
}

// until waits until something holds, and tells a program's end at once.
func until(what string, p *proc.Process, holds func() error) error {
	return proc.Until(what, trial.Patience, 50*time.Millisecond, func() error {
		err := holds()
		if p != nil && err != nil && p.Over() {
			return fmt.Errorf("%w: %w: %s", err, p.Failed(), p.Printed())
		}
		return err
	})
}
