package account

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// maxSeries bounds the series with a member: beyond it members are counted
// together as [Other]. A series takes one to two KB.
const maxSeries = 16384

// Counters count flows by listener, route, group and member, for metrics and the
// admin API. Event loops find their series without a lock; only a key that is
// new takes one.
type Counters struct {
	seed  maphash.Seed
	max   int
	table atomic.Pointer[table]
	mu    sync.Mutex // for changes of the table; short, for a loop may wait for it
	snap  sync.Mutex // for Snapshot, and for what series have told
}

// table is a hash table with open addressing, at most half full. Slots go from
// nil to a series and never back: what leaves, leaves with its table.
type table struct {
	slots   []atomic.Pointer[Series]
	used    int // under the lock
	members int // of them, those that count against the bound
}

// NewCounters makes counters without a series.
func NewCounters() *Counters {
	c := &Counters{seed: maphash.MakeSeed(), max: maxSeries}
	c.table.Store(&table{slots: make([]atomic.Pointer[Series], 64)})
	return c
}

// Series gives the series of a key, and makes it if there is none.
func (c *Counters) Series(k Key) *Series {
	if s := c.table.Load().find(k, maphash.Comparable(c.seed, k)); s != nil {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.make(k)
}

// make gives the series of k, or of Other where there are too many. It is called
// with the lock.
func (c *Counters) make(k Key) *Series {
	t := c.table.Load()
	s := t.find(k, maphash.Comparable(c.seed, k))
	if s != nil {
		return s
	}
	if k.Member != "" && k.Member != Other && t.members >= c.max {
		return c.make(Key{k.Listener, k.Route, k.Group, Other})
	}
	if 2*(t.used+1) > len(t.slots) {
		t = c.rebuild(t, 2*len(t.slots), nil)
	}
	s = &Series{key: k}
	c.insert(t, s)
	return s
}

func (t *table) find(k Key, hash uint64) *Series {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		if s := t.slots[i].Load(); s == nil || s.key == k {
			return s
		}
	}
}

func (c *Counters) insert(t *table, s *Series) {
	mask := uint64(len(t.slots) - 1)
	i := maphash.Comparable(c.seed, s.key) & mask
	for t.slots[i].Load() != nil {
		i = (i + 1) & mask
	}
	t.used++
	if s.key.Member != "" && s.key.Member != Other {
		t.members++
	}
	t.slots[i].Store(s)
}

// rebuild puts a table with n slots in the place of old, without those that gone
// chooses.
func (c *Counters) rebuild(old *table, n int, gone map[*Series]bool) *table {
	t := &table{slots: make([]atomic.Pointer[Series], n)}
	for i := range old.slots {
		if s := old.slots[i].Load(); s != nil && !gone[s] {
			c.insert(t, s)
		}
	}
	c.table.Store(t)
	return t
}

// Enter counts the end of a flow: in the series that it is in or, if s is nil,
// in the one of e's names, where it then also begins.
func (c *Counters) Enter(s *Series, e *Entry) {
	if s == nil {
		s = c.Series(Key{e.ListenerName, e.Route, e.Group, e.Member})
		s.Begin()
	}
	s.End(e)
}

// Forget removes the series that gone chooses: those of a listener, route, group
// or member that a new configuration, or DNS, no longer has. They are reported no more.
// Their flows that are still under way are counted, when they end, as those of
// the member [Other] of the same group, unless gone chooses that one too.
func (c *Counters) Forget(gone func(Key) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.table.Load()
	leaves := make(map[*Series]bool)
	for i := range t.slots {
		if s := t.slots[i].Load(); s != nil && gone(s.key) {
			leaves[s] = true
		}
	}
	if len(leaves) == 0 {
		return
	}
	for s := range leaves {
		k := Key{s.key.Listener, s.key.Route, s.key.Group, Other}
		open := s.open()
		if open <= 0 || gone(k) {
			continue
		}
		heir := c.make(k)
		// What ends there has begun there. A flow that begins or ends just now
		// may be missed: then what is open there is off by one.
		heir.begun.Add(open)
		s.heir.Store(heir)
	}
	t = c.table.Load()
	c.rebuild(t, len(t.slots), leaves)
}

