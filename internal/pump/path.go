// Package pump carries one direction of a stream from one socket to another.
//
// A [Half] is a state machine over two file descriptors: it copies small messages through a buffer
// and splices big ones through a pipe, and it never waits. Its users do: package splice waits on
// Go's netpoller, package relay on its own epoll instance.
package pump

import "github.com/penstock/penstock/internal/enum"

// Path says how a direction's bytes were moved. Packages relay and splice have their own types with
// these values and names.
type Path uint8

// The data paths.
const (
	PathNone   Path = iota // no byte has moved yet
	PathCopy               // through user-space memory
	PathSplice             // at least in part through a pipe, without a copy
	PathGSO                // datagrams, at least in part many per system call (UDP_SEGMENT)
)

// PathNames are the names of the paths. They must not be changed.
var PathNames = []string{PathNone: "none", PathCopy: "copy", PathSplice: "splice", PathGSO: "gso"}

func (p Path) String() string { return enum.Name(PathNames, p) }

// Why says why a direction's bytes did not take the fastest path: splicing, or runs for datagrams.
type Why uint8

// The reasons.
const (
	WhyNone      Why = iota // they did
	WhySmall                // reads stayed small, and copying those is cheaper
	WhyOff                  // splicing, or GSO, is switched off
	WhyPipes                // the budget of pipes, or the kernel's limit on them, is used up
	WhyKernel               // the kernel refused to splice these sockets, or runs on this route
	WhyNotSocket            // an end is not a TCP or Unix stream socket
	WhyBuiltin              // an end is built in: echo or discard
	WhySingle               // no two datagrams came together
	WhyTLS                  // what a side sends and receives is encrypted here
)

// WhyNames are the names of the reasons. They must not be changed.
var WhyNames = []string{
	WhyNone:      "",
	WhySmall:     "small reads",
	WhyOff:       "switched off",
	WhyPipes:     "no pipe",
	WhyKernel:    "refused by the kernel",
	WhyNotSocket: "not a stream socket",
	WhyBuiltin:   "built-in end",
	WhySingle:    "single datagrams",
	WhyTLS:       "TLS",
}

func (w Why) String() string { return enum.Name(WhyNames, w) }
