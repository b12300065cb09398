//go:build linux

// Tlsconformance tries everything that speaks TLS against a relay that ends it: openssl s_client in every version and mode, curl, connections that break
// the rules, sslyze, testssl.sh and tlsfuzzer. It prints one table of what passed, for penstock and its peers side by side.
//
//	go run ./bench/trials/tlsconformance                          # what needs openssl and curl only: a minute
//	make tls-conformance                                   # with the scanners: half an hour
//	go run ./bench/trials/tlsconformance -relays penstock -cases 'openssl/*,native/*'
//
// A tool that is not installed is named, and its cases are left out. Every case has the relay's answers for itself: a relay that ends in one of them
// fails that case, and is started again for the next.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/report"
	"github.com/penstock/penstock/bench/internal/trial"
)

func main() {
	trial.Main("tlsconformance", func() error {
		if is, err := peer.Self(os.Args[1:]); is {
			return err
		}
		return command(os.Args[1:])
	})
}

func command(args []string) error {
	fs := flag.NewFlagSet("tlsconformance", flag.ExitOnError)
	relays := fs.String("relays", "penstock,engine,nginx,haproxy,gotls", "relays; one that is not installed is named and left out")
	names := fs.String("cases", "*", "cases: names, or the beginnings of names with a * behind them; with commas between them")
	list := fs.Bool("list", false, "list the cases and do nothing")
	penstock := fs.String("penstock", "", "the penstock to try; built from this checkout unless given")
	python := fs.String("python", "", "a python that has sslyze and tlslite-ng")
	tlsfuzzer := fs.String("tlsfuzzer", "", "a checkout of tlsfuzzer")
	serve := fs.String("serve", "", "only start the first relay with this `SETUP` (ecdsa, rsa, staple, clients, strict), print where it listens, and wait for the end of the input")
	outFile := fs.String("out", "", "also write everything to this `FILE`")
	fs.Parse(args)
	picked := pick(*names)
	if len(picked) == 0 || fs.NArg() > 0 {
		return fmt.Errorf("no case %q: see -list", cmp.Or(fs.Arg(0), *names))
	}
	if *list {
		for _, c := range picked {
			fmt.Printf("%-40s %s\n", c.name, c.what)
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "penstock-tlsconformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rsa := *serve != ""
	for _, c := range picked {
		rsa = rsa || c.setup == rsaSetup
	}
	w, err := newWorld(dir, rsa)
	if err != nil {
		return err
	}
	w.python, w.tlsfuzzer = *python, *tlsfuzzer
	if w.self, err = os.Executable(); err != nil {
		return err
	}
	bin := peer.Binaries{Penstock: cmp.Or(*penstock, filepath.Join(dir, "penstock")), Envoy: peer.FindEnvoy(), Self: w.self}
	peers, err := peer.Pick(peer.Secured(bin), *relays)
	if err != nil {
		return err
	}
	if *penstock == "" && strings.Contains(*relays, "penstock") {
		if err := trial.Build(bin.Penstock); err != nil {
			return err
		}
	}
	if *serve != "" {
		t, err := w.start(peers[0], setup(*serve))
		if err != nil {
			return err
		}
		fmt.Printf("%s %s %s\n", t.addr, w.authority.CA, w.client.Certificate)
		io.Copy(io.Discard, os.Stdin)
		fmt.Print(t.stop())
		return nil
	}
	out, done, err := report.Output(*outFile)
	if err != nil {
		return err
	}
	defer done()
	return w.all(out, picked, peers)
}

// pick returns the cases with one of the names.
func pick(names string) (picked []testCase) {
	for _, c := range cases() {
		if trial.Named(names, c.name) {
			picked = append(picked, c)
		}
	}
	return picked
}

// all runs the cases with each of the relays, and prints the table. It returns an error if penstock, or the only relay, failed one.
func (w *world) all(out io.Writer, picked []testCase, peers []peer.Peer) error {
	if err := report.Machine(out); err != nil {
		return err
	}
	verdicts := make([]map[string]string, len(picked))
	for i := range picked {
		verdicts[i] = make(map[string]string)
	}
	failed := map[string]int{}
	var here []peer.Peer
	for _, p := range peers {
		if err := p.Missing(); err != nil {
			fmt.Fprintf(out, "%s: %v\n", p.Name, err)
			continue
		}
		version, err := p.Version()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s (%s)\n", p.Name, version, p.Note)
		here = append(here, p)
		w.relay(p, picked, func(i int, verdict string, took time.Duration) {
			verdicts[i][p.Name], _, _ = strings.Cut(verdict, ": ")
			fmt.Fprintf(out, "# %s, %s (%v): %s\n", p.Name, picked[i].name, took.Round(time.Millisecond), strings.ReplaceAll(verdict, "\n", "\n#     "))
			if strings.HasPrefix(verdict, "FAIL") {
				failed[p.Name]++
			}
		})
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "\ncase\t")
	for _, p := range here {
		fmt.Fprintf(table, "%s\t", p.Name)
	}
	fmt.Fprintln(table, "what passes")
	for i, c := range picked {
		fmt.Fprintf(table, "%s\t", c.name)
		for _, p := range here {
			fmt.Fprintf(table, "%s\t", verdicts[i][p.Name])
		}
		fmt.Fprintln(table, c.what)
	}
	table.Flush()
	for _, p := range here {
		if failed[p.Name] > 0 && (p.Name == "penstock" || len(here) == 1) {
			return fmt.Errorf("%s failed %d of %d cases", p.Name, failed[p.Name], len(picked))
		}
	}
	return nil
}

// relay runs the cases with one relay. The cases of a setup share a process, as long as it lives.
func (w *world) relay(p peer.Peer, picked []testCase, tell func(i int, verdict string, took time.Duration)) {
	var t *target
	var has setup
	stop := func() string {
		if t == nil {
			return ""
		}
		text := t.stop()
		t = nil
		return text
	}
	defer stop()
	for i, c := range picked {
		begun := time.Now()
		if t == nil || has != c.setup {
			stop()
			var err error
			if t, err = w.start(p, c.setup); err != nil {
				t = nil
				tell(i, verdict(err), time.Since(begun))
				continue
			}
			has = c.setup
		}
		err := c.run(t)
		if err == nil {
			err = t.alive()
		}
		tell(i, verdict(err), time.Since(begun))
		if err != nil && !cannot(err) && t.alive() != nil {
			fmt.Fprintf(os.Stderr, "tlsconformance: %s printed: %s\n", p.Name, stop())
		}
	}
}

// verdict begins with one word for the table.
func verdict(err error) string {
	switch {
	case err == nil:
		return "pass"
	case cannot(err):
		return "-: " + err.Error()
	}
	return "FAIL: " + err.Error()
}
