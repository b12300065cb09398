package admit

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A source's bucket says what a rate.Limiter says, but where a token is a nanosecond away. One of them has spent a token more then, and what both
// forget when they are full differs, so that they begin again.
func TestBucketIsARateLimiter(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 30 {
		l := spec.SourceLimits{NewFlows: []float64{0.1, 0.5, 1, 3, 100, 12345}[rnd.IntN(6)], Burst: rnd.IntN(20)}
		bound := newSourceLimit(l)
		begin := func() (*sourceTable, *rate.Limiter) {
			return newSourceTable(1000), rate.NewLimiter(rate.Limit(l.NewFlows), burst(l.NewFlows, l.Burst))
		}
		table, oracle := begin()
		now := table.epoch
		agreed := 0
		for range 2000 {
			now = now.Add(time.Duration(rnd.ExpFloat64() * 0.8e9 / l.NewFlows))
			tokens := oracle.TokensAt(now)
			want := oracle.AllowN(now, 1)
			if passed := table.enter(7, bound, now) == spec.ReasonNone; passed == want {
				agreed++
				continue
			} else if away := math.Abs(tokens-1) / l.NewFlows; away > 1e-6 {
				t.Fatalf("%+v: it passed: %v, with %g tokens", l, passed, tokens)
			}
			table, oracle = begin()
			now = table.epoch
		}
		if agreed < 1900 {
			t.Errorf("%+v: they agreed %d times of 2,000", l, agreed)
		}
	}
}

// The extremes of what may be asked for do not overflow.
func TestBucketExtremes(t *testing.T) {
	for _, l := range []spec.SourceLimits{
		{NewFlows: 1e-300}, {NewFlows: 1e300}, {NewFlows: 1e-9}, {NewFlows: 1e12, Burst: 1 << 30}, {NewFlows: 1e300, Burst: 1},
	} {
		table := newSourceTable(1000)
		b := newSourceLimit(l)
		for i := range 3 {
			why := table.enter(7, b, table.epoch)
			if want := i < burst(l.NewFlows, l.Burst); (why == spec.ReasonNone) != want {
				t.Errorf("%+v: flow %d: %q", l, i, why)
			}
		}
		if why := table.enter(8, b, table.epoch.Add(200*365*24*time.Hour)); why != spec.ReasonNone {
			t.Errorf("%+v: after 200 years: %q", l, why)
		}
	}
}

// A full table refuses those that it does not know, until somebody is forgotten.
func TestTableIsBounded(t *testing.T) {
	const room = 64 * 10
	table := newSourceTable(room)
	b := newSourceLimit(spec.SourceLimits{Flows: 1})
	var in []uint64
	refused := 0
	for key := range uint64(10 * room) {
		switch why := table.enter(key, b, table.epoch); why {
		case spec.ReasonNone:
			in = append(in, key)
		case spec.ReasonSourceTable:
			refused++
		default:
			t.Fatal(why)
		}
	}
	if table.len() != room || len(in) != room || refused != 9*room {
		t.Fatalf("%d sources, %d are in, %d were refused", table.len(), len(in), refused)
	}
	if why := table.enter(in[0], b, table.epoch); why != spec.ReasonSourceFlows {
		t.Errorf("one that it knows: %q", why)
	}
	for _, key := range in {
		table.leave(key)
	}
	if table.len() != 0 {
		t.Errorf("%d sources are left", table.len())
	}
}

// Sources whose buckets are full again are forgotten while others come, and the
// memory of many is given back.
func TestIdleSourcesAreForgotten(t *testing.T) {
	table := newSourceTable(MaxSources)
	b := newSourceLimit(spec.SourceLimits{NewFlows: 1, Burst: 1})
	flow := func(key uint64, at time.Duration) {
		if why := table.enter(key, b, table.epoch.Add(at)); why != spec.ReasonNone {
			t.Fatal(why)
		}
		table.leave(key)
	}
	const many = 100_000
	for key := range uint64(many) {
		flow(key, 0)
	}
	if table.len() != many {
		t.Fatalf("%d sources after %d, all in debt", table.len(), many)
	}
	// A thousand new ones a second, all of them in debt for a second: the others go.
	at := time.Duration(0)
	for key := range uint64(many) {
		at += time.Millisecond
		flow(many+key, time.Second+at)
	}
	if n := table.len(); n > 5000 {
		t.Errorf("%d sources are remembered of 1000 in debt", n)
	}
	for i := range table.shards {
		s := &table.shards[i]
		s.latest = int64(time.Hour)
		for len(s.sources) > 0 {
			s.forgetIdle()
		}
		if s.peak > 1000 {
			t.Errorf("shard %d has the memory of %d sources", i, s.peak)
		}
	}
}

func TestSourcesDoNotAllocate(t *testing.T) {
	table := newSourceTable(MaxSources)
	b := newSourceLimit(spec.SourceLimits{Flows: 1, NewFlows: 1e9})
	for key := range uint64(10000) {
		table.enter(key, b, table.epoch)
	}
	if n := testing.AllocsPerRun(1000, func() {
		table.enter(1<<40, b, table.epoch.Add(time.Second))
		table.leave(1 << 40)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkBucket is why a source has a bucket of its own kind, and all have one of
// x/time.
func BenchmarkBucket(b *testing.B) {
	b.Run("kind=source", func(b *testing.B) {
		table := newSourceTable(MaxSources)
		bound := newSourceLimit(spec.SourceLimits{NewFlows: 1e9})
		now := time.Now()
		b.ReportAllocs()
		for b.Loop() {
			table.enter(7, bound, now)
		}
	})
	b.Run("kind=rate.Limiter", func(b *testing.B) {
		l := rate.NewLimiter(1e9, 1e9)
		now := time.Now()
		b.ReportAllocs()
		for b.Loop() {
			l.AllowN(now, 1)
		}
	})
}

// BenchmarkNewSources is a flow of a source that was not there before, in a table
// of so many that are.
func BenchmarkNewSources(b *testing.B) {
	for _, n := range []int{100, 1_000_000} {
		b.Run(map[int]string{100: "sources=100", 1_000_000: "sources=1000000"}[n], func(b *testing.B) {
			table := newSourceTable(MaxSources)
			bound := newSourceLimit(spec.SourceLimits{Flows: 10})
			for key := range uint64(n) {
				table.enter(key, bound, table.epoch)
			}
			key := uint64(1 << 40)
			for b.Loop() {
				key++
				table.enter(key, bound, table.epoch)
				table.leave(key)
			}
		})
	}
}
