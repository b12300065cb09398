package relay

import (
	"time"

	"github.com/penstock/penstock/pool"
)

// Stats are the counters of an engine since it was made, and its gauges.
type Stats struct {
	Loops []LoopStats
	// The pipes that are open, and of them those that hold bytes; the maximum; and how
	// often a direction found no free one.
	PipesOpen, PipesLeased, PipesMax, PipesRefused int64
	// LoopsPaused is the number of loops that accept no stream clients at present, because a
	// descriptor or memory was missing. It is a gauge.
	LoopsPaused int64
	// Buffers are the buffers for bytes that a slow side has not taken, for sniffed
	// bytes, and for held datagrams.
	Buffers pool.BuffersStats
}

// NumCauses is the number of values of Cause, and the length of LoopStats.Ended.
const NumCauses = int(causes)

// LoopStats are the counters and gauges of one event loop.
type LoopStats struct {
	Flows         int64            // gauge: open flows
	Accepted      int64            // clients accepted
	Adopted       int64            // pairs given to Relay
	Connects      int64            // upstreams connected
	ConnectErrors int64            // attempts to connect that failed
	Ended         [NumCauses]int64 // flows ended, by Cause
	BytesRead     int64            // from clients and upstreams
	BytesWritten  int64            // to clients and upstreams
	BytesSpliced  int64            // of BytesWritten, those that never were in user space
	BytesDropped  int64            // bytes read and not written
	Kept          int64            // gauge: flows that would outlive the process; see Config.Keep
	KeepErrors    int64            // attempts to keep a flow that failed
	Restored      int64            // flows that outlived another process and went on here
	AcceptErrors  int64            // failed accepts
	AcceptPauses  int64            // of AcceptErrors, those without a free descriptor or memory, after which the loop pauses accepting
	Waits         int64            // epoll_wait calls
	Wakeups       int64            // of Waits, those that slept in the kernel
	Events        int64            // events returned by epoll_wait
	// Busy is the time spent outside of epoll_wait. LongestTurn is the longest time
	// between two of its calls in the last 15 to 30 seconds. Both include the time that
	// the thread waited for a CPU.
	Busy, LongestTurn time.Duration
	Datagrams         DatagramStats // of datagram flows, which the counters above include
}

// Flows returns the number of open flows.
func (s Stats) Flows() (n int64) {
	for i := range s.Loops {
		n += s.Loops[i].Flows
	}
	return n
}

// Total returns the sums over all loops; LongestTurn is the longest of all.
func (s Stats) Total() (t LoopStats) {
	for i := range s.Loops {
		l := &s.Loops[i]
		t.Flows += l.Flows
		t.Accepted += l.Accepted
		t.Adopted += l.Adopted
		t.Connects += l.Connects
		t.ConnectErrors += l.ConnectErrors
		for c := range l.Ended {
			t.Ended[c] += l.Ended[c]
		}
		t.BytesRead += l.BytesRead
		t.BytesWritten += l.BytesWritten
		t.BytesSpliced += l.BytesSpliced
		t.BytesDropped += l.BytesDropped
		t.Kept += l.Kept
		t.KeepErrors += l.KeepErrors
		t.Restored += l.Restored
		t.AcceptErrors += l.AcceptErrors
		t.AcceptPauses += l.AcceptPauses
		t.Waits += l.Waits
		t.Wakeups += l.Wakeups
		t.Events += l.Events
		t.Busy += l.Busy
		t.LongestTurn = max(t.LongestTurn, l.LongestTurn)
		t.Datagrams.add(&l.Datagrams)
	}
	return t
}
