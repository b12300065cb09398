package relay

import "time"

// Overload says what an engine does because its process is short of memory. The zero
// value is the normal state. [Engine.SetOverload] documents its use.
type Overload struct {
	// HoldLess makes the engine read at most 4 KiB of a stream at a time, unless it is
	// spliced, so that a flow whose reader has stopped holds no more than that; and
	// makes it drop, as [DropFull], datagrams for upstreams whose sockets are full. It
	// costs CPU time. What is held already stays.
	HoldLess bool
	// HoldMost, if not 0, does the same to the streams of each loop while its share of
	// this number of bytes is held in user space, so that many flows which stop at once
	// are no surprise.
	HoldMost int64
	// NoDatagramFlows drops the datagrams of new clients as [DropOverload].
	NoDatagramFlows bool
	// NoStreams leaves the clients of stream listeners in the kernel's accept queues:
	// they are neither accepted nor reset, and are accepted later.
	NoStreams bool
}

// Shedding says which flows [Engine.Shed] ends.
type Shedding struct {
	// Idle selects the flows in which nothing has moved for the longest time. Otherwise
	// Shed selects the stalled flows that hold most: those that hold bytes or datagrams
	// that their reader does not take.
	Idle bool
	// Quiet is for how long nothing must have moved, in either direction. A flow in which
	// something has moved since is never ended.
	Quiet time.Duration
	// Bytes is how much memory the flows that are ended should hold together. Flows is
	// the maximum number of flows, at most 4,096, which 0 means, too.
	Bytes int64
	Flows int
}

// Shed is what [Engine.Shed] has ended: the number of flows and the memory that they
// held in the process and in the kernel. The latter is an estimate.
type Shed struct {
	Flows int
	Bytes int64
}

// MemoryUse is the memory that open flows hold in the kernel, extrapolated from some of
// them. Bytes in user space are part of the memory of the process.
type MemoryUse struct {
	Sockets int64 // bytes in the buffers of sockets
	Pipes   int64 // bytes in pipes
}

const (
	// maxShed is the maximum of Shedding.Flows.
	maxShed = 4096
	// flowCost is what a flow takes that holds nothing, for the most part in the kernel:
	// two sockets with their files, and what epoll and the loop know of them.
	flowCost = 6 << 10
)
