package upstream

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testwait"
)

// Flows come and go on several loops while members change and are full. No count of flows is lost, and
// afterwards every slot can be had.
func TestSlotsWhileMembersChange(t *testing.T) {
	for _, balance := range balancerNames() {
		cfg := &spec.Group{Balance: balance, Zone: spec.ZonePrefer, Discover: []spec.Discover{{Network: spec.TCP, Host: "source", Port: 80, MaxFlows: 2}}}
		s, g, tell := startSource(t, cfg, Options{Zone: "z0"})
		f := newFleet(300, 9)
		place := func() []Target {
			ts := f.change(6)
			for i := range ts {
				ts[i].Zone, ts[i].Priority = []string{"z0", "z1"}[(i+f.next)%2], i%3
			}
			return ts
		}
		tell(place(), nil)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for loop := range 3 {
			wg.Go(func() {
				leases := make([]Lease, 250) // 750 flows for 600 slots
				for i := loop; ; i++ {
					select {
					case <-stop:
						for j := range leases {
							leases[j].Release()
						}
						return
					default:
					}
					l := &leases[i%len(leases)]
					l.Release()
					m, _ := g.Pick(l, Client{Addr: clients(i), Local: nobody})
					if m != nil && i%5 == 0 {
						g.Pick(l, Client{Addr: clients(i), Local: nobody}) // it did not connect
					}
				}
			})
		}
		for range 40 {
			tell(place(), nil)
		}
		close(stop)
		wg.Wait()
		s.mu.Lock()
		g.buildTable(time.Now())
		s.mu.Unlock()
		held := make([]Lease, 600)
		for i := range held {
			if m, why := g.Pick(&held[i], Client{Addr: clients(i), Local: nobody}); m == nil {
				t.Fatalf("%s: %d of 600 flows have a slot: %v", balance, i, why)
			}
		}
		for i := range held {
			held[i].Release()
		}
		for _, m := range g.table.Load().members {
			if m.Active() != 0 {
				t.Errorf("%s: %d flows of %s are left", balance, m.Active(), m.name)
			}
		}
	}
}

// The tables of a large group follow its members: at once where most are new, and otherwise soon.
func TestTablesOfLargeGroupsFollow(t *testing.T) {
	s, g, tell := startSource(t, &spec.Group{Balance: "round-robin"}, Options{})
	f := newFleet(2000, 3)
	tell(f.list, nil)
	s.mu.Lock()
	g.buildAfter = time.Now().Add(time.Hour)
	s.mu.Unlock()
	tell(append(f.list[:0:0], newFleet(5000, 3).list[2000:]...), nil)
	if n := len(g.table.Load().tiers[0].balancer.(*roundRobin).members); n != 3000 {
		t.Errorf("%d members in the table, want 3000", n)
	}
	s.mu.Lock()
	g.buildAfter = time.Now().Add(100 * time.Millisecond)
	s.mu.Unlock()
	tell(newFleet(5001, 3).list[2000:], nil)
	if n := len(g.table.Load().tiers[0].balancer.(*roundRobin).members); n != 3000 && n != 3001 {
		t.Errorf("%d members in the table", n)
	}
	testwait.Until(t, "the table", func() bool { return len(g.table.Load().tiers[0].balancer.(*roundRobin).members) == 3001 })
}

// All flows of a group end while its members move to other tiers. A slot that is given back while the tables are
// built is free in the new one.
func TestSlotsGivenBackWhileMembersMove(t *testing.T) {
	for _, balance := range balancerNames() {
		cfg := &spec.Group{Balance: balance, Discover: []spec.Discover{{Network: spec.TCP, Host: "source", Port: 80, MaxFlows: 1}}}
		s, g, tell := startSource(t, cfg, Options{})
		members := newFleet(600, 9).list
		held := make([]Lease, len(members))
		for round := range 10 {
			for i := range members {
				members[i].Priority = (i + round) % 3
			}
			tell(slices.Clone(members), nil)
			s.mu.Lock()
			g.buildTable(time.Now()) // if that was only scheduled
			s.mu.Unlock()
			for i := range held {
				if m, why := g.Pick(&held[i], Client{Addr: clients(i), Local: nobody}); m == nil {
					t.Fatalf("%s, round %d: %d of %d flows have a slot: %v", balance, round, i, len(held), why)
				}
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := range held {
					held[i].Release()
					for until := time.Now().Add(10 * time.Microsecond); time.Now().Before(until); {
					}
				}
			})
			for i := range members {
				members[i].Priority = (i + round + 1) % 3
			}
			tell(slices.Clone(members), nil)
			s.mu.Lock()
			g.buildTable(time.Now())
			s.mu.Unlock()
			wg.Wait()
		}
	}
}
