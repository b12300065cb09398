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
			t.Run(fmt.Sprintf("balance=%s/seed=%d", balance, seed), func(t *testing.T) { refreshRandomly(t, balance, seed) })
		}
	}
}

func refreshRandomly(t *testing.T, balance string, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	sources := map[string]scripted{"x": make(scripted), "y": make(scripted)}
	cfg := &spec.Group{Balance: balance, Panic: 0.3, PreferZone: true, Members: members(3, 2, 1, 4), Eject: &spec.Eject{Failures: 1, For: time.Hour, Max: time.Hour, Share: 0.5}}
	for _, name := range []string{"x", "y"} {
		cfg.Discover = append(cfg.Discover, spec.Discover{Network: spec.TCP, Host: name, Port: 80, MaxFlows: 5})
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
	up, all, ejected, accepting := 0, 0, 0, 0
	for i, m := range g.members {
		k := memberKey{m.name, m.addr}
		got = append(got, k)
		if f, ok := facts[k]; ok && (m.configured.weight != f.Weight || m.backup != f.Backup || m.zone != f.Zone || m.priority != f.Priority || (m.configured.mode == Drain) != f.Draining) {
			t.Errorf("%+v is %+v", f, m.memberState.memberFacts)
		}
		if was := before[k]; was != nil && was != m {
			t.Errorf("%v is another member", k)
		}
		if int(m.index) != i || g.byKey[nameAndPorts{m.given, m.addr, m.ports}] != m || m.Removed() {
			t.Errorf("%v: index %d at %d", k, m.index, i)
		}
		switch state := m.currentState(); {
		case state >= Checking:
			up++
			all++
		case state == Down, state == Ejected:
			all++
		}
		if m.ejected {
			ejected++
		}
		if m.acceptsFlows.Load() {
			accepting++
		}
		if m.acceptsFlows.Load() != g.acceptsFlows(m.currentState()) {
			t.Errorf("%v: accepts flows: %v", k, m.acceptsFlows.Load())
		}
	}
	if !slices.Equal(got, list) || len(g.byKey) != len(g.members) {
		t.Errorf("%v\nwant %v", got, list)
	}
	if up != g.up || all != g.all || ejected != g.ejected || accepting != int(g.accepting.Load()) {
		t.Errorf("%d up, %d all, %d ejected, %d accept flows; counted %d, %d, %d, %d", up, all, ejected, accepting, g.up, g.all, g.ejected, g.accepting.Load())
	}
	if g.panic != (float64(up) < g.cfg.Panic*float64(all)) {
		t.Errorf("panic %v with %d of %d up", g.panic, up, all)
	}
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
