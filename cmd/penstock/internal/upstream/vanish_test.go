package upstream

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay"
)

// found returns targets, by the last byte of their addresses.
func found(numbers ...int) (ts []Target) {
	for _, n := range numbers {
		ts = append(ts, foundAt(n))
	}
	return ts
}

func foundAt(n int) Target {
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, byte(n >> 16), byte(n >> 8), byte(n)}), 80)
	return Target{Name: fmt.Sprint("m", n), Weight: 1, Addr: relay.Addr{Network: relay.TCP, AddrPort: addr}}
}

// startSource returns a Set with a group whose members are those of a source.
func startSource(t testing.TB, cfg *spec.Group, opt Options) (*Set, *Group, func([]Target, error)) {
	t.Helper()
	answers := make(scripted)
	opt.Discoverer = func(spec.Discover) Discoverer { return answers }
	if cfg.Discover == nil {
		cfg.Discover = []spec.Discover{{Network: spec.TCP, Host: "source", Port: 80}}
	}
	s, g := set(t, cfg, opt)
	return s, g, func(targets []Target, err error) {
		done := make(chan struct{})
		answers <- func(update func([]Target, error)) { update(targets, err); close(done) }
		<-done
	}
}

func TestTooMany(t *testing.T) {
	for _, c := range []struct {
		had, has int
		share    float64
		want     bool
	}{
		{1, 0, 1, true}, {1, 0, 0.5, true}, {10, 0, 1, true}, {2, 1, 0.01, false}, {2, 1, 0.5, false}, {3, 1, 0.5, true}, {4, 2, 0.5, false},
		{4, 1, 0.5, true}, {10, 5, 0.5, false}, {10, 4, 0.5, true}, {10, 1, 1, false}, {10, 8, 0.1, true}, {10, 9, 0.01, false}, {10, 10, 0.01, false},
		{10, 20, 0.01, false}, {0, 0, 0.5, false}, {5, 0, 0, false},
	} {
		if got := tooMany(c.had, c.has, c.share); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// An answer that lacks too many members removes none of them until it has been so for a while; what
// it says of the others applies. Each change is told once.
func TestVanish(t *testing.T) {
	var mu sync.Mutex
	var events []LookupEvent
	cfg := &spec.Group{Balance: "random", Lookups: spec.Lookups{Keep: time.Hour, Vanish: 0.5}}
	s, _, tell := startSource(t, cfg, Options{LookupChanged: func(e LookupEvent) { mu.Lock(); defer mu.Unlock(); events = append(events, e) }})
	check := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, m := range s.Snapshot()[0].Members {
			got = append(got, m.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	told := func(want LookupEvent) {
		t.Helper()
		testwait.Until(t, "an event", func() bool { mu.Lock(); defer mu.Unlock(); return len(events) > 0 })
		mu.Lock()
		defer mu.Unlock()
		e := events[0]
		if len(events) != 1 || e.Vanished != want.Vanished || e.Members != want.Members || e.Removed != want.Removed || (e.Err == nil) != (want.Err == nil) || e.Missing {
			t.Errorf("%+v, want %+v", events, want)
		}
		events = nil
	}
	some := errors.New("some")
	tell(found(1, 2, 3, 4, 5, 6), nil)
	tell(found(2, 3, 4, 5, 6), nil)
	tell(found(2, 3, 4), nil)
	tell(found(7, 8, 9), nil) // replaced
	tell(found(7, 8, 9, 10), nil)
	check("answers that are believed", "m7", "m8", "m9", "m10")

	tell(nil, nil)
	told(LookupEvent{Err: some, Vanished: 4, Members: 4})
	check("an empty answer", "m7", "m8", "m9", "m10")
	drained := found(11, 8)
	drained[1].Draining = true
	tell(drained[1:], nil)
	check("too few", "m8", "m7", "m9", "m10")
	if m := memberNamed(s, "m8"); m.State != Drained || m.Mode != AsFile {
		t.Errorf("%+v", m)
	}
	if l := s.Snapshot()[0].Lookups[0]; l.Err == "" || l.Failures != 2 {
		t.Errorf("%+v", l)
	}
	tell(drained, nil) // two of four
	told(LookupEvent{Members: 2})
	check("an answer that is believed again", "m11", "m8")
	if l := s.Snapshot()[0].Lookups[0]; l.Err != "" {
		t.Errorf("%+v", l)
	}
	tell(nil, nil)
	told(LookupEvent{Err: some, Vanished: 2, Members: 2})
	tell(nil, some)
	told(LookupEvent{Err: some, Members: 2})
	tell(nil, nil)
	told(LookupEvent{Err: some, Vanished: 2, Members: 2})
	tell(nil, nil)
	tell(found(8), nil) // not drained any more, and one of two may go
	told(LookupEvent{Members: 1})
	check("one of two", "m8")
	if m := memberNamed(s, "m8"); m.State != Up {
		t.Errorf("%+v", m)
	}

	// It has been so for long enough.
	next := *s.Group("g").Config()
	next.Lookups.Keep = time.Millisecond
	s.Apply([]*spec.Group{&next})
	check("after a reload", "m8")
	tell(nil, nil)
	testwait.Until(t, "no members", func() bool { return len(memberNames(s)) == 0 })
	testwait.Until(t, "events", func() bool { mu.Lock(); defer mu.Unlock(); return len(events) == 2 })
	if e := events[1]; !e.Removed || e.Vanished != 1 || e.Members != 0 || e.Err != nil {
		t.Errorf("%+v", events)
	}
}

// While the source fails, nobody says that members are gone.
func TestVanishWhileTheSourceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, tell := startSource(t, &spec.Group{Balance: "random", Lookups: spec.Lookups{Keep: time.Minute, Vanish: 0.5}}, Options{})
		defer s.Close()
		after := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			if synctest.Wait(); g.Len() != want {
				t.Errorf("%d members, want %d", g.Len(), want)
			}
		}
		tell(found(1, 2, 3), nil)
		tell(found(1), nil)
		after(59*time.Second, 3)
		tell(nil, errors.New("away"))
		after(time.Hour, 3)
		tell(found(1), nil)
		after(59*time.Second, 3)
		after(2*time.Second, 1)
	})
}

