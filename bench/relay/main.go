//go:build linux

// Relay compares relays: penstock of this checkout, HAProxy, nginx, Envoy, a Go io.Copy relay and a
// bare epoll relay in C, in interleaved rounds under the same load, by the CPU time of the relay
// alone.
//
//	go run ./bench/relay -loads bulk1m,pingpong64 -rounds 5 -out result.txt
//	go run ./bench/relay compare
//
// The load generator and the sink are this program again, in their own processes. Every measurement
// uses fresh processes in a fresh network namespace, which requires root. bench/README.md describes
// the method and its limits.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
			return goCopy(args[1:])
		case "compare":
			return compare(args[1:])
		}
	}
	return measure(args)
}

// settings are the flags of every run.
type settings struct {
	bench
	loadList, loopList, outFile string
}

func (s *settings) flags(fs *flag.FlagSet) {
	fs.StringVar(&s.loadList, "loads", s.loadList, "loads to run, in order: bulkSIZE[xCONNS], pingpong[SIZEx]CONNS, connect[CONNS], idle[CONNS], settle[CONNS], udpSIZE[xFLOWS], udpgsoSIZE[xFLOWS], udppingFLOWS, udpsession[FLOWS]")
	fs.IntVar(&s.rounds, "rounds", s.rounds, "rounds of each load; each runs every relay once")
	fs.IntVar(&s.tries, "tries", 4, "maximum number of measurements while something else runs on the relay's CPUs; the least disturbed one is used")
	fs.StringVar(&s.loopList, "loops", "1", "threads or processes of a relay that carry traffic; several numbers give several rows")
	fs.DurationVar(&s.warm, "warm", s.warm, "load before the window")
	fs.DurationVar(&s.window, "window", s.window, "length of the measurement")
	fs.BoolVar(&s.verify, "verify", true, "before a bulk load, send 64 MiB through each relay and compare checksums")
	fs.BoolVar(&s.place.host, "host", os.Geteuid() != 0, "measure in the machine's network namespace instead of a fresh one for each measurement (which requires root)")
	fs.BoolVar(&s.place.veth, "veth", false, "client, relay and upstream in three network namespaces, linked by pairs of veth devices, instead of loopback")
	fs.StringVar(&s.place.congestion, "congestion", "reno", "TCP congestion control of the fresh namespace (empty: the machine's)")
	fs.StringVar(&s.place.cpus, "cpus", s.place.cpus, "bind relay, generator and sink to these CPUs, such as 0 (empty: all)")
	fs.StringVar(&s.profile, "profile", "", "also sample each relay and count its system calls with perf(1); profile-LOAD-PEER.txt goes into this `FOLDER`")
	fs.StringVar(&s.outFile, "out", "", "also write everything to this `FILE`")
}

// start runs what the flags ask for; the first peer is compared with the others.
func (s *settings) start(peers func(dir string) ([]peer.Peer, error)) error {
	for text := range strings.SplitSeq(s.loadList, ",") {
		spec, err := load.Parse(text)
		if err != nil {
			return err
		}
		s.loads = append(s.loads, namedLoad{text: text, Spec: spec})
	}
	for text := range strings.SplitSeq(s.loopList, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("loops %q: want numbers with commas between them, such as 1,2", s.loopList)
		}
		s.loops = append(s.loops, n)
	}
	var err error
	if s.files, err = proc.RaiseFiles(1 << 17); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "penstock-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	if s.peers, err = peers(s.dir); err != nil {
		return err
	}
	s.out = os.Stdout
	if s.outFile != "" {
		f, err := os.Create(s.outFile)
		if err != nil {
			return err
		}
		defer f.Close()
		s.out = io.MultiWriter(os.Stdout, f)
	}
	return s.run()
}

func measure(args []string) error {
	s := settings{
		bench:    bench{rounds: 5, warm: 300 * time.Millisecond, window: time.Second},
		loadList: "bulk16k,bulk128k,bulk1m,bulk16kx4,pingpong1,pingpong64,pingpong1000,connect,idle,udp1200,udp100,udpgso1200,udpping64,udpsession",
	}
	s.report = s.tableAndVerdicts
	fs := flag.NewFlagSet("relay", flag.ExitOnError)
	s.flags(fs)
	names := fs.String("peers", "penstock,haproxy,haproxy-auto,nginx,nginx-rcvbuf,envoy,gocopy,floor", "relays to run; the first is compared with the best of the others, and with the floor; one that is not installed is named and left out")
	fs.Parse(args)
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return s.start(func(dir string) ([]peer.Peer, error) {
		bin := peer.Binaries{Self: s.self, Envoy: peer.FindEnvoy(), Penstock: filepath.Join(dir, "penstock"), Floor: filepath.Join(dir, "floor")}
		if strings.Contains(*names, "penstock") || strings.Contains(*names, "stages") {
			if err := build("", bin.Penstock); err != nil {
				return nil, err
			}
		}
		if strings.Contains(*names, "floor") {
			if err := peer.BuildFloor(bin.Floor); err != nil {
				return nil, err
			}
		}
		return peer.Pick(peer.All(bin), *names)
	})
}

// build compiles the daemon of the checkout in a folder.
func build(checkout, bin string) error {
	cmd := exec.Command("go", "build", "-o", bin, "github.com/penstock/penstock/cmd/penstock")
	cmd.Dir = checkout
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build penstock: %w\n%s", err, out)
	}
	return nil
}
