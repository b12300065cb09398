package upstream

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
)

// Members come and go, in any order and from several sources, with weights, zones, priorities, modes,
// checks and ejections. After each step, what is counted and sorted step by step is what a slow look
// at everything finds, and members that stay keep their pointers and their flows.
func TestRefreshAgainstOracle(t *testing.T) {
	seeds := 2
	if testnet.RaceEnabled {
		seeds = 1 // there is one goroutine
	}
	for _, balance := range balancerNames() {
		for range seeds {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("balance=%s/seed=%d", balance, seed), func(t *testing.T) { refreshRandomly(t, balance, "", seed) })
			t.Run(fmt.Sprintf("balance=%s/xds/seed=%d", balance, seed), func(t *testing.T) { refreshRandomly(t, balance, "xds", seed) })
		}
	}
}

func refreshRandomly(t *testing.T, balance, registry string, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	sources := map[string]scripted{"x": make(scripted), "y": make(scripted)}
	cfg := &spec.Group{Balance: balance, Panic: 0.3, Zone: spec.ZonePrefer, Members: members(3, 2, 1, 4), Eject: &spec.Eject{Failures: 1, For: time.Hour, Max: time.Hour, Share: 0.5}}
	for _, name := range []string{"x", "y"} {
		cfg.Discover = append(cfg.Discover, spec.Discover{Network: spec.TCP, Host: name, Port: 80, MaxFlows: 5, Registry: spec.Registry{Kind: registry}})
	}
	if registry != "" && r.IntN(2) == 0 {
		cfg.Zone = spec.ZoneWeighted
	}
	s, g := set(t, cfg, Options{Zone: "z0", Discoverer: func(d spec.Discover) Discoverer { return sources[d.Host] }})
	want := map[string][]Target{}
	answer := func(name string) {
		var ts []Target
		for range r.IntN(40) {
			target := foundAt(r.IntN(50)) // the same one more than once, and in both
			if r.IntN(3) == 0 {
				target.Name = ""
			} else if r.IntN(8) == 0 {
				target.Name = target.Addr.String()
			}
			target.Weight, target.Backup, target.Priority, target.Zone, target.Draining = 1+r.IntN(4), r.IntN(6) == 0, r.IntN(3), fmt.Sprint("z", r.IntN(3)), r.IntN(6) == 0
			if registry != "" {
				target.Health = []Health{"", "", Degraded, Unhealthy, Draining}[r.IntN(5)]
				target.Locality = Locality{target.Zone, uint32(r.IntN(3))}
				target.Policy = Policy{Factor: 100 + 40*r.IntN(2), Weigh: r.IntN(2) == 0}
			}
			ts = append(ts, target)
		}
		if r.IntN(3) == 0 { // a small change
			ts = slices.Clone(want[name])
			for range r.IntN(3) {
				if len(ts) > 0 {
					i := r.IntN(len(ts))
					ts = slices.Delete(ts, i, i+1)
				}
			}
			ts = slices.Insert(ts, r.IntN(len(ts)+1), foundAt(50+r.IntN(1000)))
		}
		want[name] = ts
		done := make(chan struct{})
		sources[name] <- func(update func([]Target, error)) { update(slices.Clone(ts), nil); close(done) }
		<-done
	}
	held := map[*Lease]*Member{}
	before := map[memberKey]*Member{}
	for step := range 30 {
		switch r.IntN(5) {
		case 0, 1:
			answer("x")
		case 2:
			answer("y")
		case 3:
			s.mu.Lock()
			for _, m := range g.members {
				if r.IntN(4) == 0 {
					m.health.state = []checkState{unknown, passing, failing}[r.IntN(3)]
					g.updateState(m, time.Now(), "test")
				}
			}
			s.mu.Unlock()
		case 4:
			list := g.table.Load().members
			m := list[r.IntN(len(list))]
			s.SetMode("g", m.name, Mode(r.IntN(4)))
			s.SetWeight("g", list[r.IntN(len(list))].name, r.IntN(5))
			list[r.IntN(len(list))].failed(fmt.Errorf("test"))
		}
		for i := range 20 {
			l := new(Lease)
			if m, _ := g.Pick(l, Client{Addr: clients(i), Local: nobody}); m != nil {
				held[l] = m
			}
		}
		for l := range held {
			if r.IntN(3) == 0 {
				l.Release()
				delete(held, l)
			}
		}
		s.mu.Lock()
		if r.IntN(2) == 0 {
			g.buildTable(time.Now())
		}
		compareWithOracle(t, g, want, before, held)
		s.mu.Unlock()
		if t.Failed() {
			t.Fatalf("at step %d", step)
		}
	}
	for l := range held {
		l.Release()
	}
}

