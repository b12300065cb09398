// Package pump carries one direction of a stream from one socket to another.
//
// A [Half] is a state machine over two file descriptors: it copies small
// messages through a buffer and splices big ones through a pipe, and it never
// waits. Who waits is somebody else: package splice waits on Go's netpoller,
// package relay on its own epoll.
package pump

// Path tells how a direction's bytes were moved.
type Path uint8

// The data paths.
const (
	PathNone   Path = iota // no byte has moved yet
	PathCopy               // through user-space memory
	PathSplice             // at least in part through a pipe, without a copy
	PathGSO                // datagrams, at least in part many to a system call (UDP_SEGMENT)
)

func (p Path) String() string {
	switch p {
	case PathCopy:
		return "copy"
	case PathSplice:
		return "splice"
	case PathGSO:
		return "gso"
	}
	return "none"
}

// Why tells why a direction's bytes did not go the fastest way: spliced, or for datagrams in runs.
type Why uint8

// The reasons.
const (
	WhyNone      Why = iota // they did
	WhySmall                // reads stayed small, and copying those is cheaper
	WhyOff                  // splicing, or GSO, is switched off
	WhyPipes                // the budget of pipes, or the kernel's limit on them, is used up
	WhyKernel               // the kernel refused to splice these sockets, or runs on this route
	WhyNotSocket            // an end is no TCP or Unix stream socket
	WhyBuiltin              // an end is built in: echo or discard
	WhySingle               // never two datagrams came together
)

func (w Why) String() string {
	switch w {
	case WhySmall:
		return "small reads"
	case WhyOff:
		return "switched off"
	case WhyPipes:
		return "no pipe"
	case WhyKernel:
		return "refused by the kernel"
	case WhyNotSocket:
		return "not a stream socket"
	case WhyBuiltin:
		return "built-in end"
	case WhySingle:
		return "single datagrams"
	}
	return ""
}
