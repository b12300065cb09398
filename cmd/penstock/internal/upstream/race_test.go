package upstream

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
)

// waiter is a Resumer that a goroutine waits for.
type waiter struct {
	Lease
	woken chan struct{}
}

func (p *waiter) Resume() { p.woken <- struct{}{} }

// Flows come and go, fail, wait and vanish while everything else changes too. At
// the end every slot is back and every flow that waited was resumed.
func TestEverythingAtOnce(t *testing.T) {
	testnet.CheckLeaks(t)
	for _, balance := range balancerNames() {
		t.Run(balance, func(t *testing.T) {
			configure := func(n int, r *rand.Rand) []*spec.Group {
				cfg := &spec.Group{
					Name: "g", Balance: balance, Members: members(n), Retries: 3, Queue: spec.Queue{Size: 64},
					Eject:     &spec.Eject{Failures: 2, For: time.Millisecond, Max: 4 * time.Millisecond, Share: 0.5},
					SlowStart: 20 * time.Millisecond,
					Check:     &spec.Check{Kind: "tcp", Every: time.Millisecond, Timeout: time.Second, Rise: 1, Fall: 1},
				}
				for i := range cfg.Members {
					cfg.Members[i].Weight = 1 + r.IntN(5)
					cfg.Members[i].MaxFlows = 1 + r.IntN(2)
					cfg.Members[i].Backup = i%5 == 4
				}
				return []*spec.Group{cfg}
			}
			var w ward
			r := rand.New(rand.NewPCG(1, 1))
			first := configure(6, r)
			s, g := set(t, first[0], Options{probe: w.probe, MemberChanged: func(MemberEvent) {}, MemberRemoved: func(*Member) {}})
			var wg sync.WaitGroup
			var mu sync.Mutex
			var all []*Member
			note := func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				mu.Lock()
				defer mu.Unlock()
				for _, m := range g.members {
					if !slices.Contains(all, m) {
						all = append(all, m)
					}
				}
			}
			done := make(chan struct{})
			wg.Go(func() {
				r := rand.New(rand.NewPCG(2, 2))
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					default:
					}
					note()
					switch i % 4 {
					case 0:
						s.Apply(configure(4+r.IntN(6), r))
					case 1:
						s.SetMode("g", "m1", Mode(r.IntN(4)))
					case 2:
						s.SetWeight("g", "m2", r.IntN(10))
					case 3:
						w.set(members(6)[r.IntN(6)].To.String(), r.IntN(2) == 0)
						s.Snapshot()
					}
				}
			})
			flows := 3000
			if testnet.RaceEnabled {
				flows = 1000
			}
			var workers sync.WaitGroup
			for k := range 16 {
				workers.Go(func() {
					r := rand.New(rand.NewPCG(3, uint64(k)))
					for range flows / 16 {
						p := &waiter{woken: make(chan struct{}, 1)}
						m, why := g.Pick(&p.Lease, Client{Addr: clients(r.IntN(1000)), Local: nobody})
						if m == nil && why == spec.ReasonNone {
							if m, why = g.Wait(&p.Lease, p); m == nil && why == spec.ReasonNone {
								if r.IntN(4) > 0 {
									select {
									case <-p.woken:
										if r.IntN(4) > 0 {
											m, _ = g.Pick(&p.Lease, Client{Addr: nobody, Local: nobody})
										}
									case <-time.After(time.Duration(r.IntN(20)) * time.Millisecond):
									}
								}
							}
						}
						if m != nil {
							for range r.IntN(3) {
								p.Connected(errors.New("refused"), time.Millisecond)
								if m, _ = g.Pick(&p.Lease, Client{Addr: nobody, Local: nobody}); m == nil {
									break
								}
							}
							if m != nil {
								p.Connected(nil, 0)
							}
						}
						p.Release()
					}
				})
			}
			workers.Wait()
			close(done)
			wg.Wait()
			note()
			for _, m := range all {
				if m.Active() != 0 {
					t.Errorf("%s keeps %d slots", m.Name(), m.Active())
				}
			}
			if n := g.queue.len(); n != 0 || g.queue.first != nil || g.queue.last != nil {
				t.Errorf("%d wait", n)
			}
			s.Close()
		})
	}
}

// With as many slots as flows at work, nobody waits for ever.
func TestQueueLosesNobody(t *testing.T) {
	for _, balance := range []string{"round-robin", "least-connections"} {
		cfg := &spec.Group{Balance: balance, Members: members(2), Queue: spec.Queue{Size: 1000}}
		cfg.Members[0].MaxFlows, cfg.Members[1].MaxFlows = 1, 2
		_, g := set(t, cfg, Options{})
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for range 200 {
					p := &waiter{woken: make(chan struct{}, 1)}
					m, _ := g.Pick(&p.Lease, Client{Addr: nobody, Local: nobody})
					if m == nil {
						m, _ = g.Wait(&p.Lease, p)
					}
					if m == nil {
						select {
						case <-p.woken:
						case <-time.After(longEnough):
							t.Error("nobody wakes a flow")
							return
						}
						m, _ = g.Pick(&p.Lease, Client{Addr: nobody, Local: nobody})
					}
					if m == nil {
						t.Error("resumed without a slot")
					}
					p.Release()
				}
			})
		}
		wg.Wait()
		for _, m := range g.members {
			if m.Active() != 0 {
				t.Errorf("%s keeps %d slots", m.Name(), m.Active())
			}
		}
	}
}