func memberNamed(s *Set, name string) MemberSnapshot {
	for _, m := range s.Snapshot()[0].Members {
		if m.Name == name {
			return m
		}
	}
	return MemberSnapshot{}
}

// Each kind of trouble is told when it begins, also when another one was there before.
func TestVanishAndFailuresInTurn(t *testing.T) {
	events := make(chan LookupEvent, 10)
	_, g, tell := startSource(t, &spec.Group{Balance: "random", Lookups: spec.Lookups{Keep: time.Hour, Vanish: 0.5}}, Options{LookupChanged: func(e LookupEvent) { events <- e }})
	told := func(vanished int, fails bool) {
		t.Helper()
		select {
		case e := <-events:
			if e.Vanished != vanished || (e.Err != nil) != fails || e.Missing || e.Removed {
				t.Errorf("%+v", e)
			}
		case <-time.After(testwait.Patience):
			t.Fatal("no event")
		}
	}
	tell(found(1, 2, 3), nil)
	away := errors.New("away")
	tell(nil, away)
	told(0, true)
	tell(nil, nil) // restored without its data
	told(3, true)
	tell(nil, nil)
	tell(nil, away)
	told(0, true)
	tell(nil, away)
	tell(found(1), nil)
	told(2, true)
	tell(found(1, 2, 3), nil)
	told(0, false)
	tell(nil, nil)
	told(3, true)
	if len(events) > 0 {
		t.Errorf("more: %+v", <-events)
	}

	// Members that stay do not come on top of as many others as one answer may have.
	many := make([]int, maxTargets)
	for i := range many {
		many[i] = i
	}
	tell(found(many...), nil)
	told(0, false)
	tell(found(1<<20, 1<<20+1), nil)
	told(maxTargets-2, true)
	if n := g.Len(); n != maxTargets {
		t.Errorf("%d members", n)
	}
}

// An answer is compared with the members before the doubt began, and not with those that stay besides it.
func TestVanishOfWhatWasBefore(t *testing.T) {
	s, g, tell := startSource(t, &spec.Group{Balance: "random", Lookups: spec.Lookups{Keep: time.Hour, Vanish: 0.5}}, Options{})
	tell(found(1, 2, 3, 4), nil)
	tell(found(11), nil)
	if g.Len() != 5 {
		t.Errorf("%d members", g.Len())
	}
	w := s.watches[lookups(g.Config())[0]]
	old := w.doubt
	tell(found(11, 12), nil)
	if g.Len() != 2 {
		t.Errorf("%d members, want the two of the answer", g.Len())
	}
	// The time of a doubt that has ended comes too late.
	s.mu.Lock()
	s.believe(t.Context(), w, old, time.Now())
	s.mu.Unlock()
	if g.Len() != 2 {
		t.Errorf("%d members after the end of a doubt that was over", g.Len())
	}
}
