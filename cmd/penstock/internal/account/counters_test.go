package account

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/relay"
)

func points(c *Counters) map[Key]Point {
	m := make(map[Key]Point)
	for _, p := range c.Snapshot(nil, nil) {
		m[p.Key] = p
	}
	return m
}

func TestCounters(t *testing.T) {
	c := NewCounters()
	k := Key{"https", "api", "app", "app-1"}
	s := c.Series(k)
	if s.Key() != k || c.Series(k) != s {
		t.Fatal("a key has two series")
	}
	s.Begin()
	s.Begin()
	s.Attempt(errors.New("refused"))
	s.Attempt(nil)
	c.Record(s, entry())
	e := &Entry{ListenerName: "https", Reason: spec.ReasonDenied}
	e.Cause = relay.CauseRefused
	c.Record(nil, e)

	all := points(c)
	if len(all) != 2 {
		t.Fatalf("%d series", len(all))
	}
	p := all[k]
	switch {
	case p.Begun != 2, p.Ended[relay.CauseUpstreamReset] != 1, p.Open() != 1, p.Reasons[spec.ReasonKilled] != 1, p.Attempts != 2, p.Failures != 1, p.Retries != 2:
		t.Errorf("flows: %+v", p)
	case p.Up.Volume != Volume{10, 4}, p.Up.DatagramsDropped != 1, p.Up.Dropped != 0, p.Down.Volume != Volume{20, 5}, p.Down.Dropped != 10:
		t.Errorf("bytes: %+v", p)
	case p.Up.Paths[datapath.Copy] != 1, p.Up.Whys[datapath.WhySmall] != 1, p.Down.Paths[datapath.Splice] != 1, p.Down.Whys != [numWhys]int64{}:
		t.Errorf("paths: %+v", p)
	case p.Sizes != [NumSizes]int64{1: 1}:
		t.Errorf("flows by their bytes down: %v", p.Sizes)
	case p.FirstByte.Count != 1, p.FirstByte.Sum != 25*time.Millisecond, p.FirstByte.Counts[7] != 1, p.Duration.Counts[6] != 1, p.Duration.Count != 1:
		t.Errorf("times: %+v", p)
	}
	p = all[Key{Listener: "https"}]
	if p.Begun != 1 || p.Ended[relay.CauseRefused] != 1 || p.Sizes[0] != 1 || p.Reasons[spec.ReasonDenied] != 1 || p.Connect.Count != 0 || p.FirstByte.Count != 0 {
		t.Errorf("refused: %+v", p)
	}
}

// Flows are counted by the bytes that went down to their clients; open ones with what they have so far.
func TestSizes(t *testing.T) {
	c := NewCounters()
	s := c.Series(Key{Listener: "l"})
	e := entry()
	for class, bound := range spec.SizeBounds {
		if sizeOf(bound) != class || sizeOf(bound+1) != class+1 {
			t.Errorf("%d and one more: %d, %d", bound, sizeOf(bound), sizeOf(bound+1))
		}
		s.Begin()
		e.Down.Written = bound
		s.End(e)
	}
	s.Begin()
	live := func(add func(*Series, Volume, Volume)) { add(s, Volume{}, Volume{Bytes: 1 << 40}) }
	if p := c.Snapshot(nil, live)[0]; p.Sizes != [NumSizes]int64{1, 1, 1, 1, 1, 1, 1, 1} {
		t.Errorf("%v", p.Sizes)
	}
}

func TestHistogram(t *testing.T) {
	var h histogram
	for _, b := range connectBounds {
		h.observe(connectBounds, b)
		h.observe(connectBounds, b+1)
	}
	got := h.read(connectBounds)
	want := [maxBuckets]int64{1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1}
	if got.Counts != want || got.Count != 32 {
		t.Errorf("%+v", got)
	}
	if len(connectBounds) >= maxBuckets || len(durationBounds) >= maxBuckets {
		t.Error("too many bounds")
	}
}

