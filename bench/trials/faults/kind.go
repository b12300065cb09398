//go:build linux

package main

import (
	"fmt"
	"time"
)

// A kind is one kind of fault, and a row of the table.
type kind struct {
	name   string
	part   string // the heading that it is under
	title  string
	what   string // what happens, in a sentence
	want   string // what is expected, in a sentence
	needs  needs
	short  bool // it is part of the short form
	sudden bool // the fault itself says when it has begun: clients that came just before may suffer
	alone  bool // its load needs the whole machine: no other fault runs at the same time
	fault  func(w *testbed) error
	expect func(o *outcome, v *verdict)
}

// needs is what a fault asks of the relay's configuration and of where the relay runs. Each relay says
// in its own words what that means, or that it cannot be had.
type needs struct {
	Files     uint64        // limit of descriptors
	Memory    int64         // limit of memory, of a cgroup
	NoCaps    bool          // no capability, and another user than root if there is one
	ReadOnly  bool          // file systems are read-only, apart from the relay's own folder
	Monotonic time.Duration // how much further the monotonic clock is
	DNS       bool          // members come from DNS
	Proxy     bool          // a listener that expects PROXY headers
	SNI       bool          // a listener that routes by the server name
	Log       string        // where one line per flow goes: file, full, fifo, stderr, syslog; "": nowhere in particular
	Verify    bool          // health checks that expect an answer
	Few       bool          // of datagrams, few replies may follow a client that nobody has verified
	Datagrams bool          // it is about datagrams alone
	Admin     bool          // it is about requests to the admin address
	Lossy     bool          // the network is made in user space, where packets can be lost
	Wild      bool          // one upstream has all addresses; there are no datagrams
}

// A verdict collects what was not as expected, in order of weight.
type verdict struct {
	relay *relay
	loose bool // times and shares are not judged: the machine is busy with other things
	bad   []string
}

// want adds a complaint unless ok.
func (v *verdict) want(ok bool, format string, args ...any) {
	if !ok {
		v.bad = append(v.bad, fmt.Sprintf(format, args...))
	}
}

// measured is want for what depends on the machine's speed.
func (v *verdict) measured(ok bool, format string, args ...any) {
	if !v.loose {
		v.want(ok, format, args...)
	}
}

// alive expects that the relay is there, and was all the time.
func (v *verdict) alive(o *outcome) {
	v.want(o.Ends == 0, "ended %d times (%s)", o.Ends, o.End)
}

// intact expects that no byte was wrong.
func (v *verdict) intact(o *outcome) {
	v.want(o.Old.Wrong == 0, "%d wrong bytes or datagrams in old flows: %s", o.Old.Wrong, o.Old.FirstWrong)
	v.want(o.New.total().Wrong == 0, "%d wrong answers to new flows", o.New.total().Wrong)
}

// kept expects that every old flow that was not at a member with the fault goes on.
func (v *verdict) kept(o *outcome) {
	v.streams(o)
	if v.relay.udp {
		v.want(o.Old.Replaced == 0, "%d of %d old datagram flows replaced", o.Old.Replaced, o.Old.Datagrams)
	}
}

// streams expects that every old stream that was not at a member with the fault goes on.
func (v *verdict) streams(o *outcome) {
	v.intact(o)
	v.want(o.Old.Lost == 0, "%d of %d old streams lost (%s)", o.Old.Lost, o.Old.Streams, o.Old.FirstLost)
	v.want(o.Old.Stalled == 0, "%d of %d old streams stand still at the end", o.Old.Stalled, o.Old.Streams)
}

// hit expects that old flows at members with the fault also go on.
func (v *verdict) hit(o *outcome) {
	v.want(o.Old.HitLost == 0, "%d of %d old streams at the faulty members lost (%s)", o.Old.HitLost, o.Old.Hit, o.Old.FirstLost)
	v.want(o.Old.HitStalled == 0, "%d of %d old streams at the faulty members stand still at the end", o.Old.HitStalled, o.Old.Hit)
}

// flowing expects that old flows hardly noticed.
func (v *verdict) flowing(o *outcome, pause time.Duration, loss float64) {
	v.measured(o.Old.Pause.D() <= pause, "an old stream stood still for %v", o.Old.Pause.round())
	if v.relay.udp {
		v.measured(o.Old.share() <= loss, "%.2f%% of the old flows' datagrams lost", 100*o.Old.share())
	}
}

// served expects that new stream clients are served during the fault and after it; each within a time.
func (v *verdict) served(o *outcome, p99 time.Duration) {
	for _, x := range []struct {
		when string
		c    clients
	}{{"during the fault", o.New.During}, {"after it", o.New.After}} {
		v.want(x.c.Cut == 0, "%d of %d new clients accepted and then cut off %s", x.c.Cut, x.c.Tried, x.when)
		v.want(x.c.Refused == 0, "%d of %d new clients refused %s", x.c.Refused, x.c.Tried, x.when)
		v.measured(x.c.Late == 0, "%d of %d new clients without an answer after %v %s", x.c.Late, x.c.Tried, newPatience, x.when)
		v.measured(x.c.P99.D() <= p99, "new clients waited %v (p99) %s", x.c.P99.round(), x.when)
	}
}

// carries expects that the relay was there all the time, and carries every old flow that was not at a member with the fault.
func (v *verdict) carries(o *outcome) {
	v.alive(o)
	v.kept(o)
}

// unnoticed expects that nobody notices: no old flow, of streams or datagrams, and no new client.
func (v *verdict) unnoticed(o *outcome, p99, pause time.Duration, loss float64) {
	v.carries(o)
	v.served(o, p99)
	v.flowing(o, pause, loss)
}

// unnoticedWithin returns what expects that nobody notices anything but, perhaps, a moment, and that at most so many MB more
// memory is used.
func unnoticedWithin(mb int64) func(o *outcome, v *verdict) {
	return func(o *outcome, v *verdict) {
		v.unnoticed(o, 500*time.Millisecond, time.Second, 0.005)
		v.memory(o, mb)
	}
}

// welcomed expects that clients which come after the fault are neither refused nor cut off.
func (v *verdict) welcomed(o *outcome) {
	a := o.New.After
	v.want(a.Refused+a.Cut == 0, "%d of %d new clients refused or cut off after it", a.Refused+a.Cut, a.Tried)
}

// back expects that all is well again once the fault is over.
func (v *verdict) back(o *outcome, within time.Duration) {
	v.want(o.Back >= 0, "no new client is served after the fault")
	v.measured(o.Back.D() <= within, "new clients are served again only %v after the fault", o.Back.round())
}

// memory expects at most so many MB more than before.
func (v *verdict) memory(o *outcome, mb int64) {
	grown := (o.MemoryPeak - o.MemoryBefore) >> 10
	v.measured(grown <= mb, "%d MB more memory", grown)
}
