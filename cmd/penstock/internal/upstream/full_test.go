package upstream

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// fullGroup returns a group of 100 members of which each may have one flow and has it, and the leases.
func fullGroup(t *testing.T, cfg *spec.Group) (*Set, *Group, func(targets []Target), map[*Member]*Lease) {
	cfg.Discover = []spec.Discover{{Network: spec.TCP, Host: "source", Port: 80, MaxFlows: 1}}
	s, g, tell := startSource(t, cfg, Options{})
	targets := func(targets []Target) { tell(targets, nil) }
	targets(hundred())
	held := map[*Member]*Lease{}
	for range 100 {
		l := new(Lease)
		m, why := g.Pick(l, Client{Addr: nobody})
		if m == nil {
			t.Fatal(why)
		}
		held[m] = l
	}
	t.Cleanup(func() {
		for _, l := range held {
			l.Release()
		}
	})
	return s, g, targets, held
}

func hundred() (ts []Target) {
	for i := range 100 {
		ts = append(ts, foundAt(i))
	}
	return ts
}

// What a flow finds that does not try some members again says nothing to other flows.
func TestFullExceptWhatWasTried(t *testing.T) {
	_, g, _, held := fullGroup(t, &spec.Group{Balance: "random", Retries: 2})
	for m, l := range held {
		if again, _ := g.Pick(l, Client{Addr: nobody}); again != nil { // it could not connect
			t.Fatalf("%s, which was full", again.Name())
		}
		other := new(Lease)
		if got, why := g.Pick(other, Client{Addr: nobody}); got != m {
			t.Fatalf("%v, %v; want %s", got, why, m.Name())
		}
		other.Release()
		break
	}
}

// A member that has a free slot and goes to another priority is picked as one of that.
func TestFreeMemberMoves(t *testing.T) {
	_, g, tell, held := fullGroup(t, &spec.Group{Balance: "random"})
	m := g.table.Load().members[0]
	held[m].Release()
	ts := hundred()
	ts[0].Priority = 1
	for i := range 50 {
		ts = append(ts, foundAt(1000+i))
		ts[100+i].Priority = 1
	}
	tell(ts)
	same := 0
	for range 20 {
		l := new(Lease)
		if got, _ := g.Pick(l, Client{Addr: nobody}); got == m {
			same++
		}
		l.Release()
	}
	if same > 15 {
		t.Errorf("%d of 20 flows have one of 51 members", same)
	}
}

// A member that accepts flows again is found before the next table.
func TestFullUntilOneIsEnabled(t *testing.T) {
	s, g, _, held := fullGroup(t, &spec.Group{Balance: "random"})
	m := g.table.Load().members[7]
	if err := s.SetMode("g", m.Name(), Disable); err != nil {
		t.Fatal(err)
	}
	held[m].Release()
	s.mu.Lock()
	g.buildTable(m.since)
	s.mu.Unlock()
	l := new(Lease)
	if got, _ := g.Pick(l, Client{Addr: nobody}); got != nil {
		t.Fatal(got.Name())
	}
	if err := s.SetMode("g", m.Name(), AsFile); err != nil {
		t.Fatal(err)
	}
	if got, _ := g.Pick(l, Client{Addr: nobody}); got != m {
		t.Error("it is not found")
	}
	l.Release()
}

// Shares whose sum is not exactly 1 give no flows to tiers without a share.
func TestSharesEndWithTheLastOne(t *testing.T) {
	for _, shares := range [][]float64{{0.5, 0.499999999, 0, 0}, {1.0 / 3, 1.0 / 3, 1.0 / 3, 0}, {0, 0.7, 0.31, 0}} {
		var table table
		table.tiers = make([]tier, len(shares))
		table.setShares(shares)
		last := 0
		for i, share := range shares {
			if share > 0 {
				last = i
			}
		}
		if until := table.tiers[last].until; until != math.MaxUint32 {
			t.Errorf("%v: %d", shares, until)
		}
	}
}

