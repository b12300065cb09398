package upstream

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// sharesOf makes members with weights for wheels.
func sharesOf(weights ...int) (ss []weightedMember) {
	for i, w := range weights {
		ss = append(ss, weightedMember{&Member{name: fmt.Sprint("m", i)}, w})
	}
	return ss
}

// tableOf returns the Maglev table of members.
func tableOf(ms []weightedMember) []int32 { return maglevTable(ms, maglevOrder(ms), maglevSize) }

// balancerNames returns the names of all balancers.
func balancerNames() (names []string) {
	for _, b := range spec.Balancers {
		names = append(names, b.Name)
	}
	return names
}

// Every balancer of a configuration has code, and the other way around.
func TestBalancersHaveCode(t *testing.T) {
	names := balancerNames()
	for _, name := range names {
		if balancers[name] == nil {
			t.Errorf("spec.Balancers has %s, and balancers does not", name)
		}
	}
	if len(balancers) != len(names) {
		t.Errorf("%d in balancers, %d in spec.Balancers", len(balancers), len(names))
	}
}

// clients are distinct addresses.
func clients(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, byte(i >> 16), byte(i >> 8), byte(i)}), uint16(1024+i%50000))
}

// Each member has its weight's share of a turn of the wheel exactly, and at
// every moment of it within a few places.
func TestWheel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	worst := 0.0
	for range 300 {
		n := 1 + r.IntN(40)
		weights := make([]int, n)
		for i := range weights {
			weights[i] = 1 + r.IntN(256)
		}
		w := spread(sharesOf(weights...))
		reduced, sum := reduceWeights(sharesOf(weights...))
		if len(w) != sum {
			t.Fatalf("%v: %d places, want %d", weights, len(w), sum)
		}
		counts := make([]int, n)
		for k, i := range w {
			counts[i]++
			for j := range counts {
				ideal := float64(k+1) * float64(reduced[j]) / float64(sum)
				worst = max(worst, math.Abs(float64(counts[j])-ideal))
			}
		}
		if !slices.Equal(counts, reduced) {
			t.Fatalf("%v: %v, want %v", weights, counts, reduced)
		}
	}
	if worst > 3 {
		t.Errorf("a member is %.2f places off its share", worst)
	}
	t.Logf("at most %.2f places off the ideal share", worst)

	if got, want := spread(sharesOf(7, 7, 7, 7)), []int32{0, 1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("equal weights: %v, want %v", got, want)
	}
	many := make([]int, 10000)
	for i := range many {
		many[i] = 1 + i%256
	}
	if w := spread(sharesOf(many...)); len(w) > maxPlaces+len(many) {
		t.Errorf("%d places", len(w))
	}
}

// chi2 is Pearson's statistic of counts against weights.
func chi2(counts, weights []int) (x float64) {
	n, sum := 0, 0
	for i := range counts {
		n += counts[i]
		sum += weights[i]
	}
	for i := range counts {
		ideal := float64(n) * float64(weights[i]) / float64(sum)
		x += (float64(counts[i]) - ideal) * (float64(counts[i]) - ideal) / ideal
	}
	return x
}

// With 9 degrees of freedom chi-square is above 100 once in 10^17 runs.
func TestDistribution(t *testing.T) {
	weights := []int{1, 2, 3, 4, 5, 5, 10, 20, 50, 100}
	for _, c := range []struct {
		balance string
		most    float64
	}{{"round-robin", 0.001}, {"random", 100}, {"maglev", 100}} {
		_, g := set(t, &spec.Group{Balance: c.balance, Members: members(10, weights...)}, Options{})
		got := pick(t, g, 200000, false, clients)
		if x := chi2(got, weights); x > c.most {
			t.Errorf("%s: chi-square %.1f, most %v: %v", c.balance, x, c.most, got)
		} else {
			t.Logf("%s: chi-square %.2f", c.balance, x)
		}
	}
}

