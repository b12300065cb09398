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
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/rounds"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if is, err := parts.Play(args); is {
		return err
	}
	if len(args) > 0 {
		switch args[0] {
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
	loadList, loopList string
}

func (s *settings) flags(fs *flag.FlagSet) {
	fs.StringVar(&s.loadList, "loads", s.loadList, "loads to run, in order: bulkSIZE[xCONNS], pingpong[SIZEx]CONNS, connect[CONNS], idle[CONNS], settle[CONNS], udpSIZE[xFLOWS], udpgsoSIZE[xFLOWS], udpquicSIZE[xFLOWS], udppingFLOWS, udpsession[FLOWS]")
	s.Flags(fs, "load")
	fs.StringVar(&s.loopList, "loops", "1", "threads or processes of a relay that carry traffic; several numbers give several rows")
	fs.BoolVar(&s.verify, "verify", true, "before a bulk load, send 64 MiB through each relay and compare checksums")
	fs.BoolVar(&s.Place.Veth, "veth", false, "client, relay and upstream in three network namespaces, linked by pairs of veth devices, instead of loopback")
	fs.StringVar(&s.Place.Congestion, "congestion", "reno", "TCP congestion control of the fresh namespace (empty: the machine's)")
	fs.StringVar(&s.profile, "profile", "", "also sample each relay and count its system calls with perf(1); profile-LOAD-PEER.txt goes into this `FOLDER`")
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
	end, err := s.Begin()
	if err != nil {
		return err
	}
	defer end()
	if s.peers, err = peers(s.Dir); err != nil {
		return err
	}
	return s.run()
}

func measure(args []string) error {
	s := settings{
		bench:    bench{Settings: rounds.Settings{Rounds: 5, Warm: 300 * time.Millisecond, Window: time.Second}},
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
		bin := peer.Binaries{Self: s.Self, Envoy: peer.FindEnvoy(), Penstock: filepath.Join(dir, "penstock"), Floor: filepath.Join(dir, "floor")}
		if strings.Contains(*names, "penstock") || strings.Contains(*names, "stages") {
			if err := peer.Build("", bin.Penstock, nil); err != nil {
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
