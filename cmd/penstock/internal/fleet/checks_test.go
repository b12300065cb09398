package fleet

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
)

// A checkingRelay shares checks of members, whose state it sees at once while it checks them.
type checkingRelay struct {
	*relay
	checks *Checks

	mu      sync.Mutex
	shares  map[string]Share
	members map[string]*SharedMember
	down    map[string]bool // members that do not answer
}

func (w *world) checker(id string, k int, members ...string) *checkingRelay {
	return w.checkerAt(w.open(), id, k, members...)
}

// checkerAt runs a relay that shares checks by a client.
func (w *world) checkerAt(client *etcd.Client, id string, k int, members ...string) *checkingRelay {
	r := &checkingRelay{checks: NewChecks(ChecksConfig{Node: id, Grace: 500 * time.Millisecond}), shares: map[string]Share{}, members: map[string]*SharedMember{}, down: map[string]bool{}}
	r.checks.Expect()
	r.relay = w.relay(id, func(c *PresenceConfig) { c.Client, c.Checks = client, r.checks })
	for _, m := range members {
		r.share(m, k)
	}
	r.runChecks(w, client)
	return r
}

// runChecks runs the checks until the relay ends.
func (r *checkingRelay) runChecks(w *world, client *etcd.Client) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.checks.Run(ctx, client, testKey)
	}()
	stop := r.stop
	r.stop = sync.OnceFunc(func() {
		stop()
		cancel()
		<-done
	})
	w.Cleanup(r.stop)
}

func (r *checkingRelay) share(member string, k int) {
	m, s := r.checks.Share(SharedCheck{Scope: "web", Member: member, Checkers: k, Patience: time.Second, Update: func(s Share) { r.note(member, s) }})
	r.mu.Lock()
	r.members[member] = m
	r.mu.Unlock()
	r.note(member, s)
}

func (r *checkingRelay) note(member string, s Share) {
	r.mu.Lock()
	r.shares[member] = s
	r.mu.Unlock()
	r.look(member)
}

// look does what a check does.
func (r *checkingRelay) look(member string) {
	r.mu.Lock()
	m, check, down := r.members[member], r.shares[member].Check, r.down[member]
	r.mu.Unlock()
	if m != nil && check {
		m.Found(!down, map[bool]string{true: "no answer"}[down])
	}
}

func (r *checkingRelay) is(member string) Share {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shares[member]
}

// set says that a member does not answer this relay, or does again.
func (r *checkingRelay) set(member string, down bool) {
	r.mu.Lock()
	r.down[member] = down
	r.mu.Unlock()
	r.look(member)
}

// Each member is checked by as many relays as it should be, and all of them know what those found. When a relay
// goes, others check its members.
func TestSharedChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var members []string
		for i := range 40 {
			members = append(members, fmt.Sprint("m", i))
		}
		var relays []*checkingRelay
		for i := range 6 {
			relays = append(relays, w.checker(fmt.Sprint("r", i), 2, members...))
		}
		settled := func(live []*checkingRelay) func() bool {
			return func() bool {
				for _, m := range members {
					checkers := 0
					for _, r := range live {
						s := r.is(m)
						if !s.Known || !s.Up {
							return false
						}
						if s.Check {
							checkers++
						}
					}
					if checkers != 2 {
						return false
					}
				}
				return true
			}
		}
		w.until("two relays check each member, and all know", settled(relays))
		most := 0
		for _, r := range relays {
			n := 0
			for _, m := range members {
				if r.is(m).Check {
					n++
				}
			}
			most = max(most, n)
		}
		if most > 40*2*3/6 {
			t.Errorf("a relay checks %d of %d members", most, len(members))
		}
		relays[0].stop()
		w.until("others check the members of the relay that is gone", settled(relays[1:]))
		for _, r := range relays[1:] {
			r.set("m7", true)
		}
		w.until("all know that a member is down", func() bool {
			for _, r := range relays[1:] {
				if s := r.is("m7"); !s.Known || s.Up || s.Why == "" {
					return false
				}
			}
			return true
		})
		// A relay for which it is down, and that does not check it, changes nothing.
		for _, r := range relays[1:] {
			r.set("m7", r.is("m7").Check == false)
		}
		w.until("all know that it is up again", settled(relays[1:]))
		w.until("there are results of two relays for each member", func() bool {
			kvs, _, err := w.client.Prefix(t.Context(), checksPrefix(testKey))
			return err == nil && len(kvs) == 80
		})
	})
}

// Without etcd each relay checks for itself, and goes back when etcd does.
func TestChecksWithoutEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var relays []*checkingRelay
		for i := range 3 {
			relays = append(relays, w.checker(fmt.Sprint("r", i), 1, "a", "b", "c"))
		}
		checkers := func(member string) (n int) {
			for _, r := range relays {
				if r.is(member).Check {
					n++
				}
			}
			return n
		}
		shared := func() bool {
			for _, m := range []string{"a", "b", "c"} {
				for _, r := range relays {
					if !r.is(m).Known {
						return false
					}
				}
				if checkers(m) != 1 {
					return false
				}
			}
			return true
		}
		w.until("the checks are shared", shared)
		w.server.Kill()
		w.until("each checks for itself", func() bool { return checkers("a") == 3 && checkers("b") == 3 && checkers("c") == 3 })
		w.server.Restart()
		w.until("the checks are shared again", shared)
	})
}

// A member that only one relay has is checked by that one.
func TestChecksOfMemberOthersLack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var relays []*checkingRelay
		for i := range 4 {
			relays = append(relays, w.checker(fmt.Sprint("r", i), 2, "all"))
		}
		w.until("all know", func() bool { return relays[3].is("all").Known && relays[0].is("all").Known })
		relays[2].share("own", 2)
		w.until("the relay checks it itself", func() bool { return relays[2].is("own").Check })
		relays[2].set("own", true)
		relays[2].mu.Lock()
		m := relays[2].members["own"]
		relays[2].mu.Unlock()
		m.Leave()
		w.until("nothing of it is left", func() bool {
			kvs, _, err := w.client.Prefix(t.Context(), checksPrefix(testKey)+memberID("web", "own"))
			return err == nil && len(kvs) == 0
		})
	})
}

// Relays rank each other alike, whatever the order in which they learn of each other, and one that comes moves
// few members.
func TestRendezvous(t *testing.T) {
	first := func(nodes []string, member uint64) string {
		best, at := uint64(0), ""
		for _, n := range nodes {
			if r := rankOf(hash64(n), member); at == "" || r > best {
				best, at = r, n
			}
		}
		return at
	}
	var nodes []string
	for i := range 20 {
		nodes = append(nodes, fmt.Sprint("relay-", i))
	}
	load, moved := map[string]int{}, 0
	for i := range 10000 {
		m := hash64(memberID("web", fmt.Sprint("tcp://10.0.0.1:", i)))
		at := first(nodes, m)
		load[at]++
		if first(append(nodes, "another"), m) != at {
			moved++
		}
	}
	for n, k := range load {
		if k < 350 || k > 650 {
			t.Errorf("%s has %d of 10000", n, k)
		}
	}
	if moved < 350 || moved > 650 {
		t.Errorf("a new relay moves %d of 10000", moved)
	}
}
