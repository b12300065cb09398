//go:build linux

// Tls compares relays that end TLS: penstock, nginx, HAProxy and Envoy, with crypto/tls in a plain Go relay as the yardstick, in interleaved rounds under the
// same load, by the CPU time of the relay alone.
//
//	go run ./bench/tls -cpus 0 -rounds 5 -out result.txt
//	go run ./bench/tls -rows 'full-ecdsa*,pingpong*' -relays penstock,nginx
//
// Certificates are made when it starts. All relays have the same ones; clients offer one version, one cipher suite and one key exchange, except in the
// rows named defaults. The generator and the sink are this program again, in their own processes, and their CPU time does not count. Every measurement
// uses fresh processes in a fresh network namespace, which requires root. Each row that has a bar prints the ratio, and whether the bar holds.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/rounds"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tls:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if is, err := parts.Play(args); is {
		return err
	}
	if is, err := peer.Self(args); is {
		return err
	}
	return measure(args)
}

func measure(args []string) (err error) {
	b := &bench{Settings: rounds.Settings{Rounds: 5, Warm: 300 * time.Millisecond, Window: time.Second, Place: proc.Place{Congestion: "reno"}}}
	fs := flag.NewFlagSet("tls", flag.ExitOnError)
	names := fs.String("rows", "*", "rows to measure, in order; full* means all that begin so: "+strings.Join(rowNames(rows()), ", "))
	relays := fs.String("relays", "penstock,engine,nginx,nginx-16k,haproxy,envoy,gotls", "relays to run; one that is not installed is named and left out")
	b.Flags(fs, "row")
	penstock := fs.String("penstock", "", "the penstock to measure; built from this checkout unless given")
	fs.Parse(args)
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if b.rows, err = pick(*names); err != nil {
		return err
	}
	end, err := b.Begin()
	if err != nil {
		return err
	}
	defer end()
	bin := peer.Binaries{Penstock: *penstock, Envoy: peer.FindEnvoy(), Self: b.Self}
	if bin.Penstock == "" {
		bin.Penstock = filepath.Join(b.Dir, "penstock")
	}
	if b.peers, err = peer.Pick(peer.Secured(bin), *relays); err != nil {
		return err
	}
	if *penstock == "" && strings.Contains(*relays, ours) {
		if err := peer.Build("", bin.Penstock, nil); err != nil {
			return err
		}
	}
	return b.run()
}