// Moved is what went one way.
type Moved struct{ Bytes, Datagrams int64 }

// Way is what went one way, and how.
type Way struct {
	Moved
	Dropped int64                 // bytes that were read and not delivered
	Lost    int64                 // datagrams
	Paths   [relay.NumPaths]int64 // flows, by the data path
	Whys    [relay.NumWhys]int64  // of those that were copied: why
}

// Point is a series at one moment.
type Point struct {
	Key
	Begun                    int64                  // flows that began here
	Moved                    int64                  // flows that came from other series, less those that left for others
	Ended                    [relay.NumCauses]int64    // flows, by cause
	Reasons                  [spec.NumReasons]int64 // of them, those for which the daemon had a reason
	Tried                    int64                  // attempts to connect
	Failed                   int64                  // of them, failures
	Retries                  int64                  // attempts of flows that had ended beyond each one's first
	Sent, Received           Way                    // to the upstream, and to the client
	Connect, FirstByte, Life Histogram
}

// Open is the number of flows that are open. It may be off by those that begin
// or end while it is read.
func (p *Point) Open() int64 {
	n := p.Begun + p.Moved
	for _, e := range p.Ended {
		n -= e
	}
	return max(n, 0)
}

// Snapshot appends all series to points, in no order. Loops go on meanwhile, so
// numbers that belong together may differ by the flows that end just then.
//
// Flows count their bytes when they end. If live is not nil it is called to tell
// what flows that are open have moved so far, each with the series that it is
// in, and that is added. Bytes and datagrams never go down from one Snapshot to the next, even
// if a flow ends between the reading of the counters and live.
func (c *Counters) Snapshot(points []Point, live func(add func(s *Series, sent, received Moved))) []Point {
	c.snap.Lock()
	defer c.snap.Unlock()
	t := c.table.Load()
	first := len(points)
	var all []*Series
	for i := range t.slots {
		if s := t.slots[i].Load(); s != nil {
			points = append(points, Point{})
			s.read(&points[len(points)-1])
			all = append(all, s)
		}
	}
	if live != nil {
		at := make(map[*Series]*Point, len(all))
		for i, s := range all {
			at[s] = &points[first+i]
		}
		live(func(s *Series, sent, received Moved) {
			if p := at[s.live()]; p != nil {
				p.Sent.Moved.add(sent)
				p.Received.Moved.add(received)
			}
		})
	}
	for i, s := range all {
		p := &points[first+i]
		s.toldSent.raise(&p.Sent.Moved)
		s.toldReceived.raise(&p.Received.Moved)
	}
	return points
}

func (m *Moved) add(n Moved) {
	m.Bytes += n.Bytes
	m.Datagrams += n.Datagrams
}

// raise makes both what is the most of them.
func (m *Moved) raise(now *Moved) {
	*m = Moved{max(m.Bytes, now.Bytes), max(m.Datagrams, now.Datagrams)}
	*now = *m
}

// read fills p, ends before the beginning, so that Open is not below what it was.
func (s *Series) read(p *Point) {
	p.Key = s.key
	for i := range p.Ended {
		p.Ended[i] = s.ended[i].Load()
	}
	for i := range p.Reasons {
		p.Reasons[i] = s.reasons[i].Load()
	}
	left := s.left.Load()
	p.Begun, p.Moved = s.begun.Load(), s.came.Load()-left
	p.Failed, p.Tried, p.Retries = s.failed.Load(), s.tried.Load(), s.retries.Load()
	s.ways[0].read(&p.Sent)
	s.ways[1].read(&p.Received)
	p.Connect, p.FirstByte, p.Life = s.connect.read(connectBounds), s.firstByte.read(connectBounds), s.life.read(lifeBounds)
}

func (w *way) read(p *Way) {
	p.Bytes, p.Datagrams, p.Dropped, p.Lost = w.bytes.Load(), w.datagrams.Load(), w.dropped.Load(), w.lost.Load()
	for i := range p.Paths {
		p.Paths[i] = w.paths[i].Load()
	}
	for i := range p.Whys {
		p.Whys[i] = w.whys[i].Load()
	}
}
