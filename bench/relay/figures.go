//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/internal/load"
)

// figure is one number taken from a result.
type figure struct {
	unit string
	of   func(load.Result) float64
}

// Units follow the Go benchmark format: a word without spaces.
var (
	cpuPerGB = figure{"cpu-s/GB", func(r load.Result) float64 { return r.RelayCPU.Seconds() / (float64(r.Bytes) / 1e9) }}
	rate     = figure{"GB/s", func(r load.Result) float64 { return float64(r.Bytes) / 1e9 / r.Window.Seconds() }}
	cpuPerOp = figure{"cpu-us/op", func(r load.Result) float64 { return micros(r.RelayCPU) / float64(r.Ops) }}
	opRate   = figure{"op/s", func(r load.Result) float64 { return float64(r.Ops) / r.Window.Seconds() }}
	p50      = figure{"p50-us", func(r load.Result) float64 { return micros(r.P50) }}
	p99      = figure{"p99-us", func(r load.Result) float64 { return micros(r.P99) }}
	busy     = figure{"relay-busy-%", func(r load.Result) float64 { return 100 * r.RelayCPU.Seconds() / r.Window.Seconds() }}
	loadBusy = figure{"generator-busy-%", func(r load.Result) float64 { return 100 * r.LoadCPU.Seconds() / r.Window.Seconds() }}
	rssEach  = figure{"KB/conn", func(r load.Result) float64 { return float64(r.RSSAfter-r.RSSBefore) / float64(r.Ops) }}
	conns    = figure{"conns", func(r load.Result) float64 { return float64(r.Ops) }}
	loss     = figure{"loss-%", func(r load.Result) float64 { return 100 * float64(r.Lost) / float64(max(1, r.Sent)) }}
	rssAfter = figure{"KB-RSS", func(r load.Result) float64 { return float64(r.RSSAfter) }}
)

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// goal is a figure with the ratio, ours over the best peer's, that it must not
// exceed. Less is better in all of them.
type goal struct {
	figure
	bar float64
}

// figures returns what a load is judged by and what is shown beside that.
func figures(s load.Spec) (judged goal, shown []figure) {
	switch s.Kind {
	case load.Bulk:
		return goal{cpuPerGB, 0.80}, []figure{rate, busy, loadBusy}
	case load.Flood:
		if s.Burst > 0 {
			return goal{cpuPerOp, 0.10}, []figure{opRate, loss, busy, loadBusy}
		}
		return goal{cpuPerOp, 0.40}, []figure{opRate, loss, busy, loadBusy}
	case load.UDPPing:
		return goal{cpuPerOp, 1.00}, []figure{opRate, p50, p99, busy, loadBusy}
	case load.PingPong:
		if s.Conns == 1 {
			return goal{p50, 1.00}, []figure{cpuPerOp, opRate, p99, busy}
		}
		return goal{cpuPerOp, 0.97}, []figure{opRate, p50, p99, busy, loadBusy}
	case load.Connect:
		return goal{cpuPerOp, 0.95}, []figure{opRate, p50, p99, busy, loadBusy}
	default:
		return goal{rssEach, 0.20}, []figure{conns, rssAfter, cpuPerOp}
	}
}

func describe(s load.Spec) string {
	switch s.Kind {
	case load.Bulk:
		return fmt.Sprintf("%d connections, one way, writes of %d bytes", s.Conns, s.Size)
	case load.Flood:
		if s.Burst > 0 {
			return fmt.Sprintf("%d UDP flows, one way, datagrams of %d bytes sent %d at a time (GSO), %d of a flow under way at most", s.Conns, s.Size, s.Burst, load.FloodWindow)
		}
		return fmt.Sprintf("%d UDP flows, one way, datagrams of %d bytes, %d of a flow under way at most", s.Conns, s.Size, load.FloodWindow)
	case load.UDPPing:
		return fmt.Sprintf("%d UDP flows, %d bytes and their echo", s.Conns, s.Size)
	case load.PingPong:
		return fmt.Sprintf("%d connections, %d bytes and their echo", s.Conns, s.Size)
	case load.Connect:
		return fmt.Sprintf("connect, %d bytes and their echo, close; %d at a time", s.Size, s.Conns)
	default:
		return fmt.Sprintf("%d connections, each after one echo of %d bytes", s.Conns, s.Size)
	}
}
