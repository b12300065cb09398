//go:build linux

package main

import (
	"fmt"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/rounds"
)

// smallMessage is the size up to which one connection shows latency; the round trip of a bigger message is the copying of its bytes.
const smallMessage = 64

// figures returns the figure by which a load is judged, of which less is better, and the figures
// that are shown besides.
func figures(s load.Spec) rounds.Choice {
	switch s.Kind {
	case load.Bulk:
		return rounds.Judge(rounds.CPUPerGB, rounds.Rate, rounds.RSS, rounds.Busy, rounds.LoadBusy, rounds.Others)
	case load.Flood:
		return rounds.Judge(rounds.CPUPerOp, rounds.OpRate, rounds.Loss, rounds.RSS, rounds.Busy, rounds.LoadBusy, rounds.Others)
	case load.UDPPing, load.UDPConnect:
		return rounds.Judge(rounds.CPUPerOp, rounds.OpRate, rounds.P50, rounds.P99, rounds.Loss, rounds.RSS, rounds.Busy, rounds.LoadBusy, rounds.Others)
	case load.PingPong:
		if s.Conns == 1 && s.Size <= smallMessage {
			return rounds.Judge(rounds.P50, rounds.P99, rounds.CPUPerOp, rounds.OpRate, rounds.Conns, rounds.RSS, rounds.Busy, rounds.LoadBusy, rounds.Others)
		}
		return rounds.Judge(rounds.CPUPerOp, rounds.OpRate, rounds.P50, rounds.P99, rounds.Conns, rounds.RSS, rounds.Busy, rounds.LoadBusy, rounds.Others)
	case load.Connect:
		return rounds.Judge(rounds.CPUPerOp, rounds.OpRate, rounds.P50, rounds.P99, rounds.RSS, rounds.Busy, rounds.LoadBusy, rounds.Others)
	case load.Settle:
		return rounds.Judge(rounds.CPUPerOp, rounds.First, rounds.Closing, rounds.Conns, rounds.RSS, rounds.Others)
	default:
		return rounds.Judge(rounds.RSSEach, rounds.Once, rounds.Conns, rounds.RSS, rounds.CPUPerOp, rounds.Others)
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
