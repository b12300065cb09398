//go:build linux

// Start measures the start of relays: the time from execve to the first byte that a client has back through the relay from
// its upstream, and what the relay has resident after it has rested.
//
//	go run ./bench/start -rounds 30
//	go run ./bench/start -rounds 5 -rest 2s -also v1=/path/to/an/older/penstock
//
// Rounds are interleaved. Each starts every relay once, with one loop, and the client tries to connect ten times in a millisecond.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/echo"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/report"
	"github.com/penstock/penstock/bench/internal/stat"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "start:", err)
		os.Exit(1)
	}
}

func run() error {
	rounds := flag.Int("rounds", 30, "how often each relay is started")
	rest := flag.Duration("rest", 0, "how long a relay rests before its memory is measured (0: memory is not measured)")
	bin := flag.String("penstock", "", "the `binary` of this checkout (empty: it is built)")
	also := flag.String("also", "", "older binaries: NAME=PATH, with commas between them")
	outFile := flag.String("out", "", "also append everything to this `FILE`")
	flag.Parse()
	dir, err := os.MkdirTemp("", "penstock-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if *bin == "" {
		*bin = filepath.Join(dir, "penstock")
		os.Setenv("CGO_ENABLED", "0") // of go build
		if err := peer.Build("", *bin, nil); err != nil {
			return err
		}
	}
	peers := penstocks("penstock", "this checkout", *bin)
	for text := range strings.SplitSeq(*also, ",") {
		if name, path, ok := strings.Cut(text, "="); ok {
			peers = append(peers, penstocks(name, "an older one", path)...)
		}
	}
	others, err := peer.Pick(peer.All(peer.Binaries{}), "haproxy,nginx")
	if err != nil {
		return err
	}
	out := io.Writer(os.Stdout)
	if *outFile != "" {
		f, err := os.OpenFile(*outFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		out = io.MultiWriter(out, f)
	}
	return measure(out, append(peers, others...), dir, *rounds, *rest)
}

// penstocks returns a binary in the three forms in which a daemon starts.
func penstocks(name, note, bin string) []peer.Peer {
	return []peer.Peer{
		peer.Penstock(name, note+", penstock relay", bin),
		peer.Kept(name+"-run", note+", penstock run", bin, ""),
		peer.Kept(name+"-keep", note+", penstock run with a keeper: two processes", bin, "{}"),
	}
}

func measure(out io.Writer, peers []peer.Peer, dir string, rounds int, rest time.Duration) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go echo.Serve(l, func(c net.Conn) { io.Copy(c, c) })
	if err := report.Machine(out); err != nil {
		return err
	}
	fmt.Fprintf(out, "rounds: %d\nrest: %v\n", rounds, rest)
	setup := peer.Setup{Upstream: l.Addr().String(), Loops: 1, Files: 1 << 10, Dir: dir}
	left := map[string]bool{} // out
	figures := map[string][]figure{}
	for r := range rounds {
		for _, p := range peers {
			if left[p.Name] {
				continue
			}
			if r == 0 {
				version, err := p.Version()
				if err = cmp.Or(p.Missing(), err); err != nil {
					left[p.Name] = true
					fmt.Fprintf(out, "%s: left out: %v\n", p.Name, err)
					continue
				}
				fmt.Fprintf(out, "%s: %s (%s)\n", p.Name, version, p.Note)
			}
			f, err := startOnce(p, setup, rest)
			if errors.Is(err, errEnded) && r == 0 {
				left[p.Name] = true
				fmt.Fprintf(out, "%s: left out: %v\n", p.Name, err)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			figures[p.Name] = append(figures[p.Name], f)
			fmt.Fprintf(out, "BenchmarkStart/peer=%s\t1\t%.2f ms/start\t%d KB-RSS\t%d KB-anonymous\t%d processes\n", p.Name, f.ms, f.memory.RSS, f.memory.Anonymous, f.processes)
		}
	}
	fmt.Fprintf(out, "#\n# medians of %d\n# %-20s %10s %12s %12s\n", rounds, "relay", "start, ms", "resident, KB", "anonymous, KB")
	for _, p := range peers {
		if list := figures[p.Name]; len(list) > 0 {
			of := func(value func(figure) float64) float64 { return stat.Median(stat.Of(list, value)) }
			fmt.Fprintf(out, "# %-20s %10.1f %12.0f %12.0f\n", p.Name, of(func(f figure) float64 { return f.ms }),
				of(func(f figure) float64 { return float64(f.memory.RSS) }), of(func(f figure) float64 { return float64(f.memory.Anonymous) }))
		}
	}
	return nil
}

// figure is what one start has given.
type figure struct {
	ms        float64
	memory    proc.Memory
	processes int
}

var errEnded = errors.New("ended before it relayed")

// startOnce starts a relay, has one echo from it, lets it rest, and ends it.
func startOnce(p peer.Peer, s peer.Setup, rest time.Duration) (f figure, err error) {
	if s.Listen, err = freeAddr(); err != nil {
		return f, err
	}
	plan := p.Plan(s)
	if plan.File != "" {
		if err := os.WriteFile(plan.File, []byte(plan.Config), 0o644); err != nil {
			return f, err
		}
	}
	cmd := exec.Command(plan.Argv[0], plan.Argv[1:]...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = nil, &said
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return f, err
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	defer func() {
		tree := proc.Tree(cmd.Process.Pid)
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(2 * time.Second):
			for _, pid := range slices.Backward(tree) {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			<-ended
		}
	}()
	for {
		if err = echoOnce(s.Listen); err == nil {
			break
		}
		select {
		case <-ended:
			return f, fmt.Errorf("%w: %s", errEnded, strings.TrimSpace(said.String()))
		case <-time.After(100 * time.Microsecond):
		}
		if time.Since(begin) > 30*time.Second {
			return f, fmt.Errorf("not ready after 30 s: %w", err)
		}
	}
	f.ms = float64(time.Since(begin)) / float64(time.Millisecond)
	if rest > 0 {
		time.Sleep(rest)
		tree := proc.Tree(cmd.Process.Pid)
		f.processes = len(tree)
		f.memory, err = proc.MemoryOf(tree)
	}
	return f, err
}

// echoOnce has one byte back through a relay.
func echoOnce(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return echo.Ask(c, []byte{1})
}

// freeAddr returns an address that nobody has.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