// With flows that stay, loads are even: exactly with least-connections, and with
// the power of two choices much more than with one.
func TestLoads(t *testing.T) {
	weights := []int{1, 2, 3, 4, 5, 5, 10, 20, 50, 100}
	_, g := set(t, &spec.Group{Balance: "least-connections", Members: members(10, weights...)}, Options{})
	for i, n := range pick(t, g, 2000, true, nil) {
		if n != 10*weights[i] {
			t.Errorf("least-connections: member %d of weight %d has %d flows, want %d", i, weights[i], n, 10*weights[i])
		}
	}
	for balance, most := range map[string]int{"p2c": 8, "random": 80} {
		_, g := set(t, &spec.Group{Balance: balance, Members: members(1000)}, Options{})
		got := pick(t, g, 100000, true, nil)
		if above := slices.Max(got) - 100; above > most {
			t.Errorf("%s: the fullest has %d flows more than the mean of 100, most %d", balance, above, most)
		} else {
			t.Logf("%s: the fullest of 1,000 has %d more than the mean of 100, the emptiest %d less", balance, above, 100-slices.Min(got))
		}
	}
	_, g = set(t, &spec.Group{Balance: "p2c", Members: members(10, weights...)}, Options{})
	for i, n := range pick(t, g, 20000, true, nil) {
		if ideal := 100 * weights[i]; n < ideal/2 || n > 2*ideal {
			t.Errorf("p2c: member %d of weight %d has %d flows, ideal %d", i, weights[i], n, ideal)
		}
	}
}

// The slow oracle of the heap: nobody had fewer flows for its weight.
func TestLeastConnectionsOracle(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, seed))
	cfg := &spec.Group{Balance: "least-connections", Members: members(37)}
	for i := range cfg.Members {
		cfg.Members[i].Weight = 1 + r.IntN(9)
		cfg.Members[i].MaxFlows = r.IntN(30)
	}
	_, g := set(t, cfg, Options{})
	var held []*Lease
	for step := range 20000 {
		if len(held) > 0 && r.IntN(100) < 49 {
			i := r.IntN(len(held))
			held[i].Release()
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
			continue
		}
		least := math.Inf(1)
		for _, m := range g.members {
			if !m.full() {
				least = min(least, float64(m.Active())/float64(m.weight()))
			}
		}
		l := new(Lease)
		m, _ := g.Pick(l, Client{Addr: nobody, Local: nobody})
		if m == nil {
			if !math.IsInf(least, 1) {
				t.Fatalf("step %d of seed %d: none", step, seed)
			}
			continue
		}
		held = append(held, l)
		if got := float64(m.Active()-1) / float64(m.weight()); got > least+1e-9 {
			t.Fatalf("step %d of seed %d: %v for its weight, the least is %v", step, seed, got, least)
		}
	}
	for _, l := range held {
		l.Release()
	}
}

// Idle members are taken in turn.
func TestLeastConnectionsIdle(t *testing.T) {
	_, g := set(t, &spec.Group{Balance: "least-connections", Members: members(5)}, Options{})
	if got := pick(t, g, 100, false, nil); !slices.Equal(got, []int{20, 20, 20, 20, 20}) {
		t.Error(got)
	}
}

// The virtual time that breaks ties comes to its end after some 10^8 flows, and begins anew without a
// member that gets all of them.
func TestLeastConnectionsForVeryLong(t *testing.T) {
	_, g := set(t, &spec.Group{Balance: "least-connections", Members: members(5)}, Options{})
	h := g.table.Load().tiers[0].balancer.(*leastConnections).state
	const late = math.MaxUint64 - 4*stride
	h.virtualTime = late
	for i := range h.members {
		h.members[i].virtualTime += late
	}
	got := pick(t, g, 1000, false, nil)
	if !slices.Equal(got, []int{200, 200, 200, 200, 200}) {
		t.Error(got)
	}
}

func TestMaglevEven(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 100, 1000} {
		weights := make([]int, n)
		for i := range weights {
			weights[i] = 1
		}
		counts := make([]int, n)
		for _, i := range tableOf(sharesOf(weights...)) {
			counts[i]++
		}
		if most, least := slices.Max(counts), slices.Min(counts); most-least > 1 {
			t.Errorf("%d members: from %d to %d places", n, least, most)
		}
	}
	weights := []int{1, 3, 10, 256}
	counts := make([]int, 4)
	for _, i := range tableOf(sharesOf(weights...)) {
		counts[i]++
	}
	for i, w := range weights {
		if ideal := float64(maglevSize*w) / 270; math.Abs(float64(counts[i])-ideal) > 2 {
			t.Errorf("weight %d: %d places, ideal %.1f", w, counts[i], ideal)
		}
	}
}

