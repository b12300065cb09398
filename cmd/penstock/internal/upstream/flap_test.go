package upstream

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
)

// pickAll picks members for flows on several goroutines while a function runs, and reports how many flows got none. What
// the function is given waits until flows have been picked for.
func pickAll(g *Group, while func(wait func())) (refused int64) {
	var wg sync.WaitGroup
	var picked, none atomic.Int64
	done := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				var l Lease
				if m, _ := g.Pick(&l, Client{Addr: clients(i % 1000), Local: nobody}); m == nil {
					none.Add(1)
				}
				l.Release()
				picked.Add(1)
				runtime.Gosched() // or the one that waits has a turn 10 ms later
			}
		})
	}
	while(func() {
		for until := picked.Load() + 20; picked.Load() < until; {
			runtime.Gosched()
		}
	})
	close(done)
	wg.Wait()
	return none.Load()
}

// Statuses, priorities and weights of all endpoints change all the time, and the endpoints themselves come and go: with
// Envoy's panic there is a member for every flow at every moment.
func TestFlappingStatuses(t *testing.T) {
	rounds := 60
	if testnet.RaceEnabled {
		rounds = 15
	}
	for _, balance := range balancerNames() {
		for _, zone := range []string{"none", spec.ZoneWeighted} {
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 11))
			_, g, tell := startSource(t, &spec.Group{Balance: balance, Panic: 0.5, Zone: zone,
				Discover: []spec.Discover{{Network: spec.TCP, Host: "source", Port: 80, Registry: spec.Registry{Kind: "xds"}}}}, Options{})
			answer := func() (ts []Target) {
				same := Health("none")
				if r.IntN(2) == 0 {
					same = []Health{"", Degraded, Unhealthy, Draining}[r.IntN(4)]
				}
				for i := range 8 {
					target := foundAt(i)
					if i >= 5 && r.IntN(2) == 0 {
						target = foundAt(i + 1 + r.IntN(100))
					}
					target.Priority, target.Weight = r.IntN(3), 1+r.IntN(9)
					target.Locality = Locality{fmt.Sprint(r.IntN(3)), uint32(r.IntN(3))}
					if target.Health = same; same == "none" {
						target.Health = []Health{"", Degraded, Unhealthy, Draining}[r.IntN(4)]
					}
					ts = append(ts, target)
				}
				return ts
			}
			tell(answer(), nil)
			if n := pickAll(g, func(wait func()) {
				for range rounds {
					tell(answer(), nil)
					wait()
				}
			}); n > 0 {
				t.Errorf("%s, zone %s, seed %d: %d flows got no member", balance, zone, seed, n)
			}
		}
	}
}

// As long as one member is up, flows find it, whichever went down a moment ago, and whether or not the table is that of
// this moment.
func TestFlappingMembers(t *testing.T) {
	for _, balance := range balancerNames() {
		for _, panics := range []float64{0, 0.5} {
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 12))
			s, g := set(t, &spec.Group{Balance: balance, Panic: panics, Members: members(4)}, Options{})
			up := []bool{true, true, true, true}
			change := func(i int, state checkState) {
				s.mu.Lock()
				defer s.mu.Unlock()
				up[i] = state == passing
				g.members[i].health.state = state
				g.updateState(g.members[i], time.Now(), "test")
			}
			if n := pickAll(g, func(wait func()) {
				for range 100 {
					if r.IntN(4) == 0 { // as a little later
						s.mu.Lock()
						g.buildTable(time.Now())
						s.mu.Unlock()
					}
					wait()
					i := r.IntN(len(up))
					if up[i] { // another one comes up before it goes down
						if j := (i + 1 + r.IntN(3)) % len(up); !up[j] {
							change(j, passing)
						}
					}
					if others := up[(i+1)%4] || up[(i+2)%4] || up[(i+3)%4]; others || !up[i] {
						change(i, []checkState{failing, passing}[r.IntN(2)])
					}
				}
			}); n > 0 {
				t.Errorf("%s, panic %v, seed %d: %d flows got no member", balance, panics, seed, n)
			}
		}
	}
}
