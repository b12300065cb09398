package relay

import (
	"time"

	"github.com/penstock/penstock/pool"
)

// Stats are an engine's counters since its start, and its gauges.
type Stats struct {
	Loops []LoopStats
	// The pipe budget.
	PipesOpen, PipesLeased, PipesMax, PipesRefused int64
	// Buffers hold what a slow side does not take, what was sniffed, and datagrams
	// that wait.
	Buffers pool.BuffersStats
}

// Causes is the number of values of Cause, the length of LoopStats.Ended.
const NumCauses = int(causes)

// LoopStats are the counters and gauges of one event loop.
type LoopStats struct {
	Flows         int64            // gauge: flows that are open
	Accepted      int64            // clients accepted
	Adopted       int64            // pairs taken over by Relay
	Connects      int64            // upstreams connected
	ConnectErrors int64            // attempts to connect that failed
	Ended         [NumCauses]int64 // flows ended, by Cause
	BytesRead     int64            // from either side
	BytesWritten  int64            // to either side
	BytesSpliced  int64            // of BytesWritten, what never was in user-space memory
	BytesDropped  int64            // read and never delivered
	AcceptErrors  int64            // accepts that failed; of them,
	AcceptPauses  int64            // those for want of descriptors or memory, which rest the listener for a while
	Waits         int64            // epoll_wait calls
	Wakeups       int64            // of them, those that had slept in the kernel
	Events        int64            // events they gave
	// Busy is the time spent outside of waits, and Longest the longest turn from
	// one wait to the next of the last 15 to 30 seconds; both count what the
	// thread waited for a CPU meanwhile.
	Busy, LongestTurn time.Duration
	Datagrams         DatagramStats // of the datagram flows, which the counters of flows and bytes above include
}

// Flows is the number of open flows.
func (s *Stats) Flows() (n int64) {
	for i := range s.Loops {
		n += s.Loops[i].Flows
	}
	return n
}

// Total adds the loops up.
func (s *Stats) Total() (t LoopStats) {
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
