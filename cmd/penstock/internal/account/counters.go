package account

import (
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// maxSeries bounds the number of series with a member. Flows of further members are
// counted together, with the member [Other]. A series takes one to two KB.
const maxSeries = 16384

// minSlots is the least size of the table.
const minSlots = 64

// Counters counts flows by listener, route, group and member, for metrics and the admin
// API. Event loops look up a series without a lock; only a new key takes one.
type Counters struct {
	seed  maphash.Seed
	max   int
	rows  *counts.Table
	table atomic.Pointer[table]
	mu    sync.Mutex // guards changes of the table; held briefly, because a loop may wait for it
	snap  sync.Mutex // guards Snapshot and Forget, and what each series has reported; before mu

	unknownEnded []int // words of flows that ended by causes that only another version knows
	torn         int64 // flows of the process before that had arrived in a series and not left the one before; guarded by snap
}

// table is a hash table with open addressing, at most half full. A slot changes from nil
// to a series once and then keeps it: a series is removed by replacing the whole table.
type table struct {
	slots   []atomic.Pointer[Series]
	used    int // guarded by Counters.mu
	members int // of used, those that count against the bound; guarded by Counters.mu
}

// NewCounters returns counters without any series, which end with the process.
func NewCounters() *Counters { return OpenCounters(counts.Heap(Layout())) }

// OpenCounters returns counters whose series are rows of a table with the layout Layout. Those of
// the process before count on: see Series.Continue and Settle.
func OpenCounters(rows *counts.Table) *Counters {
	c := &Counters{seed: maphash.MakeSeed(), max: maxSeries, rows: rows, unknownEnded: rows.Unknown(seriesWords, endedPrefix)}
	c.table.Store(&table{slots: make([]atomic.Pointer[Series], minSlots)})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, row := range rows.Rows() {
		k, ok := decodeKey(row.Key())
		if !ok {
			row.Remove()
			continue
		}
		s := c.addLocked(k, row)
		if first := rows.First(row.Key()); first != nil {
			// The version that has copied these counted what was open as begun once more.
			s.words[begunAt].Add(-max(0, c.open(first)))
		}
		c.torn += s.words[movedInAt].Load() - s.words[movedOutAt].Load()
		if open := s.open(); open >= 0 {
			s.inherited.Store(open)
		} else { // the last end or move was counted, and its counterpart was not
			s.words[begunAt].Add(-open)
		}
	}
	return c
}

// Series returns the series of k, which it creates if necessary.
func (c *Counters) Series(k Key) *Series {
	if s := c.table.Load().find(k, maphash.Comparable(c.seed, k)); s != nil {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.createLocked(k)
}

// createLocked returns the series of k, or of Other if there are too many. It creates the
// series if necessary.
func (c *Counters) createLocked(k Key) *Series {
	t := c.table.Load()
	s := t.find(k, maphash.Comparable(c.seed, k))
	if s != nil {
		return s
	}
	if k.hasOwnMember() && t.members >= c.max {
		return c.createLocked(Key{k.Listener, k.Route, k.Group, Other})
	}
	return c.addLocked(k, c.rows.New(k.encode()))
}

// addLocked adds the series of a key that has none.
func (c *Counters) addLocked(k Key, row *counts.Row) *Series {
	t := c.table.Load()
	if 2*(t.used+1) > len(t.slots) {
		t = c.rebuildLocked(t, 2*len(t.slots), nil)
	}
	s := &Series{key: k, row: row, words: (*words)(row.Words()), table: c}
	c.insertLocked(t, s)
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

func (c *Counters) insertLocked(t *table, s *Series) {
	mask := uint64(len(t.slots) - 1)
	i := maphash.Comparable(c.seed, s.key) & mask
	for t.slots[i].Load() != nil {
		i = (i + 1) & mask
	}
	t.used++
	if s.key.hasOwnMember() {
		t.members++
	}
	t.slots[i].Store(s)
}

// rebuildLocked replaces the table by one with n slots that has all series but those in
// removed.
func (c *Counters) rebuildLocked(old *table, n int, removed map[*Series]bool) *table {
	t := &table{slots: make([]atomic.Pointer[Series], n)}
	for i := range old.slots {
		if s := old.slots[i].Load(); s != nil && !removed[s] {
			c.insertLocked(t, s)
		}
	}
	c.table.Store(t)
	return t
}

// Settle counts the flows that were open in the process before, and for which Series.Continue was
// not called, as ended with relay.CauseCrashed, and returns their number. It is called once, when all
// flows were restored; live is that of Snapshot. The bytes of such flows are counted as far as they
// were reported, so that the reports go on from there.
func (c *Counters) Settle(live func(add func(s *Series, up, down Volume))) (crashed int64) {
	c.snap.Lock()
	defer c.snap.Unlock()
	points := make(map[*Series]*Point)
	t := c.table.Load()
	for i := range t.slots {
		s := t.slots[i].Load()
		if s == nil {
			continue
		}
		n := s.inherited.Swap(0)
		if n > 0 && c.torn > 0 { // a move ends in the series that it began in
			moved := min(n, c.torn)
			s.words[movedOutAt].Add(moved)
			c.torn -= moved
			n -= moved
		}
		if n > 0 {
			s.words[endedAt+int(relay.CauseCrashed)].Add(n)
			crashed += n
			points[s] = &Point{}
			s.read(points[s])
		}
	}
	if len(points) == 0 {
		return 0
	}
	if live != nil {
		live(func(s *Series, up, down Volume) {
			if p := points[s.current()]; p != nil {
				p.Up.Volume.add(up)
				p.Down.Volume.add(down)
			}
		})
	}
	for s, p := range points {
		s.words.up().catchUp(p.Up.Volume, s.words.reportedUp().load())
		s.words.down().catchUp(p.Down.Volume, s.words.reportedDown().load())
	}
	return crashed
}

// catchUp adds what was reported and is not there any more.
func (d *direction) catchUp(is, reported Volume) {
	d.addVolume(Volume{max(reported.Bytes, is.Bytes), max(reported.Datagrams, is.Datagrams)}, is)
}

// Record counts the end of a flow in s, the series that the flow is in. If s is nil, the
// flow begins and ends in the series of e's names.
func (c *Counters) Record(s *Series, e *Entry) {
	if s == nil {
		s = c.Series(Key{e.ListenerName, e.Route, e.Group, e.Member})
		s.Begin()
	}
	s.End(e)
}

// Forget removes the series for which gone returns true and that have no open flow: those of
// members that the configuration, DNS and the API no longer have. Their counts are added to those
// of [Gone] of the same listener, route and group, so no sum over members decreases.
// Series without a member stay. Forget looks at each series once, and holds up no event loop but
// one that needs a new series.
func (c *Counters) Forget(gone func(Key) bool) {
	c.snap.Lock() // no Snapshot sees counts that are neither here nor there
	defer c.snap.Unlock()
	t := c.table.Load() // a series that is added meanwhile is not looked at
	removed := make(map[*Series]bool)
	for i := range t.slots {
		if s := t.slots[i].Load(); s != nil && s.key.hasOwnMember() && s.open() <= 0 && gone(s.key) {
			removed[s] = true
		}
	}
	if len(removed) == 0 {
		return
	}
	c.removeLocked(removed)
	for s := range removed {
		s.moveCounts()
		s.row.Remove()
		// A loop that looked up s, or that was about to count a flow there, may still do so. Once
		// nobody has s any more, no such count can be missing.
		runtime.SetFinalizer(s, (*Series).moveCounts)
	}
}

// removeLocked gives series a successor and removes them from the table. c.snap is locked.
func (c *Counters) removeLocked(removed map[*Series]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range removed {
		s.successor.Store(c.createLocked(Key{s.key.Listener, s.key.Route, s.key.Group, Gone}))
	}
	t := c.table.Load()
	n := len(t.slots)
	for n > minSlots && 4*(t.used-len(removed)+1) <= n {
		n /= 2
	}
	c.rebuildLocked(t, n, removed)
}

// Volume is an amount of data.
type Volume struct{ Bytes, Datagrams int64 }

// Direction counts what was moved in one direction, and how.
type Direction struct {
	Volume
	Dropped          int64           // bytes that were read but not delivered
	DatagramsDropped int64           // datagrams that were read but not delivered
	Paths            [numPaths]int64 // flows, by data path
	Whys             [numWhys]int64  // flows that were copied, by why
}

// Point is the state of a series at one moment.
type Point struct {
	Key
	Begun                        int64                        // flows that began in this series
	MovedIn                      int64                        // flows that moved here from other series, minus those that moved away
	Ended                        [numCauses]int64             // ended flows, by cause
	EndedUnknown                 int64                        // ended flows, by causes that only another version knows
	Reasons                      [spec.NumReasons]int64       // ended flows, by the daemon's reason if it had one
	Protocols                    [spec.NumProtocols + 1]int64 // clients that were routed by their first bytes, by what they speak; the last: unknown
	Attempts                     int64                        // attempts to connect
	Failures                     int64                        // attempts that failed
	Retries                      int64                        // attempts after the first, of ended flows
	Up, Down                     Direction                    // to the upstream, and to the client
	Sizes                        [NumSizes]int64              // flows by their bytes down, as classes of spec.SizeBounds; with live also open ones
	Connect, FirstByte, Duration Histogram
}

// Open returns the number of open flows. It may be off by those that began or ended while
// the point was read.
func (p *Point) Open() int64 {
	n := p.Begun + p.MovedIn - p.EndedUnknown
	for _, e := range p.Ended {
		n -= e
	}
	return max(n, 0)
}

// Snapshot appends all series to points, in no particular order. It does not stop the event loops,
// so related numbers may differ by the flows that end meanwhile.
//
// The bytes of a flow are counted when it ends. If live is not nil, Snapshot calls it to add what
// open flows have moved so far, each with its series. The bytes and datagrams of a series never
// decrease from one Snapshot to the next, even if a flow ends between reading the counters and
// calling live.
func (c *Counters) Snapshot(points []Point, live func(add func(s *Series, up, down Volume))) []Point {
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
		pointOf := make(map[*Series]*Point, len(all))
		for i, s := range all {
			pointOf[s] = &points[first+i]
		}
		live(func(s *Series, up, down Volume) {
			if p := pointOf[s.current()]; p != nil {
				p.Up.Volume.add(up)
				p.Down.Volume.add(down)
				p.Sizes[sizeOf(down.Bytes)]++
			}
		})
	}
	for i, s := range all {
		p := &points[first+i]
		s.words.reportedUp().raise(&p.Up.Volume)
		s.words.reportedDown().raise(&p.Down.Volume)
	}
	return points
}

func (v *Volume) add(w Volume) {
	v.Bytes += w.Bytes
	v.Datagrams += w.Datagrams
}

func (v *volume) load() Volume { return Volume{v[0].Load(), v[1].Load()} }

// raise sets both volumes to the greater of the two.
func (v *volume) raise(w *Volume) {
	for i, n := range [...]*int64{&w.Bytes, &w.Datagrams} {
		if was := v[i].Load(); was < *n {
			v[i].Store(*n)
		} else {
			*n = was
		}
	}
}

// read fills p. It reads ends before beginnings, so that Open is not too low.
func (s *Series) read(p *Point) {
	w := s.words
	p.Key = s.key
	for i := range p.Ended {
		p.Ended[i] = w[endedAt+i].Load()
	}
	p.EndedUnknown = s.table.endedUnknown(s.row.Words())
	for i := range p.Reasons {
		p.Reasons[i] = w[reasonsAt+i].Load()
	}
	for i := range p.Protocols {
		p.Protocols[i] = w[protocolsAt+i].Load()
	}
	movedOut := w[movedOutAt].Load()
	p.Begun, p.MovedIn = w[begunAt].Load(), w[movedInAt].Load()-movedOut
	p.Failures, p.Attempts, p.Retries = w[failuresAt].Load(), w[attemptsAt].Load(), w[retriesAt].Load()
	w.up().read(&p.Up)
	w.down().read(&p.Down)
	for i := range p.Sizes {
		p.Sizes[i] = w[sizesAt+i].Load()
	}
	p.Connect, p.FirstByte, p.Duration = w.connect().read(connectBounds), w.firstByte().read(connectBounds), w.duration().read(durationBounds)
	runtime.KeepAlive(s)
}

func (d *direction) read(p *Direction) {
	p.Bytes, p.Datagrams, p.Dropped, p.DatagramsDropped = d[bytesAt].Load(), d[datagramsAt].Load(), d[droppedAt].Load(), d[datagramsDroppedAt].Load()
	for i := range p.Paths {
		p.Paths[i] = d[pathsAt+i].Load()
	}
	for i := range p.Whys {
		p.Whys[i] = d[whysAt+i].Load()
	}
}
