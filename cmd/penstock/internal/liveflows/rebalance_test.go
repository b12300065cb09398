package liveflows

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/stats"
)

// clients are flows of clients that come back when theirs ends.
type clients struct {
	t     *testing.T
	g     *upstream.Group
	mu    sync.Mutex
	last  uint64
	flows map[uint64]*client
	ended []client
}

type client struct {
	id      uint64
	member  *upstream.Member
	lease   *upstream.Lease
	start   time.Time
	moved   time.Time
	endedAt time.Time
}

// come begins a flow, which has moved data last so long ago.
func (c *clients) come(idle time.Duration) {
	l := new(upstream.Lease)
	m, why := c.g.Pick(l, upstream.Client{})
	if m == nil {
		c.t.Fatalf("no member: %v", why)
	}
	c.last++
	c.flows[c.last] = &client{id: c.last, member: m, lease: l, start: time.Now().Add(-idle), moved: time.Now().Add(-idle)}
}

func (c *clients) kill(id uint64, cause relay.Cause) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	flow := c.flows[id]
	if flow == nil {
		c.t.Errorf("flow %d ends twice", id)
		return false
	}
	if cause != relay.CauseRebalanced {
		c.t.Errorf("flow %d ends by %s", id, cause)
	}
	flow.endedAt = time.Now()
	c.ended = append(c.ended, *flow)
	delete(c.flows, id)
	flow.lease.Release()
	c.come(0)
	return true
}

func (c *clients) flow(id uint64) (info relay.FlowInfo, ok bool) {
	c.each(func(_ *upstream.Member, f *relay.FlowInfo, _ *hooks.State) {
		if f.ID == id {
			info, ok = *f, true
		}
	})
	return info, ok
}

func (c *clients) each(do func(*upstream.Member, *relay.FlowInfo, *hooks.State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.flows {
		do(f.member, &relay.FlowInfo{Record: relay.Record{ID: f.id, Start: f.start}, State: stats.StateRelaying, Idle: time.Since(f.moved)}, nil)
	}
}

// ends returns the number of flows that have ended.
func (c *clients) ends() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ended)
}

// counts returns the number of flows of each member.
func (c *clients) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[string]int{}
	for _, f := range c.flows {
		n[f.member.Name()]++
	}
	return n
}

func spread(members ...string) *spec.Group {
	cfg := &spec.Group{Name: "g", Balance: "least-connections", Rebalance: &spec.Rebalance{Share: 0.1, Tolerance: 0.1}}
	for i, name := range members {
		cfg.Members = append(cfg.Members, spec.Member{Name: name, Weight: 1 + i/2, To: spec.Endpoint{Kind: spec.TCP, Host: "10.0.0.1", Port: uint16(1 + i)}})
	}
	return cfg
}

// begin makes a group with 300 flows, whose ends are followed until the test ends.
func begin(t *testing.T, opt upstream.Options, cfg *spec.Group) (*clients, *upstream.Set) {
	c := &clients{t: t, flows: map[uint64]*client{}}
	f := &Flows{each: c.each, joined: make(chan *upstream.Group), closed: make(chan struct{}), flow: c.flow, kill: c.kill}
	f.ends = newSchedule(f.end)
	opt.Joined = f.Rebalance
	set := upstream.NewSet(opt)
	set.Apply([]*spec.Group{cfg})
	c.g = set.Group("g")
	for i := range 300 {
		c.come(time.Duration(1000-i) * time.Second)
	}
	closing := make(chan struct{})
	go f.FollowBalance(closing)
	t.Cleanup(func() {
		set.Close()
		close(closing)
		<-f.closed
		f.Close()
	})
	return c, set
}

// When a member joins, flows of the others end, those first that have moved no data for longest, and never more than a share in a minute, until each
// member has its part. Then nothing ends any more, also if members end.
func TestRebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, set := begin(t, upstream.Options{}, spread("a", "b"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(c.ended) > 0 {
			t.Fatalf("%d flows ended before a member came", len(c.ended))
		}
		set.Apply([]*spec.Group{spread("a", "b", "c")}) // c has twice the weight
		time.Sleep(time.Hour)
		synctest.Wait()
		n := c.counts()
		if n["a"] > 84 || n["b"] > 84 || n["c"] < 132 || n["a"]+n["b"]+n["c"] != 300 {
			t.Errorf("after an hour: %v", n)
		}
		if got := len(c.ended); got < 130 || got > 140 {
			t.Errorf("%d flows ended", got)
		}
		for i, e := range c.ended {
			if e.start.After(c.ended[0].endedAt) || e.member.Name() == "c" {
				t.Errorf("flow %d of %s, which came back, ended again", e.id, e.member.Name())
			}
			minute := 0
			for _, later := range c.ended[i:] {
				if later.endedAt.Before(e.endedAt.Add(time.Minute)) {
					minute++
				}
			}
			if minute > 31 { // a tenth, and one of the minute before
				t.Errorf("%d flows ended within a minute from %v on", minute, e.endedAt)
			}
			if i < 20 && e.id > 60 {
				t.Errorf("flow %d was the %d. to end; others have moved no data for longer", e.id, i)
			}
		}
		ended := len(c.ended)
		set.Apply([]*spec.Group{spread("a", "b")})
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(c.ended) != ended {
			t.Errorf("%d flows ended when a member left", len(c.ended)-ended)
		}
	})
}

