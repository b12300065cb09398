package account

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
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
	case p.Up.Paths[relay.PathCopy] != 1, p.Up.Whys[relay.WhySmall] != 1, p.Down.Paths[relay.PathSplice] != 1, p.Down.Whys != [relay.NumWhys]int64{}:
		t.Errorf("paths: %+v", p)
	case p.FirstByte.Count != 1, p.FirstByte.Sum != 25*time.Millisecond, p.FirstByte.Counts[7] != 1, p.Duration.Counts[6] != 1, p.Duration.Count != 1:
		t.Errorf("times: %+v", p)
	}
	p = all[Key{Listener: "https"}]
	if p.Begun != 1 || p.Ended[relay.CauseRefused] != 1 || p.Reasons[spec.ReasonDenied] != 1 || p.Connect.Count != 0 || p.FirstByte.Count != 0 {
		t.Errorf("refused: %+v", p)
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
	if len(all) != 101 || all[Key{"https", "api", "app", "new"}].Begun != 1 {
		t.Errorf("%d series after one has left", len(all))
	}
}

// A removed member is no longer reported; its flows are counted for another.
func TestForget(t *testing.T) {
	c := NewCounters()
	k := Key{"https", "api", "app", "app-1"}
	s := c.Series(k)
	s.Begin()
	s.Begin()
	c.Record(s, entry())
	c.Forget(func(Key) bool { return false })
	c.Forget(func(k Key) bool { return k.Member == "app-1" })
	other := Key{"https", "api", "app", Other}
	all := points(c)
	if p := all[other]; len(all) != 1 || p.Open() != 1 || p.Up.Bytes != 0 {
		t.Fatalf("%+v", all)
	}
	live := c.Snapshot(nil, func(add func(*Series, Volume, Volume)) { add(s, Volume{3, 0}, Volume{}) })
	if live[0].Up.Bytes != 3 {
		t.Errorf("%+v", live[0])
	}
	c.Record(s, entry())
	if p := points(c)[other]; p.Open() != 0 || p.Begun != 1 || p.Up.Bytes != 10 {
		t.Errorf("%+v", p)
	}
	s = c.Series(k) // it is added again
	s.Begin()
	if p := points(c)[k]; p.Begun != 1 {
		t.Errorf("%+v", p)
	}
	// A whole listener leaves nothing behind, and its flows may still end.
	c.Forget(func(k Key) bool { return k.Listener == "https" })
	c.Record(s, entry())
	if all := points(c); len(all) != 0 {
		t.Errorf("%+v", all)
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