// In panic, members that were ejected get flows, too.
func TestEjectedMembersInPanic(t *testing.T) {
	cfg := &spec.Group{Balance: "round-robin", Panic: 0.6, Members: members(2), Eject: &spec.Eject{Failures: 1, For: time.Hour, Max: time.Hour, Share: 1}}
	_, g := set(t, cfg, Options{})
	m := g.table.Load().members[0]
	m.eject(errors.New("test"))
	if got := pick(t, g, 10, false, nil); !slices.Equal(got, []int{5, 5}) {
		t.Errorf("%v", got)
	}
}

// The few members that stay of a large group do not carry the flows of all until the next table may be
// built.
func TestMostMembersAreNew(t *testing.T) {
	_, g, tell := startSource(t, &spec.Group{Balance: "random"}, Options{})
	targets := func(from, to int) (ts []Target) {
		for i := from; i < to; i++ {
			ts = append(ts, foundAt(i))
		}
		return ts
	}
	tell(targets(0, 300), nil)
	later := func() {
		g.set.mu.Lock()
		defer g.set.mu.Unlock()
		g.buildAfter = time.Now().Add(time.Hour)
	}
	later()
	tell(targets(298, 600), nil)
	if g.Len() != 302 {
		t.Errorf("the table has %d members, want 302", g.Len())
	}
	later()
	tell(targets(298, 601), nil)
	if g.Len() != 302 {
		t.Errorf("the table has %d members: it is built for each change", g.Len())
	}
}

// A flow that waits gets the slot that becomes free first, in whatever tier, also if the member has moved
// to another one since, and a slot that a greater limit makes.
func TestQueueInAllTiers(t *testing.T) {
	for _, balance := range balancerNames() {
		cfg := &spec.Group{Balance: balance, Queue: spec.Queue{Size: 10, Timeout: time.Hour}}
		s, g, tell, held := fullGroup(t, cfg)
		ts := hundred()
		move := func(priority func(i int) int) {
			for i := range ts {
				ts[i].Priority = priority(i)
			}
			tell(slices.Clone(ts))
		}
		enter := func() (*Lease, *flow) {
			t.Helper()
			l, f := new(Lease), new(flow)
			if m, why := g.Pick(l, Client{Addr: nobody}); m != nil || why != spec.ReasonNone {
				t.Fatalf("%s: %v, %v", balance, m, why)
			}
			if m, why := g.Wait(l, f); m != nil || why != spec.ReasonNone {
				t.Fatalf("%s: %v, %v", balance, m, why)
			}
			return l, f
		}
		for turn, priority := range []func(i int) int{func(i int) int { return 0 }, func(i int) int { return i % 3 }, func(i int) int { return 2 - i%3 }} {
			move(priority)
			for _, m := range []*Member{g.table.Load().members[turn], g.table.Load().members[97+turn]} {
				l, f := enter()
				held[m].Release()
				if got, _ := g.Pick(l, Client{}); f.resumed != 1 || got != m {
					t.Fatalf("%s, turn %d: resumed %d times, with %v", balance, turn, f.resumed, got)
				}
				held[m] = l
			}
		}
		l, f := enter()
		next := *cfg
		next.Discover = slices.Clone(cfg.Discover)
		next.Discover[0].MaxFlows = 2
		s.Apply([]*spec.Group{&next})
		if got, _ := g.Pick(l, Client{}); f.resumed != 1 || got == nil {
			t.Errorf("%s: resumed %d times, with %v, after the limit has grown", balance, f.resumed, got)
		}
		l.Release()
	}
}

// Backups that are full are members without a free slot, and not no members.
func TestFullBackups(t *testing.T) {
	cfg := &spec.Group{Balance: "random", Members: members(2)}
	cfg.Members[1].Backup, cfg.Members[1].MaxFlows = true, 1
	s, g := set(t, cfg, Options{})
	if err := s.SetMode("g", "m0", Disable); err != nil {
		t.Fatal(err)
	}
	var first, second Lease
	if m, why := g.Pick(&first, Client{Addr: nobody}); m == nil || m.Name() != "m1" {
		t.Errorf("%v, %v", m, why)
	}
	if m, why := g.Pick(&second, Client{Addr: nobody}); m != nil || why != spec.ReasonQueueFull {
		t.Errorf("%v, %v", m, why)
	}
	first.Release()
}
