package account

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// Key names a series. What a flow never had is empty: a client that was refused
// has no group, for instance.
type Key struct{ Listener, Route, Group, Member string }

// Other is the Member of flows whose member has no series of its own: there
// were too many, or it is gone.
const Other = "other"

// Series counts the flows of one key. Its methods are for event loops: they take
// no lock and allocate nothing.
//
// Each flow is in exactly one series from its beginning to its end: in that of its listener
// while it is sniffed, and then in those of its route and of the member that is being
// tried. What came to a series, by beginning there or from another one, less what left and
// the sum of Ended, is open there.
type Series struct {
	key  Key
	heir atomic.Pointer[Series] // who counts for a series that was forgotten

	begun, came, left        atomic.Int64
	tried, failed, retries   atomic.Int64
	ended                    [relay.NumCauses]atomic.Int64
	reasons                  [spec.NumReasons]atomic.Int64
	ways                     [2]way // to the upstream, and to the client
	connect, firstByte, life histogram

	// What Snapshot has told of the flows' bytes so far: it never tells less.
	// Counters.snap guards them.
	toldSent, toldReceived Moved
}

// way counts one direction.
type way struct {
	bytes, datagrams, dropped, lost atomic.Int64
	paths                           [relay.NumPaths]atomic.Int64
	whys                            [relay.NumWhys]atomic.Int64
}

// Key is what the series counts.
func (s *Series) Key() Key { return s.key }

// Begin counts a flow that begins.
func (s *Series) Begin() { s.live().begun.Add(1) }

// Move takes a flow that is in s over to another series.
func (s *Series) Move(to *Series) {
	to.live().came.Add(1) // first, so that it is in none at no time
	s.live().left.Add(1)
}

// Tried counts an attempt to connect, and its failure.
func (s *Series) Tried(err error) {
	s = s.live()
	s.tried.Add(1)
	if err != nil {
		s.failed.Add(1)
	}
}

// End counts the end of a flow that is here.
func (s *Series) End(e *Entry) {
	s = s.live()
	if int(e.Cause) < len(s.ended) {
		s.ended[e.Cause].Add(1)
	}
	if e.Reason > spec.ReasonNone && e.Reason < spec.NumReasons {
		s.reasons[e.Reason].Add(1)
	}
	if n := e.Retries(); n > 0 {
		s.retries.Add(int64(n))
	}
	s.ways[0].add(&e.Up)
	s.ways[1].add(&e.Down)
	if e.Connect > 0 && !e.Datagrams { // to connect a socket of datagrams asks nobody
		s.connect.observe(connectBounds, e.Connect-e.Queued)
	}
	if e.FirstByte > 0 {
		s.firstByte.observe(connectBounds, e.FirstByte)
	}
	s.life.observe(lifeBounds, e.Duration)
}

// live is the series that counts for s: itself, unless it was forgotten.
func (s *Series) live() *Series {
	for {
		heir := s.heir.Load()
		if heir == nil {
			return s
		}
		s = heir
	}
}

// open is the number of flows that are open.
func (s *Series) open() int64 {
	n := int64(0)
	for i := range s.ended {
		n -= s.ended[i].Load()
	}
	return n + s.begun.Load() + s.came.Load() - s.left.Load()
}

func (w *way) add(t *relay.Transfer) {
	add(&w.bytes, t.Written)
	add(&w.datagrams, t.Datagrams)
	add(&w.dropped, t.Dropped())
	add(&w.lost, t.DatagramsDropped)
	if t.Path != relay.PathNone && int(t.Path) < relay.NumPaths {
		w.paths[t.Path].Add(1)
		if t.Path == relay.PathCopy && int(t.Why) < relay.NumWhys {
			w.whys[t.Why].Add(1)
		}
	}
}

// add leaves a counter's cache line alone if there is nothing to add.
func add(c *atomic.Int64, n int64) {
	if n != 0 {
		c.Add(n)
	}
}

// The upper bounds of the histograms' buckets, those of a bucket included; one
// more bucket has the rest.
var (
	connectBounds = []time.Duration{
		100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
		time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
		100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
	}
	lifeBounds = []time.Duration{
		time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, 5 * time.Minute,
		30 * time.Minute, time.Hour, 4 * time.Hour, 24 * time.Hour,
	}
)

// maxBuckets is enough for both.
const maxBuckets = 17

type histogram struct {
	buckets [maxBuckets]atomic.Int64
	sum     atomic.Int64 // nanoseconds
}

func (h *histogram) observe(bounds []time.Duration, d time.Duration) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.sum.Add(int64(d))
}

func (h *histogram) read(bounds []time.Duration) Histogram {
	r := Histogram{Bounds: bounds, Sum: time.Duration(h.sum.Load())}
	for i := range bounds {
		r.Counts[i] = h.buckets[i].Load()
		r.Count += r.Counts[i]
	}
	r.Counts[len(bounds)] = h.buckets[len(bounds)].Load()
	r.Count += r.Counts[len(bounds)]
	return r
}

// Histogram is how long something took.
type Histogram struct {
	Bounds []time.Duration   // upper bounds of the buckets; shared, not to be changed
	Counts [maxBuckets]int64 // of each bucket alone, and after the last bound of the rest
	Count  int64             // of all
	Sum    time.Duration
}
