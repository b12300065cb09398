//go:build linux

// Splice compares implementations of carrying a stream from socket to socket inside a Go program: a
// user-space copy, io.Copy and penstock's splice.Copy. It has the shape of the benchmark of Go's
// own splice (src/net/splice_linux_test.go): every pair of TCP and Unix sockets, chunks of 1 KiB to
// 1 MiB, both ends in child processes.
//
//	go run ./bench/splice                       # interleaved rounds, ratios
//	go test -bench Splice ./bench/splice        # the same cases as Go benchmarks
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/report"
)

var parts = child.Parts{"splice-end": child.Does(play)}

func main() {
	if is, err := parts.Play(os.Args[1:]); is {
		exit(err)
	}
	exit(measure())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "splice:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func measure() error {
	netList := flag.String("nets", strings.Join(nets, ","), "socket pairs")
	sizeList := flag.String("sizes", "", "chunk sizes in bytes; empty: 1024 to 1048576")
	rounds := flag.Int("rounds", 7, "rounds of each case; each runs every implementation once")
	each := flag.Duration("for", 50*time.Millisecond, "about how long one transfer takes")
	out := flag.String("out", "", "also write everything to this `FILE`")
	flag.Parse()
	r := runner{rounds: *rounds, each: *each}
	for n := range strings.SplitSeq(*netList, ",") {
		if !slices.Contains(nets, n) {
			return fmt.Errorf("socket pair %q: want some of %s", n, strings.Join(nets, ","))
		}
		r.nets = append(r.nets, n)
	}
	r.sizes = sizes()
	if *sizeList != "" {
		r.sizes = nil
		for s := range strings.SplitSeq(*sizeList, ",") {
			n, err := strconv.Atoi(s)
			if err != nil || n < 1 {
				return fmt.Errorf("chunk size %q: want a number of bytes", s)
			}
			r.sizes = append(r.sizes, n)
		}
	}
	w, done, err := report.Output(*out)
	if err != nil {
		return err
	}
	defer done()
	r.out = w
	return r.run()
}
