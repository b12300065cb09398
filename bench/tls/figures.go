//go:build linux

package main

import (
	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/rounds"
)

// figures returns the figure by which a row is judged, and those that are shown besides.
func (r row) figures() rounds.Choice {
	switch r.spec.Kind {
	case load.Connect:
		return rounds.Judge(rounds.OpsPerCPU, rounds.CPUPerOp, rounds.OpRate, rounds.Handshake, rounds.P50, rounds.P99, rounds.Resumed, rounds.RSS, rounds.Busy, rounds.LoadBusy, rounds.Others)
	case load.Up, load.Down:
		return rounds.Judge(rounds.CPUPerGB, rounds.Rate, rounds.RSS, rounds.Busy, rounds.LoadBusy, rounds.Others)
	case load.PingPong:
		return rounds.Judge(rounds.CPUPerOp, rounds.OpRate, rounds.P50, rounds.P99, rounds.RSS, rounds.Busy, rounds.LoadBusy, rounds.Others)
	default:
		return rounds.Judge(rounds.RSSEach, rounds.Once, rounds.RSS, rounds.CPUPerOp, rounds.Others)
	}
}
