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
	once     = figure{"KB-once/conn", func(r load.Result) float64 { return float64(r.OnceKB) / float64(r.Ops) }}
	closing  = figure{"close-cpu-us/op", func(r load.Result) float64 { return micros(r.CloseCPU) / float64(r.Ops) }}
	first    = figure{"first-process-cpu-us/op", func(r load.Result) float64 { return micros(r.FirstCPU) / float64(r.Ops) }}
	settled  = figure{"settled", func(r load.Result) float64 { return float64(r.Settled) }}
	conns    = figure{"conns", func(r load.Result) float64 { return float64(r.Conns) }}
	others   = figure{"others-%", func(r load.Result) float64 { return 100 * r.Others.Seconds() / r.Window.Seconds() }}
	loss     = figure{"loss-%", func(r load.Result) float64 { return 100 * float64(r.Lost) / float64(max(1, r.Sent)) }}
	rss      = figure{"KB-RSS", func(r load.Result) float64 { return float64(r.RSSAfter) }}
)

// smallMessage is the size up to which one connection shows latency; the round trip of a bigger message is the copying of its bytes.
const smallMessage = 64

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// figures returns the figure by which a load is judged, of which less is better, and the figures
// that are shown besides.
func figures(s load.Spec) (judged figure, shown []figure) {
	switch s.Kind {
	case load.Bulk:
		return cpuPerGB, []figure{rate, rss, busy, loadBusy, others}
	case load.Flood:
		return cpuPerOp, []figure{opRate, loss, rss, busy, loadBusy, others}
	case load.UDPPing, load.UDPConnect:
		return cpuPerOp, []figure{opRate, p50, p99, loss, rss, busy, loadBusy, others}
	case load.PingPong:
		if s.Conns == 1 && s.Size <= smallMessage {
			return p50, []figure{p99, cpuPerOp, opRate, conns, rss, busy, loadBusy, others}
		}
		return cpuPerOp, []figure{opRate, p50, p99, conns, rss, busy, loadBusy, others}
	case load.Connect:
		return cpuPerOp, []figure{opRate, p50, p99, rss, busy, loadBusy, others}
	case load.Settle:
		return cpuPerOp, []figure{first, closing, conns, rss, others}
	default:
		return rssEach, []figure{once, conns, rss, cpuPerOp, others}
	}
}

func describe(s load.Spec) string {
	switch s.Kind {
	case load.Bulk:
		return fmt.Sprintf("%d connections, one direction, writes of %d bytes", s.Conns, s.Size)
	case load.Flood:
		if s.Burst > 0 {
			return fmt.Sprintf("%d UDP flows, one direction, datagrams of %d bytes sent %d at a time (GSO), at most %d in flight per flow", s.Conns, s.Size, s.Burst, load.FloodWindow)
		}
		return fmt.Sprintf("%d UDP flows, one direction, datagrams of %d bytes, at most %d in flight per flow", s.Conns, s.Size, load.FloodWindow)
	case load.UDPPing:
		return fmt.Sprintf("%d UDP flows, %d bytes and their echo", s.Conns, s.Size)
	case load.UDPConnect:
		return fmt.Sprintf("a new UDP flow, %d bytes and their echo, close; %d at a time; the relay is told to end a flow after one reply", s.Size, s.Conns)
	case load.PingPong:
		return fmt.Sprintf("%d connections, %d bytes and their echo", s.Conns, s.Size)
	case load.Connect:
		return fmt.Sprintf("connect, %d bytes and their echo, close; %d at a time", s.Size, s.Conns)
	case load.Settle:
		return fmt.Sprintf("%d idle connections: CPU time of the relay while nothing happens but that its keeper begins to hold them, and while they end", s.Conns)
	default:
		return fmt.Sprintf("%d connections, each after one echo of %d bytes", s.Conns, s.Size)
	}
}
