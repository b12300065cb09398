package relay

import (
	"time"

	"github.com/penstock/penstock/pool"
)

// Stats are the counters of an engine since it was made, and its gauges. With [Config].Keep the
// counters of Loops go on from those of the process before.
type Stats struct {
	Loops []LoopStats
	// The pipes that are open, and of them those that hold bytes; the maximum; and how
	// often a direction found no free one.
	PipesOpen, PipesLeased, PipesMax, PipesRefused int64
	// LoopsPaused is the number of loops that accept no stream clients at present, because a
	// descriptor or memory was missing. It is a gauge.
	LoopsPaused int64
	Descriptors DescriptorStats
	// Buffers are the buffers for bytes that a slow side has not taken, for sniffed
	// bytes, and for held datagrams.
	Buffers pool.BuffersStats
}

// DescriptorStats are the descriptors of the process. A client is accepted, and a datagram flow
// begins, when Limit has room for what it needs beside InUse and Reserved.
type DescriptorStats struct {
	Limit    int64 // RLIMIT_NOFILE
	InUse    int64 // those that are open, and those that open flows will need
	Reserved int64 // those that are left to the rest of the program
	Waits    int64 // how often a loop had to wait for some, while clients waited in the accept queue
	// LoopsPaused is the number of loops that accept no stream clients at present, because there are
	// none for them: what is left may be for datagram flows.
	LoopsPaused int64
}

// NumCauses is the number of values of Cause. Later versions may have more.
const NumCauses = int(causes)

// LoopStats are the counters and gauges of one event loop.
type LoopStats struct {
	Flows         int64         // gauge: open flows
	Accepted      int64         // clients accepted
	Adopted       int64         // pairs given to Relay
	Connects      int64         // upstreams connected
	ConnectErrors int64         // attempts to connect that failed
	Ended         Counts[Cause] // flows ended
	BytesRead     int64         // from clients and upstreams
	BytesWritten  int64         // to clients and upstreams
	BytesSpliced  int64         // of BytesWritten, those that never were in user space
	BytesDropped  int64         // bytes read and not written
	Kept          int64         // gauge: flows that would outlive the process; see Config.Keep
	KeepErrors    int64         // attempts to keep a flow that failed
	Restored      int64         // flows that outlived another process and went on here
	AcceptErrors  int64         // failed accepts
	AcceptPauses  int64         // pauses of accepting, for want of descriptors or memory
	Waits         int64         // epoll_wait calls
	Wakeups       int64         // of Waits, those that slept in the kernel
	Events        int64         // events returned by epoll_wait
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
		t.add(&s.Loops[i])
	}
	return t
}

// resetGauges sets to 0 what an earlier process had, and is not there any more.
func (s *LoopStats) resetGauges() {
	s.Flows, s.Kept, s.LongestTurn = 0, 0, 0
	s.Datagrams.Flows, s.Datagrams.BytesHeld, s.Datagrams.Resting = 0, 0, 0
}

func (s *LoopStats) add(o *LoopStats) {
	s.Flows += o.Flows
	s.Accepted += o.Accepted
	s.Adopted += o.Adopted
	s.Connects += o.Connects
	s.ConnectErrors += o.ConnectErrors
	s.Ended.add(&o.Ended)
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
