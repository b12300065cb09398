// Package stats describes what a relay engine has counted, and what the kernel knows of its
// flows. Its API may change after version 1.0 of the module; CHANGELOG.md then says how to follow.
//
// Engine.Stats of package relay returns an [Engine]. It has the counters of each event loop;
// Total returns their sums:
//
//	s := engine.Stats()
//	fmt.Println(s.Flows(), "open flows")
//	fmt.Println(s.Total().BytesWritten, "bytes")
//	fmt.Println(s.Total().Ended[relay.CauseIdle.String()], "flows were idle for too long")
//	fmt.Println(s.Total().Datagrams.Dropped.Get(stats.DropFull), "datagrams found a full socket")
package stats

import (
	"time"

	"github.com/penstock/penstock/pool"
)

// Engine has the counters of an engine since it was made, and its gauges. With relay.Config.Keep the
// counters of Loops go on from those of the process before.
type Engine struct {
	Loops []Loop
	// The pipes that are open, and of them those that hold bytes; the maximum; and how
	// often a direction found no free one.
	PipesOpen, PipesLeased, PipesMax, PipesRefused int64
	// LoopsPaused is the number of loops that accept no stream clients at present, because a
	// descriptor or memory was missing. It is a gauge.
	LoopsPaused int64
	Descriptors Descriptors
	// Buffers are the buffers for bytes that a slow side has not taken, for sniffed
	// bytes, and for held datagrams.
	Buffers pool.BuffersStats
}

// Descriptors are the descriptors of the process. A client is accepted, and a datagram flow
// begins, when Limit has room for what it needs beside InUse and Reserved.
type Descriptors struct {
	Limit    int64 // RLIMIT_NOFILE
	InUse    int64 // those that are open, and those that open flows will need
	Reserved int64 // those that are left to the rest of the program
	Waits    int64 // how often a loop had to wait for some, while clients waited in the accept queue
	// LoopsPaused is the number of loops that accept no stream clients at present, because there are
	// none for them: what is left may be for datagram flows.
	LoopsPaused int64
}

// Loop has the counters and gauges of one event loop.
type Loop struct {
	Flows         int64            // gauge: open flows
	Accepted      int64            // clients accepted
	Adopted       int64            // pairs given to Engine.Relay
	Connects      int64            // upstreams connected
	ConnectErrors int64            // attempts to connect that failed
	Ended         map[string]int64 // flows ended, by the text of their relay.Cause; causes that did not occur are not in it
	BytesRead     int64            // from clients and upstreams
	BytesWritten  int64            // to clients and upstreams
	BytesSpliced  int64            // of BytesWritten, those that never were in user space
	BytesDropped  int64            // bytes read and not written
	Kept          int64            // gauge: flows that would outlive the process; see relay.Config.Keep
	KeepErrors    int64            // attempts to keep a flow that failed
	Restored      int64            // flows that outlived another process and went on here
	AcceptErrors  int64            // failed accepts
	AcceptPauses  int64            // pauses of accepting, for want of descriptors or memory
	Waits         int64            // epoll_wait calls
	Wakeups       int64            // of Waits, those that slept in the kernel
	Events        int64            // events returned by epoll_wait
	// Busy is the time spent outside of epoll_wait. LongestTurn is the longest time
	// between two of its calls in the last 15 to 30 seconds. Both include the time that
	// the thread waited for a CPU.
	Busy, LongestTurn time.Duration
	Datagrams         Datagrams // of datagram flows, which the counters above include
}

// Datagrams has the counters and gauges of one loop's datagram flows. When no flow
// is open, Received is equal to Sent plus the sum of Dropped.
type Datagrams struct {
	Flows              int64        // gauge: open flows
	Begun              int64        // flows that began
	Received           int64        // datagrams received, from clients and upstreams
	Sent               int64        // datagrams sent, to clients and upstreams
	Dropped            Counts[Drop] // datagrams received and not sent
	Crowded            int64        // datagrams of new clients dropped as DropLimited because the loop had fallen behind; see relay.Config.MaxNewDatagramFlows
	Lost               int64        // datagrams that the kernel dropped before they were received (SO_RXQ_OVFL)
	BytesHeld          int64        // gauge: bytes held for upstreams whose sockets are full
	AnswersOnly        int64        // flows that go on after their listener has closed, and get nothing more from their clients; see relay.DatagramConfig
	Resting            int64        // gauge: resting sockets; see relay.DatagramConfig
	RestingClosedEarly int64        // resting sockets that were closed early
	ICMPErrors         int64        // ICMP errors of upstreams
	ReadCalls          int64        // system calls that received something
	SuperPackets       int64        // messages received that held several datagrams (GRO)
	WriteCalls         int64        // system calls that sent something
	Runs               int64        // messages sent that held several datagrams (GSO)
	Fallbacks          int64        // runs that a route refused, and that were sent again as single datagrams
}

// Flows returns the number of open flows.
func (s Engine) Flows() (n int64) {
	for i := range s.Loops {
		n += s.Loops[i].Flows
	}
	return n
}

// Total returns the sums over all loops; LongestTurn is the longest of all.
func (s Engine) Total() (t Loop) {
	t.Ended = make(map[string]int64)
	for i := range s.Loops {
		t.add(&s.Loops[i])
	}
	return t
}

func (s *Loop) add(o *Loop) {
	s.Flows += o.Flows
	s.Accepted += o.Accepted
	s.Adopted += o.Adopted
	s.Connects += o.Connects
	s.ConnectErrors += o.ConnectErrors
	for cause, n := range o.Ended {
		s.Ended[cause] += n
	}
	s.BytesRead += o.BytesRead
	s.BytesWritten += o.BytesWritten
	s.BytesSpliced += o.BytesSpliced
	s.BytesDropped += o.BytesDropped
	s.Kept += o.Kept
	s.KeepErrors += o.KeepErrors
	s.Restored += o.Restored
	s.AcceptErrors += o.AcceptErrors
	s.AcceptPauses += o.AcceptPauses
	s.Waits += o.Waits
	s.Wakeups += o.Wakeups
	s.Events += o.Events
	s.Busy += o.Busy
	s.LongestTurn = max(s.LongestTurn, o.LongestTurn)
	s.Datagrams.add(&o.Datagrams)
}

func (s *Datagrams) add(o *Datagrams) {
	s.Flows += o.Flows
	s.Begun += o.Begun
	s.Received += o.Received
	s.Sent += o.Sent
	s.Dropped.AddAll(&o.Dropped)
	s.Crowded += o.Crowded
	s.Lost += o.Lost
	s.BytesHeld += o.BytesHeld
	s.AnswersOnly += o.AnswersOnly
	s.Resting += o.Resting
	s.RestingClosedEarly += o.RestingClosedEarly
	s.ICMPErrors += o.ICMPErrors
	s.ReadCalls += o.ReadCalls
	s.SuperPackets += o.SuperPackets
	s.WriteCalls += o.WriteCalls
	s.Runs += o.Runs
	s.Fallbacks += o.Fallbacks
}
