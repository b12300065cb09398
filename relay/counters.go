package relay

import (
	"time"

	"github.com/penstock/penstock/relay/stats"
)

// loopCounters is what one loop counts; package stats says what each of them is. It may lie in the loop's
// ledger, where the next process, perhaps of another version, finds each counter by the name of its field: a
// name must not be changed. The arrays, by Cause and by [stats.Drop], have room for values that later versions
// add.
type loopCounters struct {
	Flows             int64
	Accepted          int64
	Adopted           int64
	Connects          int64
	ConnectErrors     int64
	Ended             [64]int64
	BytesRead         int64
	BytesWritten      int64
	BytesSpliced      int64
	BytesDropped      int64
	Kept              int64
	KeepErrors        int64
	Restored          int64
	AcceptErrors      int64
	AcceptPauses      int64
	Waits             int64
	Wakeups           int64
	Events            int64
	Busy, LongestTurn time.Duration
	Datagrams         datagramCounters
}

// datagramCounters is the part of loopCounters that is about datagrams.
type datagramCounters struct {
	Flows              int64
	Begun              int64
	Received           int64
	Sent               int64
	Dropped            [64]int64
	Crowded            int64
	Lost               int64
	BytesHeld          int64
	AnswersOnly        int64
	Resting            int64
	RestingClosedEarly int64
	ICMPErrors         int64
	ReadCalls          int64
	SuperPackets       int64
	WriteCalls         int64
	Runs               int64
	Fallbacks          int64
}

// resetGauges sets to 0 what an earlier process had, and is not there any more.
func (c *loopCounters) resetGauges() {
	c.Flows, c.Kept, c.LongestTurn = 0, 0, 0
	c.Datagrams.Flows, c.Datagrams.BytesHeld, c.Datagrams.Resting = 0, 0, 0
}

func (c *loopCounters) add(o *loopCounters) {
	c.Flows += o.Flows
	c.Accepted += o.Accepted
	c.Adopted += o.Adopted
	c.Connects += o.Connects
	c.ConnectErrors += o.ConnectErrors
	addAll(&c.Ended, &o.Ended)
	c.BytesRead += o.BytesRead
	c.BytesWritten += o.BytesWritten
	c.BytesSpliced += o.BytesSpliced
	c.BytesDropped += o.BytesDropped
	c.Kept += o.Kept
	c.KeepErrors += o.KeepErrors
	c.Restored += o.Restored
	c.AcceptErrors += o.AcceptErrors
	c.AcceptPauses += o.AcceptPauses
	c.Waits += o.Waits
	c.Wakeups += o.Wakeups
	c.Events += o.Events
	c.Busy += o.Busy
	c.LongestTurn = max(c.LongestTurn, o.LongestTurn)
	c.Datagrams.add(&o.Datagrams)
}

func (c *datagramCounters) add(o *datagramCounters) {
	c.Flows += o.Flows
	c.Begun += o.Begun
	c.Received += o.Received
	c.Sent += o.Sent
	addAll(&c.Dropped, &o.Dropped)
	c.Crowded += o.Crowded
	c.Lost += o.Lost
	c.BytesHeld += o.BytesHeld
	c.AnswersOnly += o.AnswersOnly
	c.Resting += o.Resting
	c.RestingClosedEarly += o.RestingClosedEarly
	c.ICMPErrors += o.ICMPErrors
	c.ReadCalls += o.ReadCalls
	c.SuperPackets += o.SuperPackets
	c.WriteCalls += o.WriteCalls
	c.Runs += o.Runs
	c.Fallbacks += o.Fallbacks
}

func addAll(c, o *[64]int64) {
	for k, n := range o {
		c[k] += n
	}
}

// stats returns the counters as the engine's callers see them.
func (c *loopCounters) stats() stats.Loop {
	ended := make(map[string]int64)
	for k, n := range c.Ended {
		if n != 0 {
			ended[Cause(k).String()] += n
		}
	}
	return stats.Loop{
		Flows: c.Flows, Accepted: c.Accepted, Adopted: c.Adopted, Connects: c.Connects, ConnectErrors: c.ConnectErrors, Ended: ended,
		BytesRead: c.BytesRead, BytesWritten: c.BytesWritten, BytesSpliced: c.BytesSpliced, BytesDropped: c.BytesDropped,
		Kept: c.Kept, KeepErrors: c.KeepErrors, Restored: c.Restored, AcceptErrors: c.AcceptErrors, AcceptPauses: c.AcceptPauses,
		Waits: c.Waits, Wakeups: c.Wakeups, Events: c.Events, Busy: c.Busy, LongestTurn: c.LongestTurn,
		Datagrams: c.Datagrams.stats(),
	}
}

func (c *datagramCounters) stats() stats.Datagrams {
	return stats.Datagrams{
		Flows: c.Flows, Begun: c.Begun, Received: c.Received, Sent: c.Sent, Dropped: stats.CountsOf[stats.Drop](c.Dropped[:]), Crowded: c.Crowded, Lost: c.Lost,
		BytesHeld: c.BytesHeld, AnswersOnly: c.AnswersOnly, Resting: c.Resting, RestingClosedEarly: c.RestingClosedEarly, ICMPErrors: c.ICMPErrors,
		ReadCalls: c.ReadCalls, SuperPackets: c.SuperPackets, WriteCalls: c.WriteCalls, Runs: c.Runs, Fallbacks: c.Fallbacks,
	}
}
