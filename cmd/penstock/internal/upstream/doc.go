// Package upstream says where a client is to be connected: groups of members,
// how load is spread over them, which of them are well, and who waits while all
// are full.
//
// A [Set] has every group of a configuration, and keeps what it knows of a
// member across reloads. Event loops ask [Group.Pick] with a [Lease] that the
// flow keeps, tell [Lease.Connected] how an attempt ended, and give the lease
// back with [Lease.Release] at the flow's end; none of these blocks. All else
// runs on goroutines of the Set: checks, discovery, timers.
//
// What a picker reads is an immutable table behind an atomic pointer, and a few
// atomic words in each member. The table says how load is spread; a word in the
// member says whether it takes flows at all. So a member that goes down takes
// none from that moment on, and the table follows a little later.
package upstream
