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
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tls:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 1 {
		switch args[0] {
		case "generate":
			return generate(args[1])
		case "sink":
			return sink(args[1])
		}
	}
	if is, err := peer.Self(args); is {
		return err
	}
	return measure(args)
}

func measure(args []string) (err error) {
	b := &bench{}
	fs := flag.NewFlagSet("tls", flag.ExitOnError)
	names := fs.String("rows", "*", "rows to measure, in order; full* means all that begin so: "+strings.Join(rowNames(rows()), ", "))
	relays := fs.String("relays", "penstock,engine,nginx,nginx-16k,haproxy,envoy,gotls", "relays to run; one that is not installed is named and left out")
	fs.IntVar(&b.rounds, "rounds", 5, "rounds of each row; each runs every relay once")
	fs.IntVar(&b.tries, "tries", 4, "maximum number of measurements while something else runs on the relay's CPUs; the least disturbed one is used")
	fs.DurationVar(&b.warm, "warm", 300*time.Millisecond, "load before the window")
	fs.DurationVar(&b.window, "window", time.Second, "length of the measurement")
	fs.StringVar(&b.cpus, "cpus", "", "bind relay, generator and sink to these CPUs, such as 0 (empty: all)")
	fs.BoolVar(&b.host, "host", os.Geteuid() != 0, "measure in the machine's network namespace instead of a fresh one for each measurement (which requires root)")
	penstock := fs.String("penstock", "", "the penstock to measure; built from this checkout unless given")
	outFile := fs.String("out", "", "also write everything to this `FILE`")
	fs.Parse(args)
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if b.rows, err = pick(*names); err != nil {
		return err
	}
	if b.files, err = proc.RaiseFiles(1 << 17); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "penstock-tls-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	bin := peer.Binaries{Penstock: *penstock, Envoy: peer.FindEnvoy(), Self: b.self}
	if bin.Penstock == "" {
		bin.Penstock = filepath.Join(b.dir, "penstock")
	}
	if b.peers, err = peer.Pick(peer.Secured(bin), *relays); err != nil {
		return err
	}
	if *penstock == "" && strings.Contains(*relays, ours) {
		if err := build(bin.Penstock); err != nil {
			return err
		}
	}
	b.out = os.Stdout
	if *outFile != "" {
		f, err := os.Create(*outFile)
		if err != nil {
			return err
		}
		defer f.Close()
		b.out = io.MultiWriter(os.Stdout, f)
	}
	return b.run()
}

// build compiles the daemon of this checkout.
func build(bin string) error {
	if text, err := exec.Command("go", "build", "-o", bin, "github.com/penstock/penstock/cmd/penstock").CombinedOutput(); err != nil {
		return fmt.Errorf("build penstock: %w\n%s", err, text)
	}
	return nil
}
