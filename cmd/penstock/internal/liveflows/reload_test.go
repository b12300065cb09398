package liveflows

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
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

// nothingRemoved is a Config that has everything.
type nothingRemoved struct{}

func (nothingRemoved) IsRemoved(*hooks.State) (spec.LiveFlows, bool) { return spec.LiveFlows{}, false }

// times returns when flows are to end.
func (s *schedule) times() map[uint64]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	times := map[uint64]time.Time{}
	for _, d := range s.due {
		times[d.id] = d.at
	}
	return times
}

// Flows of a member that was ejected at 0 s wait for their end when a reload, at 60 s, says something else of it.
func TestReloadMovesEnds(t *testing.T) {
	const flows = 50
	drain := func(after, jitter time.Duration) spec.LiveFlows {
		return spec.LiveFlows{What: "drain", After: after, Jitter: jitter}
	}
	const s = time.Second
	for _, c := range []struct {
		name        string
		was, is     spec.LiveFlows
		first, last time.Duration // ends are between these; zero: there are none
	}{
		{"no reload", drain(200*s, 0), spec.LiveFlows{}, 200 * s, 200 * s},
		{"the same", drain(200*s, 0), drain(200*s, 0), 200 * s, 200 * s},
		{"sooner", drain(200*s, 0), drain(100*s, 0), 100 * s, 100 * s},
		{"sooner than now", drain(200*s, 0), drain(30*s, 0), 60 * s, 60 * s},
		{"later", drain(200*s, 0), drain(300*s, 0), 300 * s, 300 * s},
		{"a jitter", drain(200*s, 0), drain(200*s, 120*s), 80 * s, 200 * s},
		{"no jitter", drain(200*s, 120*s), drain(200*s, 0), 200 * s, 200 * s},
		{"keep", drain(200*s, 0), spec.LiveFlows{What: "keep"}, 0, 0},
		{"close", drain(200*s, 100*s), spec.LiveFlows{What: "close"}, 60 * s, 60 * s},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := &spec.Group{Name: "g", Balance: "first", Down: c.was, Eject: &spec.Eject{Failures: 1, For: time.Hour, Max: time.Hour, Share: 1}}
			for i := range 2 {
				cfg.Members = append(cfg.Members, spec.Member{Name: fmt.Sprint("m", i), Weight: 1, To: spec.Endpoint{Kind: spec.TCP, Host: "10.0.0.1", Port: uint16(1 + i)}})
			}
			set := upstream.NewSet(upstream.Options{})
			defer set.Close()
			set.Apply([]*spec.Group{cfg})
			var lease upstream.Lease
			m, _ := set.Group("g").Pick(&lease, upstream.Client{})
			defer lease.Release()
			begun := time.Now()
			time.Sleep(time.Nanosecond)
			lease.Connected(errors.New("refused"), 0)
			synctest.Wait()

			var mu sync.Mutex
			ended := map[uint64]time.Duration{}
			f := &Flows{
				each: func(do func(*upstream.Member, *relay.FlowInfo, *hooks.State)) {
					mu.Lock()
					defer mu.Unlock()
					for id := range uint64(flows) {
						if _, ok := ended[id]; !ok {
							do(m, &relay.FlowInfo{Record: relay.Record{ID: id, Start: begun}, State: stats.StateRelaying}, new(hooks.State))
						}
					}
				},
				kill: func(id uint64, cause relay.Cause) bool {
					mu.Lock()
					defer mu.Unlock()
					if _, twice := ended[id]; twice || cause != relay.CauseDown {
						t.Errorf("%s: flow %d ends again, or by %v", c.name, id, cause)
					}
					ended[id] = time.Since(begun)
					return true
				},
				running: func() Config { return nothingRemoved{} }, seed: maphash.MakeSeed(),
			}
			f.ends = newSchedule(f.end)
			f.ScheduleEnds()
			time.Sleep(60 * s)
			if c.is != (spec.LiveFlows{}) {
				next := *cfg
				next.Down = c.is
				set.Apply([]*spec.Group{&next})
				f.ScheduleEnds()
				synctest.Wait()
				before := f.ends.times()
				f.ScheduleEnds()
				if !maps.Equal(before, f.ends.times()) {
					t.Errorf("%s: ends move at a reload that changes nothing", c.name)
				}
			}
			due := f.ends.times()
			time.Sleep(30 * time.Minute)
			f.Close()
			if n := len(ended); n != flows && c.last > 0 || n > 0 && c.last == 0 {
				t.Errorf("%s: %d of %d flows have ended", c.name, n, flows)
			}
			distinct := map[time.Duration]bool{}
			for id, after := range ended {
				distinct[after] = true
				if at, waited := due[id]; waited && !at.Equal(begun.Add(after)) {
					t.Errorf("%s: flow %d is due after %v, and has ended after %v", c.name, id, at.Sub(begun), after)
				}
				if after = after.Truncate(time.Microsecond); after < c.first || after > c.last {
					t.Errorf("%s: flow %d has ended after %v", c.name, id, after)
				}
			}
			if c.first < c.last && len(distinct) < flows/2 {
				t.Errorf("%s: the ends of %d flows are at %d times", c.name, flows, len(distinct))
			}
		})
	}
}
