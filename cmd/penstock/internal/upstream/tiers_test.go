package upstream

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// The own zone's share in numbers.
func TestOwnShare(t *testing.T) {
	for _, c := range []struct {
		what                string
		own, foreign, zones int
		want                float64
	}{
		{"even zones", 10, 20, 3, 1},
		{"the own zone is larger", 20, 10, 2, 1},
		{"8 of 10 in one of two zones are enough: 1.4 of even is 0.8*2*1.4/1.8", 8, 10, 2, 1},
		{"half of the own zone", 5, 10, 2, 1.4 * 5 * 2 / 15},
		{"one of three zones has a tenth of its part", 1, 20, 3, 0.2},
		{"none in the own zone", 0, 10, 1, 0},
		{"none elsewhere", 1, 0, 1, 1},
		{"none at all", 0, 0, 0, 1},
	} {
		if got := ownShare(c.own, c.foreign, c.zones); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %.4f, want %.4f", c.what, got, c.want)
		}
	}
}

// zoned returns targets with a zone and a priority each.
func zoned(from, n int, zone string, priority int) []Target {
	var ts []Target
	for i := range n {
		target := foundAt(from + i)
		target.Zone, target.Priority = zone, priority
		ts = append(ts, target)
	}
	return ts
}

// countZones returns how many of n new flows each zone and priority gets, in thousandths.
func countZones(t *testing.T, g *Group, n int, hold bool) map[string]int {
	t.Helper()
	got := map[string]int{}
	for i := range n {
		l := new(Lease)
		m, why := g.Pick(l, Client{Addr: clients(i), Local: nobody})
		if m == nil {
			got[why.String()]++
			continue
		}
		g.set.mu.Lock()
		got[fmt.Sprintf("%s%d", m.zone, m.priority)]++
		g.set.mu.Unlock()
		if !hold {
			l.Release()
		}
	}
	return got
}

// Flows are spread as the shares say, with every balancer.
func TestZonesAndPriorities(t *testing.T) {
	for _, balance := range balancerNames() {
		cfg := &spec.Group{Balance: balance, Zone: spec.ZonePrefer}
		s, g, tell := startSource(t, cfg, Options{Zone: "a"})
		check := func(what string, want map[string]float64) {
			t.Helper()
			const n = 5000
			got := countZones(t, g, n, false)
			for k := range got {
				if _, ok := want[k]; !ok {
					t.Errorf("%s: %s: %v, want %v", balance, what, got, want)
				}
			}
			for k, share := range want {
				// 5000 draws differ from their mean by more than 6 standard deviations once in 10^9.
				if d := math.Abs(float64(got[k]) - share*n); d > 6*math.Sqrt(n*share*(1-share)+1) {
					t.Errorf("%s: %s: %v, want %v", balance, what, got, want)
				}
			}
		}
		disable := func(names ...int) {
			for _, i := range names {
				if err := s.SetMode("g", fmt.Sprint("m", i), Disable); err != nil {
					t.Fatal(err)
				}
			}
		}
		down := func(names ...int) {
			s.mu.Lock()
			for _, i := range names {
				for _, m := range g.members {
					if m.name == fmt.Sprint("m", i) {
						m.health.state = failing
						g.updateState(m, m.since, "test")
					}
				}
			}
			g.buildTable(m0(g).since)
			s.mu.Unlock()
		}
		tell(slices.Concat(zoned(0, 4, "a", 0), zoned(10, 4, "b", 0), zoned(20, 4, "a", 1)), nil)
		check("all up", map[string]float64{"a0": 1})
		down(0, 1)
		own := 1.4 * 2 * 2 / 6
		check("half of the own zone down", map[string]float64{"a0": own, "b0": 1 - own})
		down(2, 10, 11, 12) // 2 of 8: the first level gets 0.35
		check("most of the level down", map[string]float64{"a0": 0.35, "a1": 0.65})
		down(3, 13)
		check("the level down", map[string]float64{"a1": 1})
		down(20, 21, 22, 23)
		check("all down", map[string]float64{"no-member": 1})
		disable(0)

		// What is drained does not count: the rest is enough.
		tell(slices.Concat(zoned(30, 2, "a", 0), zoned(40, 2, "b", 0), zoned(50, 1, "c", 1)), nil)
		if err := s.SetMode("g", "m30", Drain); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		g.buildTable(m0(g).since)
		s.mu.Unlock()
		check("one of two is drained", map[string]float64{"a0": 1.4 * 1 * 2 / 3, "b0": 1 - 1.4*2/3})
	}
}

