// Package upstream chooses where a client is connected: it has the groups of members,
// their balancers, health checks, discovery, and the queue of flows for which no member
// has room.
//
// A [Set] has every group of a configuration, and keeps the state of members
// across reloads. Event loops call [Group.Pick] with a [Lease] that the flow
// keeps, then [Lease.Connected] with the result of the attempt, and
// [Lease.Release] at the flow's end; none of these blocks. Everything else
// runs on goroutines of the Set: checks, discovery, timers.
//
// Pick reads an immutable table behind an atomic pointer, and a few atomic words
// in each member. The table determines how flows are balanced; a word in the
// member says whether it accepts flows at all. So a member that goes down gets
// no flows from that moment on, and the table is rebuilt a little later.
package upstream
