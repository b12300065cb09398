//go:build linux

package main

import (
	"time"

	"github.com/penstock/penstock/bench/internal/load"
)

// A figure is one number taken from a result.
type figure struct {
	unit string
	of   func(load.TLSResult) float64
	more bool // is better
}

// Units follow the Go benchmark format: a word without spaces.
var (
	perCPU    = figure{"handshakes/cpu-s", func(r load.TLSResult) float64 { return float64(r.Ops) / r.RelayCPU.Seconds() }, true}
	cpuPerOp  = figure{unit: "cpu-us/op", of: func(r load.TLSResult) float64 { return micros(r.RelayCPU) / float64(r.Ops) }}
	cpuPerGB  = figure{unit: "cpu-s/GB", of: func(r load.TLSResult) float64 { return r.RelayCPU.Seconds() / (float64(r.Bytes) / 1e9) }}
	rate      = figure{unit: "GB/s", of: func(r load.TLSResult) float64 { return float64(r.Bytes) / 1e9 / r.Window.Seconds() }}
	opRate    = figure{unit: "op/s", of: func(r load.TLSResult) float64 { return float64(r.Ops) / r.Window.Seconds() }}
	p50       = figure{unit: "p50-us", of: func(r load.TLSResult) float64 { return micros(r.P50) }}
	p99       = figure{unit: "p99-us", of: func(r load.TLSResult) float64 { return micros(r.P99) }}
	handshake = figure{unit: "handshake-p50-us", of: func(r load.TLSResult) float64 { return micros(r.Handshake) }}
	resumed   = figure{unit: "resumed-%", of: func(r load.TLSResult) float64 { return 100 * float64(r.Resumed) / float64(max(1, r.Ops)) }}
	rssEach   = figure{unit: "KB/conn", of: func(r load.TLSResult) float64 { return float64(r.RSSAfter-r.RSSBefore) / float64(r.Ops) }}
	pssEach   = figure{unit: "KB-once/conn", of: func(r load.TLSResult) float64 { return float64(r.OnceKB) / float64(r.Ops) }}
	rss       = figure{unit: "KB-RSS", of: func(r load.TLSResult) float64 { return float64(r.RSSAfter) }}
	busy      = figure{unit: "relay-busy-%", of: func(r load.TLSResult) float64 { return share(r.RelayCPU, r.Window) }}
	loadBusy  = figure{unit: "generator-busy-%", of: func(r load.TLSResult) float64 { return share(r.LoadCPU, r.Window) }}
	others    = figure{unit: "others-%", of: func(r load.TLSResult) float64 { return share(r.Others, r.Window) }}
)

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func share(part, all time.Duration) float64 { return 100 * part.Seconds() / all.Seconds() }

// figures returns the figure by which a row is judged, and those that are shown besides.
func (r row) figures() (judged figure, shown []figure) {
	switch r.spec.Kind {
	case load.Connect:
		return perCPU, []figure{cpuPerOp, opRate, handshake, p50, p99, resumed, rss, busy, loadBusy, others}
	case load.Up, load.Down:
		return cpuPerGB, []figure{rate, rss, busy, loadBusy, others}
	case load.PingPong:
		return cpuPerOp, []figure{opRate, p50, p99, rss, busy, loadBusy, others}
	default:
		return rssEach, []figure{pssEach, rss, cpuPerOp, others}
	}
}
