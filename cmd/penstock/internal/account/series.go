package account

import (
	"runtime"
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/datapath"
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
//
// The counts are words of a row of a table, which may lie in memory that outlives the process. The
// row is reachable only by the Series, and its memory is used again once it is not: each method
// keeps the Series reachable until it has counted.
type Series struct {
	key       Key
	successor atomic.Pointer[Series] // counts for this series after Forget removed it
	row       *counts.Row
	*words    // of the row
	table     *Counters

	// inherited is the number of flows that were open in the process before, and that neither
	// Continue nor Settle has counted yet.
	inherited atomic.Int64
}

// Key returns the key of the series.
func (s *Series) Key() Key { return s.key }

// Begin counts a flow that begins.
func (s *Series) Begin() {
	at := s.current()
	at.words[begunAt].Add(1)
	runtime.KeepAlive(at)
}

// Continue counts a flow that began in another process and goes on in this one: the series has
// counted its beginning already. It is called once for each, before Counters.Settle.
func (s *Series) Continue() {
	at := s.current()
	for {
		n := at.inherited.Load()
		if n <= 0 { // the series has not counted it, or has counted its end
			at.Begin()
			return
		}
		if at.inherited.CompareAndSwap(n, n-1) {
			return
		}
	}
}

// Move moves a flow from s to another series. What it has moved so far, up and down, stays in s: the other series, to
// which all that an open flow has moved is added, counts it as less than nothing.
func (s *Series) Move(to *Series, up, down Volume) {
	to, from := to.current(), s.current()
	to.words[movedInAt].Add(1) // first, so that the flow is never in no series
	from.words[movedOutAt].Add(1)
	to.words.up().addVolume(Volume{}, up)
	to.words.down().addVolume(Volume{}, down)
	from.words.up().addVolume(up, Volume{})
	from.words.down().addVolume(down, Volume{})
	runtime.KeepAlive(to)
	runtime.KeepAlive(from)
}

// Attempt counts an attempt to connect, and its failure if err is not nil.
func (s *Series) Attempt(err error) {
	s = s.current()
	s.words[attemptsAt].Add(1)
	if err != nil {
		s.words[failuresAt].Add(1)
	}
	runtime.KeepAlive(s)
}

// Sniffed counts a client that is routed by its first bytes. protocol is the index of what it speaks in spec.Protocols; spec.NumProtocols:
// that is not known.
func (s *Series) Sniffed(protocol int) {
	at := s.current()
	at.words[protocolsAt+min(protocol, spec.NumProtocols)].Add(1)
	runtime.KeepAlive(at)
}

// End counts the end of a flow.
func (s *Series) End(e *Entry) {
	s = s.current()
	w := s.words
	if int(e.Cause) < numCauses {
		w[endedAt+int(e.Cause)].Add(1)
	}
	if e.Reason > spec.ReasonNone && e.Reason < spec.NumReasons {
		w[reasonsAt+int(e.Reason)].Add(1)
	}
	if n := e.Retries(); n > 0 {
		w[retriesAt].Add(int64(n))
	}
	w.up().add(&e.Up)
	w.down().add(&e.Down)
	w[sizesAt+sizeOf(e.Down.Written)].Add(1)
	if e.Connect > 0 && !e.Datagrams { // connecting a datagram socket involves no peer
		w.connect().observe(connectBounds, e.Connect-e.Queued)
	}
	if e.FirstByte > 0 {
		w.firstByte().observe(connectBounds, e.FirstByte)
	}
	w.duration().observe(durationBounds, e.Duration)
	runtime.KeepAlive(s)
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

// moveCounts moves what s has counted to its successor. What is added meanwhile is moved now or
// stays.
func (s *Series) moveCounts() { s.row.MoveTo(s.current().row) }

// open returns the number of open flows.
func (s *Series) open() int64 { return s.table.open(s.row.Words()) }

// open returns the number of open flows by the words of a series.
func (c *Counters) open(words []atomic.Int64) int64 {
	n := words[begunAt].Load() + words[movedInAt].Load() - words[movedOutAt].Load() - c.endedUnknown(words)
	for i := range numCauses {
		n -= words[endedAt+i].Load()
	}
	return n
}

// endedUnknown returns the number of flows that ended by causes that only another version knows.
func (c *Counters) endedUnknown(words []atomic.Int64) (n int64) {
	for _, i := range c.unknownEnded {
		n += words[i].Load()
	}
	return n
}

func (d *direction) add(t *relay.Transfer) {
	add(&d[bytesAt], t.Written)
	add(&d[datagramsAt], t.Datagrams)
	add(&d[droppedAt], t.BytesDropped())
	add(&d[datagramsDroppedAt], t.DatagramsDropped)
	if t.Path != datapath.None && int(t.Path) < numPaths {
		d[pathsAt+int(t.Path)].Add(1)
		if t.Path == datapath.Copy && int(t.Why) < numWhys {
			d[whysAt+int(t.Why)].Add(1)
		}
	}
}

// addVolume adds the difference of two volumes.
func (d *direction) addVolume(v, less Volume) {
	add(&d[bytesAt], v.Bytes-less.Bytes)
	add(&d[datagramsAt], v.Datagrams-less.Datagrams)
}

// add adds n to c. If n is 0 it does not touch the cache line of c.
func add(c *atomic.Int64, n int64) {
	if n != 0 {
		c.Add(n)
	}
}