// Flows end only as far as the configuration says so now; the next process goes on.
func TestRebalanceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, change := range map[string]func(*spec.Group){
			"off":       func(g *spec.Group) { g.Rebalance = nil },
			"first":     func(g *spec.Group) { g.Balance = "first" },
			"zones":     func(g *spec.Group) { g.Zone = spec.ZonePrefer },
			"busy ones": func(g *spec.Group) { g.Rebalance.Idle = 24 * time.Hour },
			"tolerance": func(g *spec.Group) { g.Rebalance.Tolerance = 1 },
		} {
			c, set := begin(t, upstream.Options{}, spread("a", "b"))
			cfg := spread("a", "b", "c")
			change(cfg)
			set.Apply([]*spec.Group{cfg})
			time.Sleep(time.Hour)
			synctest.Wait()
			if n := len(c.ended); n != 0 {
				t.Errorf("%s: %d flows ended", what, n)
			}
		}
		c, set := begin(t, upstream.Options{}, spread("a", "b"))
		set.Apply([]*spec.Group{spread("a", "b", "c")})
		c.mu.Lock()
		for _, f := range c.flows { // they began after it had joined
			f.start = time.Now().Add(time.Millisecond)
		}
		c.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(c.ended); n != 0 {
			t.Errorf("%d flows ended that had begun after the member had joined", n)
		}

		// No more than is too much, however much may end.
		fast := spread("a", "b", "c")
		fast.Rebalance.Share = 1
		c, set = begin(t, upstream.Options{}, spread("a", "b"))
		set.Apply([]*spec.Group{fast})
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := c.counts(); len(c.ended) > 136 || n["a"] < 75 || n["b"] < 75 {
			t.Errorf("%d flows ended: %v", len(c.ended), n)
		}

		c, set = begin(t, upstream.Options{}, spread("a", "b"))
		set.Apply([]*spec.Group{spread("a", "b", "c")})
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(c.ended); n < 20 {
			t.Fatalf("%d flows ended", n)
		}
		saved := set.Save()
		next := upstream.NewSet(upstream.Options{Saved: &saved})
		defer next.Close()
		next.Apply([]*spec.Group{spread("a", "b", "c")})
		if s := next.Group("g").Surplus(); s.Since.IsZero() || !s.Since.Equal(saved.Groups[0].Joined) {
			t.Errorf("the next process: %+v, saved %v", s, saved.Groups[0].Joined)
		}
		// One in which nobody joined has nothing to do.
		balanced := saved
		balanced.Groups[0].Joined = time.Time{}
		other := upstream.NewSet(upstream.Options{Saved: &balanced, Joined: func(*upstream.Group) { t.Error("members that were there have joined") }})
		defer other.Close()
		other.Apply([]*spec.Group{spread("a", "b", "c")})
		synctest.Wait()
		if s := other.Group("g").Surplus(); !s.Since.IsZero() {
			t.Errorf("nobody joined: %+v", s)
		}
	})
}

// While a group panics, its members that are not healthy accept flows, but nobody's flows end for them; when they are healthy
// again, they get their part.
func TestRebalanceInPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		some := func(names ...string) []*spec.Group {
			g := spread(names...)
			g.Panic, g.Eject = 0.8, &spec.Eject{Failures: 1, For: 2 * time.Hour, Max: 2 * time.Hour, Share: 1}
			return []*spec.Group{g}
		}
		c, set := begin(t, upstream.Options{}, some("a", "b")[0])
		set.Apply(some("a", "b", "c", "d"))
		for failed := map[string]bool{}; len(failed) < 2; {
			l := new(upstream.Lease)
			m, _ := c.g.Pick(l, upstream.Client{})
			if m.Name() == "c" || m.Name() == "d" {
				failed[m.Name()] = true
				l.Connected(errors.New("refused"), 0)
			}
			defer l.Release()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := c.ends(); n != 0 {
			t.Errorf("%d flows ended for members that are ejected: %v", n, c.counts())
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if n := c.counts(); n["c"] < 80 || n["d"] < 80 {
			t.Errorf("members that are back have too few flows: %v", n)
		}
	})
}

// A flow that has moved data since it was chosen does not end.
func TestRebalanceOfBusyFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := spread("a", "b", "c")
		cfg.Rebalance.Idle = 10 * time.Second
		c, set := begin(t, upstream.Options{}, spread("a", "b"))
		set.Apply([]*spec.Group{cfg})
		time.Sleep(rebalanceEvery + time.Nanosecond) // a round has chosen some
		c.mu.Lock()
		for _, f := range c.flows {
			f.moved = time.Now()
		}
		c.mu.Unlock()
		ended := c.ends()
		time.Sleep(rebalanceEvery)
		synctest.Wait()
		if n := c.ends() - ended; n != 0 {
			t.Errorf("%d flows ended that had just moved data", n)
		}
	})
}
