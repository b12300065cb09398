//go:build linux

// Relay measures relays beside each other: penstock of this checkout,
// HAProxy, nginx and a Go io.Copy relay, in interleaved rounds under the same
// load, with the CPU time of the relay alone.
//
//	go run ./bench/relay -loads bulk1m,pingpong64 -rounds 5 -out result.txt
//
// The load generator and the sink are this program again, in processes of
// their own. Every measurement runs with fresh processes in a fresh network
// namespace, which takes root. bench/README.md has the method and its limits.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "generate":
			return generate(args[1:])
		case "sink":
			return sink(args[1:])
		case "gocopy":
			return peer.GoCopy(args[1], args[2])
		}
	}
	return measure(args)
}

func measure(args []string) error {
	fs := flag.NewFlagSet("relay", flag.ExitOnError)
	loads := fs.String("loads", "bulk1m,bulk16k,pingpong64,pingpong1,connect,idle,udp1200,udp100,udpgso1200,udpping64", "loads to run, in order: bulkSIZE[xCONNS], pingpongCONNS, connect[CONNS], idle[CONNS], udpSIZE[xFLOWS], udpgsoSIZE[xFLOWS], udppingFLOWS")
	peers := fs.String("peers", "penstock,haproxy,haproxy-auto,nginx,nginx-rcvbuf,gocopy", "relays to run; the first is held against the best of the others")
	rounds := fs.Int("rounds", 5, "rounds of each load; each runs every relay once")
	loops := fs.Int("loops", 1, "threads or processes of a relay that carry traffic; gocopy takes what Go gives it")
	warm := fs.Duration("warm", 300*time.Millisecond, "load before the window")
	window := fs.Duration("window", 2*time.Second, "what is measured")
	verify := fs.Bool("verify", true, "before a bulk load, send 64 MiB through each relay and compare checksums")
	var at place
	fs.BoolVar(&at.host, "host", false, "measure in the machine's network namespace instead of a fresh one for each measurement (which takes CAP_SYS_ADMIN)")
	fs.StringVar(&at.congestion, "congestion", "reno", "TCP congestion control of the fresh namespace; empty: the machine's")
	fs.StringVar(&at.cpus, "cpus", "", "bind relay, generator and sink to these CPUs, such as 0; empty: all")
	out := fs.String("out", "", "also write everything to this `FILE`")
	fs.Parse(args)
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}

	b := bench{rounds: *rounds, loops: *loops, place: at, warm: *warm, window: *window, verify: *verify, out: os.Stdout}
	for text := range strings.SplitSeq(*loads, ",") {
		spec, err := load.Parse(text)
		if err != nil {
			return err
		}
		b.loads = append(b.loads, namedLoad{text, spec})
	}
	var err error
	if b.files, err = proc.RaiseFiles(1 << 17); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.dir = dir
	self, err := os.Executable()
	if err != nil {
		return err
	}
	bin := peer.Binaries{Self: self}
	if strings.Contains(*peers, "penstock") {
		if bin.Penstock, err = build(dir); err != nil {
			return err
		}
	}
	b.self = self
	if b.peers, err = peer.Pick(peer.All(bin), *peers); err != nil {
		return err
	}
	if *out != "" {
		f, err := os.Create(*out)
		if err != nil {
			return err
		}
		defer f.Close()
		b.out = io.MultiWriter(os.Stdout, f)
	}
	return b.run()
}