// comparePanic compares what is counted of levels, and which of them panic, with what was found.
func comparePanic(t *testing.T, g *Group, found map[[2]int]levelTally) {
	var tallies []levelTally
	var backups, all tally
	for _, l := range g.levels {
		k := [2]int{difference(false, l.backup), l.priority}
		if l.tally != found[k] {
			t.Errorf("level %v: %+v, counted %+v", k, found[k], l.tally)
		}
		all.add(l.tally.members, 1)
		if l.backup {
			backups = l.tally.members
		} else {
			tallies = append(tallies, l.tally)
		}
		delete(found, k)
	}
	if len(found) > 0 {
		t.Errorf("levels %+v are missing", found)
	}
	shares, _ := g.rule.spread(tallies, backups)
	for i, l := range g.levels {
		panics := float64(all.healthy) < g.cfg.Panic*float64(all.all)
		if !g.rule.whole {
			panics = !l.backup && shares[i].panics
		}
		if l.panics != panics {
			t.Errorf("level %d of %+v, panic: %v", i, g.levels, l.panics)
		}
	}
}

// compareWithOracle compares a group with what a look at everything finds. before are the members of
// the step before, which it replaces.
func compareWithOracle(t *testing.T, g *Group, want map[string][]Target, before map[memberKey]*Member, held map[*Lease]*Member) {
	var list []memberKey
	for _, m := range g.cfg.Members {
		a, _ := m.To.Literal()
		list = append(list, memberKey{m.Name, a})
	}
	facts := map[memberKey]Target{}
	for _, name := range []string{"x", "y"} {
		for _, target := range want[name] {
			k := memberKey{target.Name, target.Addr}
			if k.name == "" {
				k.name = k.addr.String()
			}
			if _, ok := facts[k]; !ok {
				facts[k] = target
				list = append(list, k)
			}
		}
	}
	var got []memberKey
	ejected, accepting := 0, 0
	levels := map[[2]int]levelTally{} // by whether they are backups, and priority
	for i, m := range g.members {
		k := memberKey{m.name, m.addr}
		got = append(got, k)
		if f, ok := facts[k]; ok && (m.configured.weight != f.Weight || m.backup != f.Backup || m.zone != f.Zone || m.priority != f.Priority || m.reported != f.Health || m.locality != f.Locality || (m.configured.mode == Drain) != (f.Draining || f.Health == Draining)) {
			t.Errorf("%+v is %+v", f, m.memberState.memberFacts)
		}
		if was := before[k]; was != nil && was != m {
			t.Errorf("%v is another member", k)
		}
		if int(m.index) != i || g.byKey[nameAndPorts{m.given, m.addr, m.ports}] != m || m.Removed() {
			t.Errorf("%v: index %d at %d", k, m.index, i)
		}
		count, state := tally{all: 1}, m.currentState()
		switch {
		case state >= Checking && m.reported == Degraded:
			count.degraded = 1
		case state >= Checking:
			count.healthy = 1
		case state == Drained && m.reported == Draining && m.override.mode == AsFile:
			count.excluded = 1
		case state != Down && state != Ejected:
			count = tally{}
		}
		of := [2]int{difference(false, m.backup), m.priority}
		if m.backup {
			of[1] = 0
		}
		l := levels[of]
		l.members.add(count, 1)
		l.weights.add(count, m.weight())
		levels[of] = l
		if m.ejected {
			ejected++
		}
		if m.acceptsFlows.Load() {
			accepting++
		}
		if takes := state >= Checking || count.all > 0 && m.counted.level.panics; m.acceptsFlows.Load() != takes {
			t.Errorf("%v: accepts flows: %v", k, m.acceptsFlows.Load())
		}
	}
	if !slices.Equal(got, list) || len(g.byKey) != len(g.members) {
		t.Errorf("%v\nwant %v", got, list)
	}
	if ejected != g.ejected || accepting != int(g.accepting.Load()) || accepting > 0 && g.listed == 0 {
		t.Errorf("%d ejected, %d accept flows; counted %d, %d, of which flows find %d", ejected, accepting, g.ejected, g.accepting.Load(), g.listed)
	}
	comparePanic(t, g, levels)
	flows := map[*Member]int{}
	for l, m := range held {
		if l.Member() != m {
			t.Error("a flow has another member")
		}
		flows[m]++
	}
	for m, n := range flows {
		if m.Active() != n {
			t.Errorf("%s has %d flows, counted %d", m.name, n, m.Active())
		}
	}
	clear(before)
	for _, m := range g.members {
		before[memberKey{m.name, m.addr}] = m
	}
	for _, tier := range g.table.Load().tiers {
		if b, ok := tier.balancer.(*leastConnections); ok {
			checkHeap(t, b)
		}
	}
}

