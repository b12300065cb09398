package account

import (
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// Key identifies a series. A name that a flow never had is empty: a refused client has no
// group, for instance.
type Key struct{ Listener, Route, Group, Member string }

// Other is the Member of flows whose member has no series of its own, because there were
// too many members.
const Other = "other"

// Gone is the Member under which Forget keeps the past of members that are gone, for sums by
// listener, route and group. No member can have this name. It is not exported as a series of
// flows: Prometheus would take the past of a member for traffic of the moment at which it was
// added, while a series that ends is nothing special.
const Gone = "(gone)"

// hasOwnMember reports whether k is the key of one member only.
func (k *Key) hasOwnMember() bool { return k.Member != "" && k.Member != Other && k.Member != Gone }

// Series counts the flows of one key. Its methods are called on event loops: they take no
// lock and allocate nothing.
//
// From its beginning to its end a flow is in exactly one series: in that of its listener
// while it is sniffed, and then in those of its route and of the members that it tries. The
// flows that are open in a series are those that began in it or moved to it, minus those
// that moved away or ended.
type Series struct {
	key       Key
	successor atomic.Pointer[Series] // counts for this series after Forget removed it

	begun, movedIn, movedOut     atomic.Int64
	attempts, failures, retries  atomic.Int64
	ended                        [relay.NumCauses]atomic.Int64
	reasons                      [spec.NumReasons]atomic.Int64
	up, down                     direction // to the upstream, and to the client
	connect, firstByte, duration histogram

	// The volumes that Snapshot last returned, which must not decrease.
	// Guarded by Counters.snap.
	reportedUp, reportedDown Volume
}

// direction counts one direction.
type direction struct {
	bytes, datagrams, dropped, datagramsDropped atomic.Int64

	paths [relay.NumPaths]atomic.Int64
	whys  [relay.NumWhys]atomic.Int64
}

// Key returns the key of the series.
func (s *Series) Key() Key { return s.key }

// Begin counts a flow that begins.
func (s *Series) Begin() { s.current().begun.Add(1) }

// Continue counts a flow that began in another process and goes on in this one: the series has
// counted its beginning already. It is called once for each, before Counters.Settle.
func (s *Series) Continue() { s.current().begun.Add(1) }

// Move moves a flow from s to another series.
func (s *Series) Move(to *Series) {
	to.current().movedIn.Add(1) // first, so that the flow is never in no series
	s.current().movedOut.Add(1)
}

// Attempt counts an attempt to connect, and its failure if err is not nil.
func (s *Series) Attempt(err error) {
	s = s.current()
	s.attempts.Add(1)
	if err != nil {
		s.failures.Add(1)
	}
}

// End counts the end of a flow.
func (s *Series) End(e *Entry) {
	s = s.current()
	if int(e.Cause) < len(s.ended) {
		s.ended[e.Cause].Add(1)
	}
	if e.Reason > spec.ReasonNone && e.Reason < spec.NumReasons {
		s.reasons[e.Reason].Add(1)
	}
	if n := e.Retries(); n > 0 {
		s.retries.Add(int64(n))
	}
	s.up.add(&e.Up)
	s.down.add(&e.Down)
	if e.Connect > 0 && !e.Datagrams { // connecting a datagram socket involves no peer
		s.connect.observe(connectBounds, e.Connect-e.Queued)
	}
	if e.FirstByte > 0 {
		s.firstByte.observe(connectBounds, e.FirstByte)
	}
	s.duration.observe(durationBounds, e.Duration)
}

// current returns the series that counts for s: s itself, or its successor if it was
// removed.
func (s *Series) current() *Series {
	for {
		successor := s.successor.Load()
		if successor == nil {
			return s
		}
		s = successor
	}
}

// moveCounts moves what s has counted to its successor.
func (s *Series) moveCounts() {
	to := s.current()
	for _, c := range []struct{ to, from *atomic.Int64 }{
		{&to.begun, &s.begun}, {&to.movedIn, &s.movedIn}, {&to.movedOut, &s.movedOut},
		{&to.attempts, &s.attempts}, {&to.failures, &s.failures}, {&to.retries, &s.retries},
	} {
		move(c.to, c.from)
	}
	moveAll(to.ended[:], s.ended[:])
	moveAll(to.reasons[:], s.reasons[:])
	to.up.moveFrom(&s.up)
	to.down.moveFrom(&s.down)
	to.connect.moveFrom(&s.connect)
	to.firstByte.moveFrom(&s.firstByte)
	to.duration.moveFrom(&s.duration)
}

func (d *direction) moveFrom(from *direction) {
	move(&d.bytes, &from.bytes)
	move(&d.datagrams, &from.datagrams)
	move(&d.dropped, &from.dropped)
	move(&d.datagramsDropped, &from.datagramsDropped)
	moveAll(d.paths[:], from.paths[:])
	moveAll(d.whys[:], from.whys[:])
}

// move moves a count. What is added to from meanwhile is moved now or stays there.
func move(to, from *atomic.Int64) { add(to, from.Swap(0)) }

func moveAll(to, from []atomic.Int64) {
	for i := range from {
		move(&to[i], &from[i])
	}
}

// open returns the number of open flows.
func (s *Series) open() int64 {
	n := int64(0)
	for i := range s.ended {
		n -= s.ended[i].Load()
	}
	return n + s.begun.Load() + s.movedIn.Load() - s.movedOut.Load()
}

func (d *direction) add(t *relay.Transfer) {
	add(&d.bytes, t.Written)
	add(&d.datagrams, t.Datagrams)
	add(&d.dropped, t.BytesDropped())
	add(&d.datagramsDropped, t.DatagramsDropped)
	if t.Path != relay.PathNone && int(t.Path) < relay.NumPaths {
		d.paths[t.Path].Add(1)
		if t.Path == relay.PathCopy && int(t.Why) < relay.NumWhys {
			d.whys[t.Why].Add(1)
		}
	}
}

// add adds n to c. If n is 0 it does not touch the cache line of c.
func add(c *atomic.Int64, n int64) {
	if n != 0 {
		c.Add(n)
	}
}
