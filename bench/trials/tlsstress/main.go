//go:build linux

// Tlsstress does to relays that end TLS what strangers and operators do, all at once, and looks at what becomes of everybody else.
//
//	go run ./bench/trials/tlsstress -relays penstock,nginx,haproxy -cases 'flood/*'   # a flood of handshakes beside old connections, and new clients
//	go run ./bench/trials/tlsstress -cases balance                                    # what is left of 100,000 handshakes, good and bad
//	go run ./bench/trials/tlsstress -cases reload                                     # another certificate every 200 ms, under load
//
// The flood is a process of its own with a low priority, so that the clients that are measured do not wait for it. The machine should do nothing else:
// what is measured are times.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/report"
	"github.com/penstock/penstock/bench/internal/trial"
)

func main() {
	run := command
	if len(os.Args) == 4 && os.Args[1] == "flood" {
		run = func(args []string) error { return flood(args[1], args[2]) }
	}
	trial.Main("tlsstress", func() error { return run(os.Args[1:]) })
}

// stress is one run of the program.
type stress struct {
	self, penstock    string
	dir               string
	cpus              string // of the relay
	length            time.Duration
	handshakes, flows int
	files             int // that a process may have open
	out               io.Writer
	authority         *certs.Authority
	server            certs.Pair
}

func command(args []string) (err error) {
	s := &stress{}
	fs := flag.NewFlagSet("tlsstress", flag.ExitOnError)
	names := fs.String("relays", "penstock,nginx,haproxy", "relays that are flooded; one that is not installed is named and left out")
	cases := fs.String("cases", "flood/*,balance,reload", "cases: "+strings.Join(append(floodCases(), "balance", "reload"), ", "))
	fs.StringVar(&s.penstock, "penstock", "", "the penstock to try; built from this checkout unless given")
	fs.StringVar(&s.cpus, "cpus", "", "bind the relay to these CPUs, such as 0; this program itself can be bound by taskset(1)")
	fs.DurationVar(&s.length, "length", 10*time.Second, "of a flood; a reload takes six times as long")
	fs.IntVar(&s.handshakes, "handshakes", 100_000, "of the balance")
	fs.IntVar(&s.flows, "flows", 50, "old connections with TLS, and as many without")
	outFile := fs.String("out", "", "also write everything to this `FILE`")
	fs.Parse(args)
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if s.files, err = proc.RaiseFiles(1 << 16); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "penstock-tlsstress-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	if s.penstock, err = trial.Penstock(s.penstock, s.dir); err != nil {
		return err
	}
	if s.authority, err = certs.New(s.dir); err != nil {
		return err
	}
	if s.server, err = s.authority.Server("server", "ecdsa", certs.Name); err != nil {
		return err
	}
	out, done, err := trial.Output(*outFile)
	if err != nil {
		return err
	}
	defer done()
	s.out = out
	if err := report.Machine(s.out); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "relay-cpus: %s\n", cmp.Or(s.cpus, "as this program"))
	var floods []string
	has := func(name string) bool {
		for x := range strings.SplitSeq(*cases, ",") {
			if prefix, many := strings.CutSuffix(x, "*"); x == name || many && strings.HasPrefix(name, prefix) {
				return true
			}
		}
		return false
	}
	for _, name := range floodCases() {
		if has(name) {
			floods = append(floods, name)
		}
	}
	if len(floods) > 0 {
		if err := s.floods(floods, strings.Split(*names, ",")); err != nil {
			return err
		}
	}
	if has("balance") {
		if err := s.balance(); err != nil {
			return err
		}
	}
	if has("reload") {
		return s.reload()
	}
	return nil
}