// Members beyond the bound are counted together; no flow goes uncounted.
func TestManyMembers(t *testing.T) {
	c := NewCounters()
	c.max = 100
	for i := range 1000 {
		e := entry()
		e.Member = strconv.Itoa(i)
		c.Record(nil, e)
		c.Record(nil, e)
	}
	all := points(c)
	k := Key{"https", "api", "app", Other}
	if len(all) != 101 || all[k].Begun != 1800 || all[Key{"https", "api", "app", "99"}].Begun != 2 {
		t.Errorf("%d series, other %d", len(all), all[k].Begun)
	}
	// A removed member makes room.
	c.Forget(func(k Key) bool { return k.Member == "7" })
	e := entry()
	e.Member = "new"
	c.Record(nil, e)
	all = points(c)
	if len(all) != 102 || all[Key{"https", "api", "app", "new"}].Begun != 1 || all[Key{"https", "api", "app", Gone}].Begun != 2 {
		t.Errorf("%d series after one has left", len(all))
	}
}

// The counts of a member that is gone go to the member Gone, once it has no open flow; nothing
// but its name is gone, and a member that comes back starts anew.
func TestForget(t *testing.T) {
	c := NewCounters()
	k, past := Key{"https", "api", "app", "app-1"}, Key{"https", "api", "app", Gone}
	s := c.Series(k)
	s.Begin()
	s.Begin()
	s.Attempt(nil)
	s.Attempt(errors.New("refused"))
	c.Record(s, entry())
	sum := func() Point { // as /metrics and the API add up a group
		var all Point
		for _, p := range c.Snapshot(nil, nil) {
			all.Begun += p.Begun
			all.Attempts += p.Attempts
			all.Failures += p.Failures
			all.Retries += p.Retries
			all.Up.add(p.Up.Volume)
			all.Down.add(p.Down.Volume)
			all.Duration.Add(&p.Duration)
			all.FirstByte.Add(&p.FirstByte)
			all.Connect.Add(&p.Connect)
			for i := range p.Ended {
				all.Ended[i] += p.Ended[i]
			}
			for i := range p.Reasons {
				all.Reasons[i] += p.Reasons[i]
			}
			for i := range p.Up.Paths {
				all.Up.Paths[i] += p.Up.Paths[i]
				all.Down.Paths[i] += p.Down.Paths[i]
			}
			all.Up.DatagramsDropped += p.Up.DatagramsDropped
			all.Down.Dropped += p.Down.Dropped
		}
		return all
	}
	app1 := func(k Key) bool { return k.Member == "app-1" }
	c.Forget(func(Key) bool { return false })
	c.Forget(app1)
	if p := points(c)[k]; p.Open() != 1 || len(points(c)) != 1 {
		t.Fatalf("with an open flow: %+v", p)
	}
	c.Record(s, entry())
	before := sum()
	c.Forget(app1)
	if p := points(c)[past]; p.Begun != 2 || p.Open() != 0 || len(points(c)) != 1 {
		t.Fatalf("%+v", p)
	}
	if after := sum(); !reflect.DeepEqual(after, before) {
		t.Errorf("the sum was\n%+v, is\n%+v", before, after)
	}
	s.Begin() // a flow that had found the series before
	live := c.Snapshot(nil, func(add func(*Series, Volume, Volume)) { add(s, Volume{3, 0}, Volume{}) })
	if len(live) != 1 || live[0].Up.Bytes != before.Up.Bytes+3 {
		t.Errorf("%+v", live)
	}
	c.Record(s, entry())
	if p := points(c)[past]; p.Open() != 0 || p.Begun != 3 || p.Up.Bytes != 30 {
		t.Errorf("%+v", p)
	}
	again := c.Series(k)
	again.Begin()
	c.Record(again, entry())
	if all := points(c); again == s || all[k].Begun != 1 || all[k].Up.Bytes != 10 || all[past].Begun != 3 {
		t.Errorf("%+v", all)
	}
	c.Forget(func(Key) bool { return true })
	if all := points(c); len(all) != 1 || all[past].Begun != 4 {
		t.Errorf("%+v", all)
	}
}