// Tables do not depend on the order of members: relays agree.
func TestMaglevOrder(t *testing.T) {
	a := sharesOf(1, 2, 3, 4, 5, 6, 7)
	b := slices.Clone(a)
	slices.Reverse(b)
	x, y := tableOf(a), tableOf(b)
	for i := range x {
		if a[x[i]].m != b[y[i]].m {
			t.Fatalf("place %d is %s's and %s's", i, a[x[i]].m.name, b[y[i]].m.name)
		}
	}
}

// Who goes down leaves flows to all others, evenly, and disturbs no other flow.
func TestMaglevDown(t *testing.T) {
	s, g := set(t, &spec.Group{Balance: "maglev", Members: members(10)}, Options{})
	where := func() (at [20000]*Member) {
		for i := range at {
			var l Lease
			at[i], _ = g.Pick(&l, Client{Addr: clients(i), Local: nobody})
			l.Release()
		}
		return at
	}
	before := where()
	if err := s.SetMode("g", "m3", Drain); err != nil {
		t.Fatal(err)
	}
	heirs := make(map[string]int)
	for i, m := range where() {
		if before[i].Name() == "m3" {
			heirs[m.Name()]++
		} else if m != before[i] {
			t.Fatalf("client %d moves from %s to %s", i, before[i].Name(), m.Name())
		}
	}
	if len(heirs) != 9 {
		t.Errorf("who takes over: %v", heirs)
	}
	for m, n := range heirs { // about 2,000 flows; this is fixed by the hash
		if n < 150 || n > 300 {
			t.Errorf("%s takes over %d flows", m, n)
		}
	}
	if err := s.SetMode("g", "m3", AsFile); err != nil {
		t.Fatal(err)
	}
	if where() != before {
		t.Error("flows do not come back")
	}
}

// How many places change hands that need not, when members leave the file.
func TestMaglevDisruption(t *testing.T) {
	for _, c := range []struct {
		members, leave int
		most           float64 // percent
	}{{10, 1, 8}, {100, 1, 3}, {1000, 1, 2}, {1000, 10, 8}, {1000, 50, 20}} {
		weights := make([]int, c.members)
		for i := range weights {
			weights[i] = 1
		}
		all := sharesOf(weights...)
		left := all[c.leave:]
		before, after := tableOf(all), tableOf(left)
		moved := 0
		for i := range before {
			if int(before[i]) >= c.leave && all[before[i]].m != left[after[i]].m {
				moved++
			}
		}
		percent := 100 * float64(moved) / maglevSize
		t.Logf("%d of %d members leave: %.2f %% of the places change hands beyond those of who left", c.leave, c.members, percent)
		if percent > c.most {
			t.Errorf("most %v", c.most)
		}
	}
}

// The port is not part of "source", and of "4-tuple" everything is.
func TestHash(t *testing.T) {
	a, b := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.1:2")
	mapped := netip.MustParseAddrPort("[::ffff:192.0.2.1]:1")
	if Hash("source", Client{Addr: a, Local: nobody}) != Hash("source", Client{Addr: b, Local: a}) || Hash("source", Client{Addr: a, Local: nobody}) != Hash("source", Client{Addr: mapped, Local: nobody}) {
		t.Error("source has more in it than the source")
	}
	seen := map[uint64]bool{}
	for _, p := range [][2]netip.AddrPort{{a, a}, {a, b}, {b, a}, {b, b}} {
		seen[Hash("4-tuple", Client{Addr: p[0], Local: p[1]})] = true
	}
	if len(seen) != 4 {
		t.Error("4-tuple leaves something out")
	}
	for _, what := range []string{"sni", "tlv:0xEA"} {
		if Hash(what, Client{Addr: a, Key: "x"}) != Hash(what, Client{Addr: nobody, Key: "x"}) || Hash(what, Client{Addr: a, Key: "x"}) == Hash(what, Client{Addr: a, Key: "y"}) {
			t.Errorf("%s is not hashed by the key alone", what)
		}
		if Hash(what, Client{Addr: a}) != Hash("source", Client{Addr: b}) {
			t.Errorf("%s without a key is not hashed by the source", what)
		}
	}
}

