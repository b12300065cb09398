// Package overload is how a program that is short of memory steers a relay engine. Its API may
// change after version 1.0 of the module; CHANGELOG.md then says how to follow.
//
// [Control] is what Engine.Overload of package relay returns. Measuring memory is up to the program:
//
//	control := engine.Overload()
//	control.Set(overload.State{NoDatagramFlows: true}) // first, begin less
//	control.Trim()                                     // then give back what is not in use
//	control.Shed(overload.Shedding{Quiet: time.Minute, Bytes: 64 << 20})
package overload

import "time"

// Control steers one engine. Its methods are safe for concurrent use.
type Control interface {
	// Set sets what the engine does because its process is short of memory, in place of what it
	// was told before. It applies to clients and bytes that come from now on: open flows go on.
	// Pairs given to Engine.Relay are always taken. Set does not wait, and may be called in hooks.
	Set(State)

	// Shed ends flows with relay.CauseOverload, as s says, and returns what it has ended. A side
	// whose stream was cut short is reset. Shed looks at all open flows, some at a time, so that
	// those that stay have their turns meanwhile, and waits for the loops.
	Shed(s Shedding) Shed

	// Trim gives memory back that the engine keeps for later use: unused pipes, buffers, and
	// sockets that rest (see relay.DatagramConfig). No flow notices; what is needed again is made
	// again. Trim waits for the loops.
	Trim()

	// MemoryUse estimates the memory that open flows hold in the kernel. Each loop looks at up to
	// 128 flows, which takes some tens of microseconds. MemoryUse waits for the loops.
	MemoryUse() MemoryUse
}

// State says what an engine does because its process is short of memory. The zero value is
// the normal state.
type State struct {
	// HoldLess makes the engine read at most 4 KiB of a stream at a time, unless it is
	// spliced, so that a flow whose reader has stopped holds no more than that; and
	// makes it drop, as stats.DropFull, datagrams for upstreams whose sockets are full. It
	// costs CPU time. What is held already stays.
	HoldLess bool
	// HoldMost, if not 0, does the same to the streams of each loop while its share of
	// this number of bytes is held in user space, so that many flows which stop at once
	// are no surprise.
	HoldMost int64
	// NoDatagramFlows drops the datagrams of new clients as stats.DropOverload.
	NoDatagramFlows bool
	// NoStreams leaves the clients of stream listeners in the kernel's accept queues:
	// they are neither accepted nor reset, and are accepted later.
	NoStreams bool
}

// Shedding says which flows [Control.Shed] ends.
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

// Shed is what [Control.Shed] has ended: the number of flows and the memory that they
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