// A report never has less than the one before, even if a member goes while the bytes of its last
// flow were reported and not yet counted.
func TestForgetKeepsReportedBytes(t *testing.T) {
	c := NewCounters()
	k := Key{"l", "r", "g", "m"}
	s := c.Series(k)
	c.Series(Key{"l", "r", "g", Gone}).words.up()[bytesAt].Add(7)
	report := func(live int64) (sum int64) {
		for _, p := range c.Snapshot(nil, func(add func(*Series, Volume, Volume)) { add(s, Volume{live, 0}, Volume{}) }) {
			sum += p.Up.Bytes
		}
		return sum
	}
	if got := report(40); got != 47 {
		t.Fatal(got)
	}
	c.Forget(func(Key) bool { return true })
	if got := report(0); got != 47 {
		t.Errorf("%d after it has gone", got)
	}
	s.words.up()[bytesAt].Add(41) // as a loop does that was about to count when Forget moved the rest
	s = nil
	deadline := time.Now().Add(time.Minute)
	for got := int64(0); got != 48; {
		if runtime.GC(); time.Now().After(deadline) {
			t.Fatalf("%d; want 48", got)
		}
		got = points(c)[Key{"l", "r", "g", Gone}].Up.Bytes
	}
}

// However many members come and go, the number of series and the size of the table are bounded.
func TestMembersComeAndGo(t *testing.T) {
	c := NewCounters()
	const members, batch = 10_000, 100
	for i := range members {
		e := entry()
		e.Member = strconv.Itoa(i)
		c.Record(nil, e)
		if i%batch == batch-1 {
			c.Forget(func(k Key) bool { return k.Member != e.Member })
			if n := len(points(c)); n != 2 {
				t.Fatalf("%d series after %d members", n, i+1)
			}
		}
	}
	if p := points(c)[Key{"https", "api", "app", Gone}]; p.Begun != members-1 || p.Up.Bytes != 10*(members-1) {
		t.Errorf("%+v", p)
	}
	if n := len(c.table.Load().slots); n > 4*batch {
		t.Errorf("a table of %d slots for 2 series", n)
	}
}

// What a flow has moved stays with the member that it had then, however often the counters are read between, and is counted once.
func TestMove(t *testing.T) {
	for _, often := range []bool{false, true} {
		c := NewCounters()
		var s [3]*Series
		for i := range s {
			s[i] = c.Series(Key{"dns", "api", "app", "m" + strconv.Itoa(i)})
		}
		at, total := s[0], Volume{}
		read := func(live bool, want ...int64) {
			t.Helper()
			all := map[Key]Point{}
			for _, p := range c.Snapshot(nil, func(add func(*Series, Volume, Volume)) {
				if live {
					add(at, total, Volume{})
				}
			}) {
				all[p.Key] = p
			}
			for i, n := range want {
				if p := all[s[i].Key()]; p.Up.Datagrams != n || p.Up.Bytes != 100*n {
					t.Errorf("read often: %v, open: %v, member %d: %+v, want %d datagrams", often, live, i, p.Up.Volume, n)
				}
			}
		}
		s[0].Begin()
		want := [3]int64{}
		for i, n := range []int64{10, 6, 3} {
			total.Datagrams += n
			total.Bytes += 100 * n
			want[i] = n
			if often {
				read(true, want[:]...)
			}
			if i < 2 {
				s[i].Move(s[i+1], total, Volume{})
				at = s[i+1]
			}
		}
		read(true, 10, 6, 3)
		e := &Entry{Datagrams: true}
		e.Up = relay.Transfer{Written: total.Bytes, Datagrams: total.Datagrams}
		c.Record(at, e)
		read(false, 10, 6, 3)
	}
}