// A draw that meets a full member goes on to others without a preference.
func TestFullMembersSpread(t *testing.T) {
	for _, balance := range []string{"random", "p2c"} {
		cfg := &spec.Group{Balance: balance, Members: members(10)}
		for i := range 5 {
			cfg.Members[i].MaxFlows = 1
		}
		_, g := set(t, cfg, Options{})
		for range 5 { // fill them
			for _, m := range g.members[:5] {
				m.reserve()
			}
		}
		got := pick(t, g, 50000, false, nil)[5:]
		for _, n := range got {
			if n < 8500 || n > 11500 {
				t.Errorf("%s: %v", balance, got)
				break
			}
		}
	}
}

func BenchmarkPick(b *testing.B) {
	for _, balance := range balancerNames() {
		b.Run("balance="+balance+"/members=1000", func(b *testing.B) {
			_, g := set(b, &spec.Group{Balance: balance, Members: members(1000)}, Options{})
			held := make([]Lease, 4096)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				l := &held[i%len(held)]
				l.Release()
				g.Pick(l, Client{Addr: clients(i), Local: nobody})
			}
		})
	}
}

func BenchmarkPickParallel(b *testing.B) {
	for _, balance := range balancerNames() {
		b.Run("balance="+balance+"/members=1000", func(b *testing.B) {
			_, g := set(b, &spec.Group{Balance: balance, Members: members(1000)}, Options{})
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				var l Lease
				for i := 0; p.Next(); i++ {
					g.Pick(&l, Client{Addr: clients(i), Local: nobody})
					l.Release()
				}
			})
		})
	}
}

func BenchmarkTable(b *testing.B) {
	for _, kind := range balancerNames() {
		b.Run("balance="+kind+"/members=1000", func(b *testing.B) {
			ms := sharesOf(make([]int, 1000)...)
			for i := range ms {
				ms[i].weight = 1 + i%3
				ms[i].m.acceptsFlows.Store(true)
			}
			cfg := &spec.Group{Balance: kind}
			for b.Loop() {
				newBalancer(&candidates{cfg: cfg, all: ms, state: &tierState{}})
			}
		})
	}
}

// One client at a time: every member is idle each time, and takes its share. nginx has 67 of 200
// for the lighter one, HAProxy 100.
func TestLightMembersDoNotStarve(t *testing.T) {
	for _, balance := range []string{"least-connections", "p2c"} {
		_, g := set(t, &spec.Group{Balance: balance, Members: members(2, 1, 2)}, Options{})
		counts := map[string]int{}
		for range 3000 {
			var l Lease
			m, why := g.Pick(&l, Client{Addr: nobody, Local: nobody})
			if m == nil {
				t.Fatal(why)
			}
			counts[m.Name()]++
			l.Release()
		}
		if n := counts["m0"]; n < 850 || n > 1150 || balance == "least-connections" && (n < 999 || n > 1001) {
			t.Errorf("%s: the member of weight 1 has %d of 3000, want 1000", balance, n)
		}
	}
}

// A backup takes what the primaries have no slot for, and nothing while they have one.
func TestBackupsTakeTheOverflow(t *testing.T) {
	for _, balance := range balancerNames() {
		ms := members(3)
		ms[0].MaxFlows, ms[1].MaxFlows, ms[2].MaxFlows, ms[2].Backup = 1, 1, 1, true
		_, g := set(t, &spec.Group{Balance: balance, Members: ms}, Options{})
		leases := make([]Lease, 4)
		var got []string
		for i := range leases {
			m, why := g.Pick(&leases[i], Client{Addr: nobody, Local: nobody})
			if m == nil {
				got = append(got, why.String())
				continue
			}
			got = append(got, m.Name())
		}
		slices.Sort(got[:2])
		if want := []string{"m0", "m1", "m2", "queue-full"}; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", balance, got, want)
		}
		for i := range leases {
			leases[i].Release()
		}
	}
}
