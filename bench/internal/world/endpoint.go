//go:build linux

package world

import (
	"fmt"
	"sync/atomic"
	"time"
)

// An Endpoint is the address of a member, at which this process listens until the end of the run. The relay must send a new
// flow only to one that is in use; a flow that is there goes on, whatever becomes of the member.
//
//	in use ──removed, drained or moved, and the relay was seen to know it──▶ left
//	  ▲                                                                       │
//	  └─────────────────── the registry is about to say it ◀──────────────────┘
type Endpoint struct {
	Service string
	Addr    string
	Left    atomic.Int64 // when the relay was seen to have left it, in ns since 1970; 0: it may be in use
	flows   atomic.Int64 // that began here
	Last    atomic.Int64 // when the last one began
}

func (e *Endpoint) String() string { return e.Service + " at " + e.Addr }

// took is told of a new flow that came to an endpoint. A flow whose client came after the relay was seen to have left the
// endpoint must not be there.
func (w *World) took(e *Endpoint, what fmt.Stringer, start time.Time) {
	e.flows.Add(1)
	e.Last.Store(time.Now().UnixNano())
	if left := e.Left.Load(); left != 0 && start.UnixNano() > left {
		w.Tally.Fault(wrongMember, "%v began %v after the relay had left the member %v", what, start.Sub(time.Unix(0, left)).Round(time.Microsecond), e)
	}
}

// Leave is told that the relay was seen to have left an endpoint. What its flows send from now on proves that they go on.
func (w *World) Leave(e *Endpoint, change int64) {
	e.Left.Store(time.Now().UnixNano())
	w.flows.Range(func(_, v any) bool {
		if f := v.(*flow); f.at.Load() == e {
			f.died(change)
		}
		return true
	})
	w.datagrams.Range(func(_, v any) bool {
		if f := v.(*datagramFlow); f.at.Load() == e {
			f.died(change)
		}
		return true
	})
}
