//go:build linux

// Dgram compares package dgram with net and golang.org/x/net, in the shape of x/net's BenchmarkUDP:
// a socket writes n datagrams to itself over loopback and reads them.
//
//	go run ./bench/dgram -out result.txt
//
// All implementations run in one process, one after the other, in many short interleaved rounds, so
// that disturbances of the machine affect all of them alike. Ratios are relative to x/net's batch
// calls. In the names, "iter" means one call per datagram, "batch" one call for n of them, "plain"
// dgram with GSO and GRO off, and "floor" only the system calls.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/report"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dgram:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	fs := flag.NewFlagSet("dgram", flag.ExitOnError)
	rounds := fs.Int("rounds", 9, "rounds; each runs every implementation once for each n and size")
	window := fs.Duration("window", 25*time.Millisecond, "length of one measurement")
	ns := fs.String("n", "1,2,4,8,16,32,64,128,256,512", "batch sizes")
	sizes := fs.String("size", "1200,64", "payload sizes")
	only := fs.String("impls", "", "run only these implementations (default all)")
	out := fs.String("out", "", "also write everything to this `FILE`")
	fs.Parse(args)
	w, done, err := report.Output(*out)
	if err != nil {
		return err
	}
	defer done()
	b := bench{window: *window, out: w}
	for _, w := range impls {
		if *only == "" || strings.Contains(","+*only+",", ","+w.name+",") {
			b.impls = append(b.impls, w)
		}
	}
	if b.ns, err = numbers(*ns); err != nil {
		return err
	}
	if b.sizes, err = numbers(*sizes); err != nil {
		return err
	}
	if err := b.header(*rounds); err != nil {
		return err
	}
	for range *rounds {
		if err := b.round(); err != nil {
			return err
		}
	}
	b.table()
	return nil
}

func numbers(list string) (all []int, err error) {
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("want a list of numbers from 1 up, not %q", list)
		}
		all = append(all, n)
	}
	return all, nil
}

// header prints the conditions of the measurement.
func (b *bench) header(rounds int) error {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "date: %s\ncpu: %d x %s\nkernel: %s\ngo: %s\n", time.Now().UTC().Format(time.DateTime),
		runtime.NumCPU(), report.Model(), unix.ByteSliceToString(uts.Release[:]), runtime.Version())
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "golang.org/x/net" {
				fmt.Fprintf(b.out, "x/net: %s\n", m.Version)
			}
		}
	}
	fmt.Fprintf(b.out, "commit: %s\ngomaxprocs: %d\nrounds: %d\nwindow: %v\n", report.Commit(), runtime.GOMAXPROCS(0), rounds, b.window)
	return nil
}
