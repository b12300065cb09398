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
	"os"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/trial"
)

var parts = child.Parts{"flood": child.Does(flood)}

func main() {
	trial.Main("tlsstress", func() error {
		if is, err := parts.Play(os.Args[1:]); is {
			return err
		}
		return command(os.Args[1:])
	})
}

// stress is one run of the program.
type stress struct {
	trial.Run
	cpus              string // of the relay
	length            time.Duration
	handshakes, flows int
	authority         *certs.Authority
	server            certs.Pair
}

func command(args []string) (err error) {
	s := &stress{}
	fs := flag.NewFlagSet("tlsstress", flag.ExitOnError)
	names := fs.String("relays", "penstock,nginx,haproxy", "relays that are flooded; one that is not installed is named and left out")
	cases := fs.String("cases", "flood/*,balance,reload", "cases: "+strings.Join(append(floodCases(), "balance", "reload"), ", "))
	s.Flags(fs)
	fs.StringVar(&s.cpus, "cpus", "", "bind the relay to these CPUs, such as 0; this program itself can be bound by taskset(1)")
	fs.DurationVar(&s.length, "length", 10*time.Second, "of a flood; a reload takes six times as long")
	fs.IntVar(&s.handshakes, "handshakes", 100_000, "of the balance")
	fs.IntVar(&s.flows, "flows", 50, "old connections with TLS, and as many without")
	fs.Parse(args)
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	end, err := s.Begin(1 << 16)
	if err != nil {
		return err
	}
	defer end()
	if s.authority, err = certs.New(s.Dir); err != nil {
		return err
	}
	if s.server, err = s.authority.Server("server", "ecdsa", certs.Name); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "relay-cpus: %s\n", cmp.Or(s.cpus, "as this program"))
	var floods []string
	for _, name := range floodCases() {
		if trial.Named(*cases, name) {
			floods = append(floods, name)
		}
	}
	if len(floods) > 0 {
		if err := s.floods(floods, strings.Split(*names, ",")); err != nil {
			return err
		}
	}
	if trial.Named(*cases, "balance") {
		if err := s.balance(); err != nil {
			return err
		}
	}
	if trial.Named(*cases, "reload") {
		return s.reload()
	}
	return nil
}