func m0(g *Group) *Member { return g.members[0] }

// Without a preference, and without a zone of the relay, zones do not matter.
func TestZonesDoNotMatter(t *testing.T) {
	for _, c := range []struct {
		prefer bool
		zone   string
	}{{false, "a"}, {true, ""}} {
		cfg := &spec.Group{Balance: "round-robin"}
		if c.prefer {
			cfg.Zone = spec.ZonePrefer
		}
		_, g, tell := startSource(t, cfg, Options{Zone: c.zone})
		tell(slices.Concat(zoned(0, 1, "a", 0), zoned(10, 1, "b", 0)), nil)
		if got := countZones(t, g, 100, false); got["a0"] != 50 || got["b0"] != 50 {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Members that are at their max-flows spill over: to other zones, then to other levels, then nowhere.
func TestFullTiersSpillOver(t *testing.T) {
	for _, balance := range balancerNames() {
		_, g, tell := startSource(t, &spec.Group{Balance: balance, Zone: spec.ZonePrefer,
			Discover: []spec.Discover{{Network: spec.TCP, Host: "source", Port: 80, MaxFlows: 10}}}, Options{Zone: "a"})
		ts := slices.Concat(zoned(0, 2, "a", 0), zoned(10, 3, "b", 0), zoned(20, 1, "b", 1), zoned(30, 1, "a", 9))
		ts[len(ts)-1].Backup = true
		tell(ts, nil)
		want := []map[string]int{{"a0": 20}, {"b0": 30}, {"b1": 10}, {"a9": 10}, {"queue-full": 5}}
		for i, n := range []int{20, 30, 10, 10, 5} {
			if got := countZones(t, g, n, true); fmt.Sprint(got) != fmt.Sprint(want[i]) {
				t.Errorf("%s: %d: %v, want %v", balance, i, got, want[i])
			}
		}
	}
}

// A client stays in its zone and with its member, and when the shares change, only as many clients
// move as the shares say; all come back.
func TestMaglevKeepsClientsInTheirTiers(t *testing.T) {
	s, g, tell := startSource(t, &spec.Group{Balance: "maglev", Zone: spec.ZonePrefer}, Options{Zone: "a"})
	tell(slices.Concat(zoned(0, 20, "a", 0), zoned(100, 20, "b", 0)), nil)
	where := func() (list []*Member) {
		for i := range 20000 {
			var l Lease
			m, _ := g.Pick(&l, Client{Addr: clients(i), Local: nobody})
			list = append(list, m)
			l.Release()
		}
		return list
	}
	set := func(n int, state checkState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, m := range g.members[:n] {
			m.health.state = state
			g.updateState(m, m.since, "test")
		}
		g.buildTable(m0(g).since)
	}
	before := where()
	set(10, failing) // own share: 1.4*10*2/30 = 0.933
	after := where()
	var moved, toOthers int
	for i, m := range before {
		switch {
		case after[i].zone != "a":
			toOthers++
		case m.health.state != failing && after[i] != m:
			moved++
		}
	}
	if x := float64(toOthers) / float64(len(before)); math.Abs(x-(1-1.4*20/30)) > 0.02 {
		t.Errorf("%.3f go to another zone", x)
	}
	if moved > 0 {
		t.Errorf("%d of members that stayed up moved within the zone", moved)
	}
	set(10, passing)
	if !slices.Equal(before, where()) {
		t.Error("not all clients came back")
	}
}

// One who writes too many priorities gets the first ones; the others are as the last. Whatever
// members there are, each is in one tier, and the tiers are in order.
func TestSortMembers(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	s := NewSet(Options{Zone: "z1"})
	defer s.Close()
	for range 300 {
		g := &Group{set: s}
		g.cfg = &spec.Group{}
		if r.IntN(2) == 0 {
			g.cfg.Zone = spec.ZonePrefer
		}
		levels := 1 + r.IntN(40)
		for range r.IntN(100) {
			m := &Member{group: g}
			m.backup, m.priority, m.zone = r.IntN(5) == 0, r.IntN(levels), fmt.Sprint("z", r.IntN(3))
			m.reported = []Health{"", "", Degraded, Unhealthy, Draining}[r.IntN(5)]
			g.members = append(g.members, m)
		}
		if r.IntN(2) == 0 {
			g.cfg.Discover = []spec.Discover{{Registry: spec.Registry{Kind: "xds"}}}
			g.cfg.Panic = float64(r.IntN(2)) / 2
		}
		g.rule = ruleOf(g.cfg, Policy{})
		for _, m := range g.members {
			g.count(m, m.currentState())
		}
		g.decidePanic()
		g.open(g.members)
		sorted := g.sortMembers()
		if !slices.IsSortedFunc(sorted.keys, tierKey.compare) || len(sorted.keys) > 4*maxLevels+2 || len(sorted.keys) == 0 {
			t.Fatalf("seed %d: %+v", seed, sorted.keys)
		}
		n, last, priorities := 0, -1, map[int]bool{}
		for _, k := range sorted.keys {
			if k.rank != backupRank {
				last = max(last, k.priority)
				priorities[k.priority] = true
			}
		}
		if len(priorities) > maxLevels {
			t.Fatalf("seed %d: %d levels", seed, len(priorities))
		}
		for i, k := range sorted.keys {
			n += len(sorted.members[i])
			for _, w := range sorted.members[i] {
				m := w.m
				fits := m.backup == (k.rank == backupRank) && k.foreign == (g.cfg.Zone != "" && m.zone != "z1")
				fits = fits && (m.backup || m.priority == k.priority || m.priority > k.priority && k.priority == last)
				fits = fits && (k.rank == degradedRank) == (!m.backup && m.reported == Degraded && !m.counted.level.panics)
				if !fits {
					t.Fatalf("seed %d: %+v in %+v", seed, m.memberFacts, k)
				}
			}
		}
		if n != len(g.members) {
			t.Fatalf("seed %d: %d of %d members", seed, n, len(g.members))
		}
		sum := 0.0
		for i, x := range sorted.shares {
			if x < 0 || x > 1+1e-9 || x > 0 && sorted.accepting[i] == 0 {
				t.Fatalf("seed %d: share %v of a tier in which %d accept flows", seed, x, sorted.accepting[i])
			}
			sum += x
		}
		if some := slices.ContainsFunc(g.members, func(m *Member) bool { return !m.backup && m.acceptsFlows.Load() }); some != (sum > 0) || sum != 0 && math.Abs(sum-1) > 1e-9 {
			t.Fatalf("seed %d: shares are %v together", seed, sum)
		}
	}
}

// In a large group in which all members are full, a slot that becomes free is found at once, and none
// that is free is missed.
func TestFullLargeGroups(t *testing.T) {
	const n = 500
	for _, balance := range balancerNames() {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 5))
		ms := members(n)
		for i := range ms {
			ms[i].MaxFlows, ms[i].Backup = 1+i%2, i%10 == 9
		}
		s, g := set(t, &spec.Group{Balance: balance, Members: ms}, Options{})
		pick := func(i int) (*Lease, *Member) {
			l := new(Lease)
			m, why := g.Pick(l, Client{Addr: clients(i), Local: nobody})
			if m == nil && why != spec.ReasonQueueFull {
				t.Fatalf("%s: seed %d: %v", balance, seed, why)
			}
			return l, m
		}
		var held []*Lease
		for i := range n + n/2 {
			l, m := pick(i)
			if m == nil {
				t.Fatalf("%s: seed %d: full with %d flows", balance, seed, i)
			}
			held = append(held, l)
		}
		for i := range 1000 {
			if _, m := pick(i); m != nil {
				t.Fatalf("%s: seed %d: a flow too many", balance, seed)
			}
			k := 1 + r.IntN(3)
			for range k {
				at := r.IntN(len(held))
				held[at].Release()
				held = slices.Delete(held, at, at+1)
			}
			if i%100 == 50 { // full members that are disabled leave nothing, and one that is enabled has room
				if err := s.SetMode("g", held[0].Member().name, Disable); err != nil {
					t.Fatal(err)
				}
				if l, m := pick(i); m != nil {
					held = append(held, l)
				}
				if err := s.SetMode("g", held[0].Member().name, AsFile); err != nil {
					t.Fatal(err)
				}
				s.mu.Lock()
				g.buildTable(m0(g).since)
				s.mu.Unlock()
				for {
					l, m := pick(i)
					if m == nil {
						break
					}
					held = append(held, l)
				}
				continue
			}
			for range k {
				l, m := pick(r.IntN(1 << 16))
				if m == nil {
					t.Fatalf("%s: seed %d: %d slots were free", balance, seed, k)
				}
				held = append(held, l)
			}
		}
		for _, l := range held {
			l.Release()
		}
	}
}
