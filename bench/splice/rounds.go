//go:build linux

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/penstock/penstock/bench/internal/report"
	"github.com/penstock/penstock/bench/internal/stat"
)

// The goals for splice.Copy, relative to io.Copy's time per chunk.
const (
	anyBar  = 1.05
	unixBar = 0.60 // unix-to-unix, chunks of unixAt and more
	unixAt  = 128 << 10
)

type runner struct {
	nets   []string
	sizes  []int
	rounds int
	each   time.Duration
	out    io.Writer
}

// samples of one case, by implementation, round by round.
type samples [][]sample

func (r *runner) run() error {
	if err := report.Machine(r.out); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "rounds: %d\ncongestion-control: reno\n", r.rounds)
	all := map[bench]samples{}
	for _, net := range r.nets {
		for _, size := range r.sizes {
			c := bench{net, size}
			s, err := r.measure(c)
			if err != nil {
				return err
			}
			all[c] = s
		}
	}
	r.table(all)
	return nil
}

// measure interleaves the implementations; all carry the same number of chunks.
func (r *runner) measure(c bench) (samples, error) {
	n, err := r.calibrate(c)
	if err != nil {
		return nil, err
	}
	s := make(samples, len(impls))
	for round := range r.rounds {
		for i := range impls {
			i = (i + round) % len(impls)
			got, err := c.run(impls[i], n)
			if err != nil {
				return nil, err
			}
			s[i] = append(s[i], got)
			fmt.Fprintf(r.out, "%s\t%d\t%.1f ns/op\t%.1f MB/s\t%.1f cpu-ns/op\n", c.name(impls[i]), n,
				perOp(got.wall, n), float64(n)*float64(c.size)/1e6/got.wall.Seconds(), perOp(got.cpu, n))
		}
	}
	return s, nil
}

// calibrate finds the number of chunks that io.Copy carries in the given time.
func (r *runner) calibrate(c bench) (int, error) {
	base := impls[1]
	for n := max(8<<20/c.size, 1); ; n *= 4 {
		s, err := c.run(base, n)
		if err != nil {
			return 0, err
		}
		if s.wall > r.each/4 {
			return max(int(float64(n)*float64(r.each)/float64(s.wall)), 1), nil
		}
	}
}

func perOp(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / float64(n) }

// table prints the times of each case relative to io.Copy's, and compares ours with the goals.
func (r *runner) table(all map[bench]samples) {
	fmt.Fprint(r.out, "\n# time per chunk (and CPU time of the copying process), medians, io.Copy = 1\n")
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "# net\tsize")
	for _, m := range impls {
		fmt.Fprintf(w, "\t%s\tcpu", m.name)
	}
	fmt.Fprint(w, "\tio.Copy MB/s\tgoal\t\n")
	behind := 0
	for _, net := range r.nets {
		for _, size := range r.sizes {
			s := all[bench{net, size}]
			wall, cpu := medians(s[1])
			fmt.Fprintf(w, "# %s\t%d", net, size)
			ratio := 0.0
			for i := range impls {
				ourWall, ourCPU := medians(s[i])
				ratio = ourWall / wall
				fmt.Fprintf(w, "\t%.3f\t%.3f", ratio, ourCPU/cpu)
			}
			verdict := "reached"
			if ratio > bar(net, size) {
				verdict = "BEHIND"
				behind++
			}
			fmt.Fprintf(w, "\t%.0f\t%.2f\t%s\n", s[1][0].bytes/1e6/(wall/1e9), bar(net, size), verdict)
		}
	}
	w.Flush()
	fmt.Fprintf(r.out, "# cases that miss their goal: %d of %d\n", behind, len(all))
}

func bar(net string, size int) float64 {
	if net == "unix-to-unix" && size >= unixAt {
		return unixBar
	}
	return anyBar
}

func medians(s []sample) (wall, cpu float64) {
	return stat.Median(stat.Of(s, func(x sample) float64 { return float64(x.wall) })), stat.Median(stat.Of(s, func(x sample) float64 { return float64(x.cpu) }))
}