// checkHeap checks that a heap has the members that its balancer was built for, with their flows, and
// in order.
func checkHeap(t *testing.T, b *leastConnections) {
	h := b.state
	in := map[*Member]int{}
	for i, a := range h.members {
		in[a.m] = a.weight
		if int64(a.m.active.Load()) != a.active || a.m.full() != a.full {
			t.Errorf("%s has %d flows, full %v; in the heap %d, %v", a.m.name, a.m.active.Load(), a.m.full(), a.active, a.full)
		}
		if i > 0 && a.before(&h.members[(i-1)/2]) {
			t.Errorf("the heap is not in order at %d", i)
		}
		if h.find(a.m) != i {
			t.Errorf("%s is found at %d, and is at %d", a.m.name, h.find(a.m), i)
		}
	}
	if len(in) != len(h.members) || len(in) != len(b.list) {
		t.Errorf("%d members, %d in the heap, %d of them different", len(b.list), len(h.members), len(in))
	}
	for _, w := range b.list {
		if in[w.m] != w.weight {
			t.Errorf("%s has weight %d, in the heap %d", w.m.name, w.weight, in[w.m])
		}
	}
}

// While all members are replaced in one answer, and old ones are drained, each flow finds one.
func TestFlowsWhileAllMembersAreReplaced(t *testing.T) {
	for _, balance := range balancerNames() {
		t.Run("balance="+balance, func(t *testing.T) {
			source := make(scripted)
			cfg := &spec.Group{Balance: balance, Discover: []spec.Discover{{Network: spec.TCP, Host: "x", Port: 80}}}
			_, g := set(t, cfg, Options{Discoverer: func(spec.Discover) Discoverer { return source }})
			answer := func(ts []Target) {
				done := make(chan struct{})
				source <- func(update func([]Target, error)) { update(ts, nil); close(done) }
				<-done
			}
			list := func(turn int, draining bool) (ts []Target) {
				for i := range 8 {
					target := foundAt(10*turn + i)
					target.Weight, target.Draining = 1, draining
					ts = append(ts, target)
				}
				return ts
			}
			answer(list(0, false))
			stop, none := make(chan struct{}), make(chan int)
			go func() {
				missing := 0
				for i := 0; ; i++ {
					select {
					case <-stop:
						none <- missing
						return
					default:
					}
					l := new(Lease)
					if m, _ := g.Pick(l, Client{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1)}); m == nil {
						missing++
					}
					l.Release()
				}
			}()
			for turn := range 8 {
				answer(append(list(turn, true), list(turn+1, false)...))
				answer(list(turn+1, false))
				answer(list(turn+1000, false))
				answer(list(turn+1, false))
			}
			close(stop)
			if missing := <-none; missing > 0 {
				t.Errorf("%d flows found no member, though there always were some", missing)
			}
		})
	}
}

// Of a member that has moved from tier to tier, only the heap of the last one is searched, and none
// after it has left that.
func TestMovedMembersAreForgotten(t *testing.T) {
	_, g, tell := startSource(t, &spec.Group{Balance: "least-connections"}, Options{})
	answer := func(priorities ...int) {
		ts := found(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
		for i, p := range priorities {
			ts[i].Priority, ts[i].Draining = max(p, 0), p < 0
		}
		tell(ts, nil)
	}
	answer(0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
	m := g.members[0]
	answer(1, 0, 0, 0, 0, 0, 0, 0, 0, 1)
	answer(0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
	if !m.moved.Load() {
		t.Error("it has not moved")
	}
	answer(-1, 0, 0, 0, 0, 0, 0, 0, 0, 1)
	if m.moved.Load() || m.heaped != nil {
		t.Error("it is searched for")
	}
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	for _, tier := range g.table.Load().tiers {
		checkHeap(t, tier.balancer.(*leastConnections))
	}
}
