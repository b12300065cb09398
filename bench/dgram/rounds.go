//go:build linux

package main

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/penstock/penstock/bench/internal/stat"
)

type bench struct {
	impls     []impl
	ns, sizes []int
	window    time.Duration
	out       io.Writer
	results   map[row][]figures
}

// row is one line of the table.
type row struct {
	impl    string
	n, size int
}

// figures are the results of one measurement, all per datagram except for the last.
type figures struct {
	ns, calls   float64
	allocsBatch float64
}

func (b *bench) round() error {
	if b.results == nil {
		b.results = make(map[row][]figures)
	}
	for _, size := range b.sizes {
		for _, n := range b.ns {
			for _, w := range b.impls {
				f, err := b.measure(w, n, size)
				if err != nil {
					return fmt.Errorf("%s, n=%d, size=%d: %w", w.name, n, size, err)
				}
				at := row{w.name, n, size}
				b.results[at] = append(b.results[at], f)
			}
		}
	}
	return nil
}

// measure runs an implementation for the window, after warming up for a tenth of it.
func (b *bench) measure(w impl, n, size int) (figures, error) {
	c, err := socket()
	if err != nil {
		return figures{}, err
	}
	defer c.Close()
	x, err := w.open(c, n, size)
	if err != nil {
		return figures{}, err
	}
	defer x.end()
	runtime.GC()
	if _, _, err := b.loop(x, n, b.window/10); err != nil {
		return figures{}, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	calls := x.calls()
	took, batches, err := b.loop(x, n, b.window)
	if err != nil {
		return figures{}, err
	}
	calls = x.calls() - calls
	runtime.ReadMemStats(&after)
	f := figures{
		ns:          float64(took.Nanoseconds()) / float64(batches*n),
		calls:       float64(calls) / float64(batches*n),
		allocsBatch: float64((after.Mallocs - before.Mallocs) / uint64(batches)), // whole numbers, as in Go's benchmarks
	}
	fmt.Fprintf(b.out, "BenchmarkUDP/impl=%s/n=%d/size=%d\t%d\t%.1f ns/datagram\t%.4f calls/datagram\t%.0f allocs/op\n",
		w.name, n, size, batches, f.ns, f.calls, f.allocsBatch)
	return f, nil
}

func (b *bench) loop(x exchange, n int, window time.Duration) (took time.Duration, batches int, err error) {
	start := time.Now()
	for took < window {
		for range max(1, 64/n) {
			if err := x.once(); err != nil {
				return 0, 0, err
			}
			batches++
		}
		took = time.Since(start)
	}
	return took, batches, nil
}

// table prints medians, and the ratio of each implementation to x/net's batch calls, computed round
// by round.
func (b *bench) table() {
	for _, size := range b.sizes {
		w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "#\n# %d bytes, n\t", size)
		for _, y := range b.impls {
			fmt.Fprintf(w, "%s ns\tallocs\tcalls\t", y.name)
			if y.name != base {
				fmt.Fprint(w, "/ x/net\t")
			}
		}
		fmt.Fprintln(w)
		for _, n := range b.ns {
			theirs := stat.Of(b.results[row{base, n, size}], func(f figures) float64 { return f.ns })
			fmt.Fprintf(w, "# %d\t", n)
			for _, y := range b.impls {
				fs := b.results[row{y.name, n, size}]
				ours := stat.Of(fs, func(f figures) float64 { return f.ns })
				fmt.Fprintf(w, "%.0f\t%.0f\t%.3f\t", stat.Median(ours),
					stat.Median(stat.Of(fs, func(f figures) float64 { return f.allocsBatch })),
					stat.Median(stat.Of(fs, func(f figures) float64 { return f.calls })))
				if y.name != base {
					fmt.Fprintf(w, "%.3f\t", stat.PairedRatio(ours, theirs))
				}
			}
			fmt.Fprintln(w)
		}
		w.Flush()
	}
}

// base is the implementation that the ratios are relative to.
const base = "xnet-batch"
