//go:build linux

package rounds

import (
	"fmt"
	"io"
	"time"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/stat"
)

// A Figure is one number taken from a result.
type Figure struct {
	Unit string
	Of   func(load.Result) float64
	More bool // is better
}

// Units follow the Go benchmark format: a word without spaces.
var (
	CPUPerGB  = Figure{Unit: "cpu-s/GB", Of: func(r load.Result) float64 { return r.RelayCPU.Seconds() / (float64(r.Bytes) / 1e9) }}
	Rate      = Figure{Unit: "GB/s", Of: func(r load.Result) float64 { return float64(r.Bytes) / 1e9 / r.Window.Seconds() }}
	CPUPerOp  = Figure{Unit: "cpu-us/op", Of: func(r load.Result) float64 { return micros(r.RelayCPU) / float64(r.Ops) }}
	OpRate    = Figure{Unit: "op/s", Of: func(r load.Result) float64 { return float64(r.Ops) / r.Window.Seconds() }}
	P50       = Figure{Unit: "p50-us", Of: func(r load.Result) float64 { return micros(r.P50) }}
	P99       = Figure{Unit: "p99-us", Of: func(r load.Result) float64 { return micros(r.P99) }}
	Busy      = Figure{Unit: "relay-busy-%", Of: func(r load.Result) float64 { return share(r.RelayCPU, r) }}
	LoadBusy  = Figure{Unit: "generator-busy-%", Of: func(r load.Result) float64 { return share(r.LoadCPU, r) }}
	RSSEach   = Figure{Unit: "KB/conn", Of: func(r load.Result) float64 { return float64(r.RSSAfter-r.RSSBefore) / float64(r.Ops) }}
	Once      = Figure{Unit: "KB-once/conn", Of: func(r load.Result) float64 { return float64(r.OnceKB) / float64(r.Ops) }}
	Closing   = Figure{Unit: "close-cpu-us/op", Of: func(r load.Result) float64 { return micros(r.CloseCPU) / float64(r.Ops) }}
	First     = Figure{Unit: "first-process-cpu-us/op", Of: func(r load.Result) float64 { return micros(r.FirstCPU) / float64(r.Ops) }}
	Settled   = Figure{Unit: "settled", Of: func(r load.Result) float64 { return float64(r.Settled) }}
	Conns     = Figure{Unit: "conns", Of: func(r load.Result) float64 { return float64(r.Conns) }}
	Others    = Figure{Unit: "others-%", Of: func(r load.Result) float64 { return share(r.Others, r) }}
	Loss      = Figure{Unit: "loss-%", Of: func(r load.Result) float64 { return 100 * float64(r.Lost) / float64(max(1, r.Sent)) }}
	RSS       = Figure{Unit: "KB-RSS", Of: func(r load.Result) float64 { return float64(r.RSSAfter) }}
	OpsPerCPU = Figure{Unit: "handshakes/cpu-s", Of: func(r load.Result) float64 { return float64(r.Ops) / r.RelayCPU.Seconds() }, More: true}
	Handshake = Figure{Unit: "handshake-p50-us", Of: func(r load.Result) float64 { return micros(r.Handshake) }}
	Resumed   = Figure{Unit: "resumed-%", Of: func(r load.Result) float64 { return 100 * float64(r.Resumed) / float64(max(1, r.Ops)) }}
)

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// share returns a part of the window in per cent.
func share(part time.Duration, r load.Result) float64 {
	return 100 * part.Seconds() / r.Window.Seconds()
}

// A Choice has the figure by which a load is judged, and the figures that are shown besides.
type Choice struct {
	Judged Figure
	Shown  []Figure
}

// Judge returns a choice.
func Judge(by Figure, shown ...Figure) Choice { return Choice{by, shown} }

// Line prints one round in the Go benchmark format, with its name.
func (c Choice) Line(w io.Writer, name string, r load.Result) {
	fmt.Fprintf(w, "%s\t%d\t%.4g %s", name, r.Ops, c.Judged.Of(r), c.Judged.Unit)
	for _, f := range c.Shown {
		fmt.Fprintf(w, "\t%.4g %s", f.Of(r), f.Unit)
	}
	if r.Kept {
		fmt.Fprintf(w, "\t%.4g %s", Settled.Of(r), Settled.Unit)
	}
	fmt.Fprintln(w)
}

// Head prints the heads of the columns of Medians.
func (c Choice) Head(w io.Writer) {
	fmt.Fprintf(w, "rounds\t%s\tspread\t", c.Judged.Unit)
	for _, f := range c.Shown {
		fmt.Fprintf(w, "%s\t", f.Unit)
	}
}

// Medians prints those of a relay in a table.
func (c Choice) Medians(w io.Writer, rs []load.Result) {
	xs := stat.Of(rs, c.Judged.Of)
	fmt.Fprintf(w, "%d\t%.4g\t±%.0f%%\t", len(xs), stat.Median(xs), 100*stat.Spread(xs))
	for _, f := range c.Shown {
		fmt.Fprintf(w, "%.4g\t", stat.Median(stat.Of(rs, f.Of)))
	}
}