// No flow that begins, moves or ends while its member goes is lost, and no report decreases.
func TestForgetConcurrently(t *testing.T) {
	c := NewCounters()
	const loops, flows, members = 4, 3000, 20
	var wg, others sync.WaitGroup
	for range loops {
		wg.Go(func() {
			e := entry()
			for i := range flows {
				s := c.Series(Key{"https", "api", "app", "m" + strconv.Itoa(i%members)})
				s.Begin()
				s.Attempt(nil)
				to := c.Series(Key{"https", "api", "app", "m" + strconv.Itoa((i+1)%members)})
				s.Move(to, Volume{}, Volume{})
				c.Record(to, e)
			}
		})
	}
	total := func() (sum Point) {
		for _, p := range c.Snapshot(nil, nil) {
			sum.Begun += p.Begun
			sum.MovedIn += p.MovedIn
			sum.Attempts += p.Attempts
			sum.Up.Bytes += p.Up.Bytes
			sum.Duration.Count += p.Duration.Count
			sum.Ended[relay.CauseUpstreamReset] += p.Ended[relay.CauseUpstreamReset]
		}
		return sum
	}
	stop := make(chan struct{})
	repeat := func(f func()) {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	repeat(func() { c.Forget(func(Key) bool { return true }) })
	var last int64
	repeat(func() {
		p := total()
		if p.Up.Bytes < last {
			t.Errorf("%d bytes after %d", p.Up.Bytes, last)
		}
		last = p.Up.Bytes
	})
	wg.Wait()
	close(stop)
	others.Wait()
	c.Forget(func(Key) bool { return true })
	const all = loops * flows
	deadline := time.Now().Add(time.Minute)
	for { // the counts of a loop that was just about to count arrive later
		p := total()
		if p.Begun == all && p.MovedIn == 0 && p.Attempts == all && p.Up.Bytes == 10*all && p.Duration.Count == all && p.Ended[relay.CauseUpstreamReset] == all {
			break
		}
		if runtime.GC(); time.Now().After(deadline) {
			t.Fatalf("of %d flows: %+v", all, p)
		}
	}
	if n := len(points(c)); n != 1 {
		t.Errorf("%d series", n)
	}
}

// The bytes of a flow are reported once, while it is open and after, and never
// decrease.
func TestLiveBytes(t *testing.T) {
	c := NewCounters()
	s := c.Series(Key{Listener: "l"})
	s.Begin()
	tell := func(bytes int64) int64 {
		p := c.Snapshot(nil, func(add func(*Series, Volume, Volume)) {
			if bytes > 0 {
				add(s, Volume{bytes, 0}, Volume{})
			}
		})
		return p[0].Up.Bytes
	}
	e := &Entry{}
	e.Up.Written = 100
	for _, step := range []struct{ live, want int64 }{{40, 40}, {90, 90}, {0, 90}} { // the flow ends between counters and live
		if got := tell(step.live); got != step.want {
			t.Errorf("%d, want %d", got, step.want)
		}
	}
	c.Record(s, e)
	if got := tell(0); got != 100 {
		t.Errorf("%d after the end", got)
	}
}

func TestCountersConcurrently(t *testing.T) {
	c := NewCounters()
	const loops, flows, members = 4, 3000, 300
	var wg sync.WaitGroup
	for range loops {
		wg.Go(func() {
			e := entry()
			for i := range flows {
				e.Member = "m" + strconv.Itoa(i%members)
				s := c.Series(Key{"https", "api", "app", e.Member})
				s.Begin()
				c.Record(s, e)
			}
		})
	}
	stop := make(chan struct{})
	read := make(chan struct{})
	go func() {
		defer close(read)
		var buf []Point
		for {
			buf = c.Snapshot(buf[:0], nil)
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-read
	var begun, ended, bytes int64
	all := points(c)
	for _, p := range all {
		begun += p.Begun
		ended += p.Ended[relay.CauseUpstreamReset]
		bytes += p.Up.Bytes
	}
	if begun != loops*flows || ended != begun || bytes != 10*begun || len(all) != members {
		t.Errorf("%d begun, %d ended, %d bytes, %d series", begun, ended, bytes, len(all))
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	c := NewCounters()
	e := entry()
	k := Key{e.ListenerName, e.Route, e.Group, e.Member}
	if n := testing.AllocsPerRun(1000, func() {
		s := c.Series(k)
		s.Begin()
		s.Attempt(nil)
		c.Record(s, e)
		c.Record(nil, e)
	}); n != 0 {
		t.Errorf("%v allocations per flow", n)
	}
}

// BenchmarkCount is all that a flow costs its loop: finding the series, beginning
// and ending; of members that loops share.
func BenchmarkCount(b *testing.B) {
	for _, members := range []int{1, 10000} {
		b.Run("members="+strconv.Itoa(members), func(b *testing.B) {
			c := NewCounters()
			names := make([]string, members)
			for i := range names {
				names[i] = fmt.Sprintf("tcp://192.0.2.1:%d", i)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				e := entry()
				for i := 0; pb.Next(); i++ {
					s := c.Series(Key{e.ListenerName, e.Route, e.Group, names[i%members]})
					s.Begin()
					s.Attempt(nil)
					s.End(e)
				}
			})
		})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	c := NewCounters()
	for i := range 10000 {
		c.Series(Key{"https", "api", "app", strconv.Itoa(i)}).Begin()
	}
	var buf []Point
	b.ReportAllocs()
	for b.Loop() {
		buf = c.Snapshot(buf[:0], nil)
	}
}
