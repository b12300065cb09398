package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay"
)

// A member that is enabled takes the next flow, also where none did before, whatever is due to be built.
func TestFirstMemberOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := set(t, &spec.Group{Balance: "round-robin", Members: members(2)}, Options{})
		for range 3 {
			for _, mode := range []Mode{Disable, Enable} {
				for _, member := range []string{"m1", "m0"} {
					if err := s.SetMode("g", member, mode); err != nil {
						t.Fatal(err)
					}
					var l Lease
					if m, why := g.Pick(&l, Client{}); (m != nil) != g.Open() {
						t.Errorf("%v of %s: open: %v, picked: %v, %v", mode, member, g.Open(), m, why)
					}
					l.Release()
				}
			}
		}
	})
}

// A group can be removed while a member that has opened is in no table yet.
func TestRemovedWhileMemberOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := set(t, &spec.Group{Balance: "round-robin", Members: members(2)}, Options{})
		s.SetMode("g", "m1", Disable)
		time.Sleep(time.Minute)
		s.SetMode("g", "m1", Enable)
		s.Apply(nil)
		if m, why := g.Pick(new(Lease), Client{}); m != nil || why != spec.ReasonNoMember {
			t.Errorf("%v, %v", m, why)
		}
	})
}

func TestHealth(t *testing.T) {
	for results, want := range map[string]string{ // + is well; rise 2, fall 3
		"":             "",
		"+":            "u",
		"-":            "d",
		"+--+--+---":   "uuuuuuuuud",
		"-+-++":        "ddddu",
		"++----+-+-++": "uuuuddddddd" + "u",
		"-++---":       "dduuud",
	} {
		var h health
		got := ""
		for _, r := range results {
			h.apply(r == '+', 2, 3)
			got += map[checkState]string{passing: "u", failing: "d"}[h.state]
		}
		if got != want {
			t.Errorf("%s: %s, want %s", results, got, want)
		}
	}
}

// log gathers events. It is used from the Set's goroutine and the test's.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) event(e MemberEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf("%s %v>%v", e.Member, e.From, e.To))
}

func (l *log) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

// expect compares what has happened since the last call.
func (l *log) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := l.take(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// ward answers checks: who is in sick is not well.
type ward struct {
	mu   sync.Mutex
	sick map[string]bool
	asks map[string]int
}

func (w *ward) probe(_ context.Context, _ *spec.Group, to relay.Addr) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asks == nil {
		w.asks = make(map[string]int)
	}
	w.asks[to.String()]++
	if w.sick[to.String()] {
		return errors.New("sick")
	}
	return nil
}

func (w *ward) set(who string, sick bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sick == nil {
		w.sick = make(map[string]bool)
	}
	w.sick[who] = sick
}

func (w *ward) asked(who string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asks[who]
}

func check() *spec.Check {
	return &spec.Check{Kind: "tcp", Every: 10 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
}

func TestChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ward
		var l log
		w.set("tcp://10.0.0.1:80", true)
		s, g := set(t, &spec.Group{Balance: "round-robin", Members: members(2), Check: check()}, Options{MemberChanged: l.event, probe: w.probe})
		l.expect(t, "m0 new>checking", "m1 new>checking")
		if got := pick(t, g, 10, false, nil); !slices.Equal(got, []int{5, 5}) {
			t.Errorf("before the first check: %v", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		got := l.take()
		slices.Sort(got)
		if want := []string{"m0 checking>up", "m1 checking>down"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if got := pick(t, g, 10, false, nil); !slices.Equal(got, []int{10, 0}) {
			t.Errorf("with m1 down: %v", got)
		}

		w.set("tcp://10.0.0.1:80", false)
		time.Sleep(10 * time.Second)
		l.expect(t)
		time.Sleep(10 * time.Second)
		l.expect(t, "m1 down>up")

		w.set("tcp://10.0.0.0:80", true)
		time.Sleep(20 * time.Second)
		l.expect(t)
		time.Sleep(10 * time.Second)
		l.expect(t, "m0 up>down")
		snap := s.Snapshot()[0].Members[0]
		if snap.State != Down || snap.CheckErr != "sick" || snap.Checked.IsZero() || time.Since(snap.Since) > 10*time.Second {
			t.Errorf("snapshot %+v", snap)
		}

		// A disabled member is not checked, and begins anew.
		if err := s.SetMode("g", "m0", Disable); err != nil {
			t.Fatal(err)
		}
		asked := w.asked("tcp://10.0.0.0:80")
		time.Sleep(time.Minute)
		l.expect(t, "m0 down>disabled")
		if n := w.asked("tcp://10.0.0.0:80") - asked; n != 0 {
			t.Errorf("a disabled member is checked %d times", n)
		}
		w.set("tcp://10.0.0.0:80", false)
		if err := s.SetMode("g", "m0", Enable); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		l.expect(t, "m0 disabled>checking", "m0 checking>up")

		// Without checks everybody is up.
		w.set("tcp://10.0.0.1:80", true)
		time.Sleep(40 * time.Second)
		l.expect(t, "m1 up>down")
		s.Apply([]*spec.Group{{Name: "g", Balance: "round-robin", Members: members(2)}})
		l.expect(t, "m1 down>up")
	})
}

// First checks are spread, intervals have their jitter, and never run more than
// may at once.
func TestChecksAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10000
		var mu sync.Mutex
		var starts []time.Time
		running, most := 0, 0
		probe := func(ctx context.Context, _ *spec.Group, _ relay.Addr) error {
			mu.Lock()
			starts = append(starts, time.Now())
			running++
			most = max(most, running)
			mu.Unlock()
			<-ctx.Done() // nobody answers
			mu.Lock()
			running--
			mu.Unlock()
			return ctx.Err()
		}
		c := check()
		c.Jitter = 0.5
		begin := time.Now()
		set(t, &spec.Group{Balance: "round-robin", Members: members(n), Check: c}, Options{probe: probe})
		time.Sleep(9 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if most > maxProbes {
			t.Errorf("%d checks at once, most %d", most, maxProbes)
		}
		var seconds [10]int
		for _, at := range starts {
			seconds[int(at.Sub(begin)/time.Second)]++
		}
		for i, k := range seconds[:9] {
			if k < maxProbes/2 || k > 2*maxProbes {
				t.Errorf("second %d: %d checks begin", i, k)
			}
		}
	})
}

func TestEjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		cfg := &spec.Group{
			Balance: "round-robin", Members: members(4), Retries: 9,
			Eject: &spec.Eject{Failures: 3, For: 10 * time.Second, Max: 30 * time.Second, Share: 0.5},
		}
		s, g := set(t, cfg, Options{MemberChanged: l.event})
		synctest.Wait()
		l.take()
		sick := map[string]bool{"m1": true}
		flows := func(n int) {
			for range n {
				var lease Lease
				for {
					m, _ := g.Pick(&lease, Client{Addr: nobody, Local: nobody})
					if m == nil {
						break
					}
					if !sick[m.Name()] {
						lease.Connected(nil, time.Millisecond)
						break
					}
					lease.Connected(syscall.ECONNREFUSED, time.Millisecond)
				}
				lease.Release()
				synctest.Wait()
			}
		}
		flows(40)
		l.expect(t, "m1 up>ejected")
		time.Sleep(10*time.Second + time.Millisecond)
		l.expect(t, "m1 ejected>up")
		time.Sleep(buildDelay)
		flows(40)
		l.expect(t, "m1 up>ejected")
		time.Sleep(15 * time.Second)
		l.expect(t)
		time.Sleep(5*time.Second + time.Millisecond)
		l.expect(t, "m1 ejected>up")
		time.Sleep(buildDelay)
		flows(40)
		l.expect(t, "m1 up>ejected")
		time.Sleep(30*time.Second + time.Millisecond) // at most Max
		l.expect(t, "m1 ejected>up")
		time.Sleep(buildDelay)

		// A success ends the row, of failures and of ejections.
		sick["m1"] = false
		flows(8)
		sick["m1"] = true
		flows(40)
		l.expect(t, "m1 up>ejected")
		time.Sleep(10*time.Second + time.Millisecond)
		l.expect(t, "m1 ejected>up")
		time.Sleep(buildDelay)

		// Never more than half.
		sick["m0"], sick["m2"], sick["m3"] = true, true, true
		flows(40)
		if got := l.take(); len(got) != 2 {
			t.Errorf("%v, want two ejections of four", got)
		}
		snap := s.Snapshot()[0].Members[1]
		if snap.Failures < 12 {
			t.Errorf("%+v", snap)
		}
	})
}

// What this host has run out of is nobody's fault.
func TestOwnErrorsDoNotEject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		cfg := &spec.Group{Balance: "round-robin", Members: members(1), Eject: &spec.Eject{Failures: 1, For: time.Second, Max: time.Second, Share: 1}}
		_, g := set(t, cfg, Options{MemberChanged: l.event})
		l.expect(t, "m0 new>up")
		var lease Lease
		for _, err := range []error{syscall.EMFILE, fmt.Errorf("connect: %w", syscall.EADDRNOTAVAIL)} {
			g.Pick(&lease, Client{Addr: nobody, Local: nobody})
			lease.Connected(err, 0)
			lease.Release()
		}
		l.expect(t)
		g.Pick(&lease, Client{Addr: nobody, Local: nobody})
		lease.Connected(syscall.ETIMEDOUT, 0)
		lease.Release()
		l.expect(t, "m0 up>ejected")
	})
}

// TestBack: a flow gets its member back when this host has no route to it and no other member can take the flow, even if the member has no room.
func TestBack(t *testing.T) {
	own, noRoute := Client{Addr: nobody, Local: nobody}, os.NewSyscallError("send", syscall.ENETUNREACH)
	cfg := &spec.Group{Balance: "round-robin", Members: members(2), Retries: 2}
	cfg.Members[0].MaxFlows, cfg.Members[1].MaxFlows = 1, 1
	_, g := set(t, cfg, Options{})
	var lease Lease
	first, _ := g.Pick(&lease, own)
	if lease.Connected(noRoute, 0); lease.Back() != nil {
		t.Error("back at a member that the flow still has")
	}
	lease.Release()
	for range 2 { // a route may be gone more than once
		if lease.Member() == nil {
			first, _ = g.Pick(&lease, own)
		}
		lease.Connected(noRoute, 0)
		if second, reason := g.Pick(&lease, own); second == nil || second == first {
			t.Fatalf("after %v, %v was picked: %v", first, second, reason)
		}
		lease.Connected(syscall.ENETUNREACH, 0) // nor has the other one a route
		if m, _ := g.Pick(&lease, own); m != nil {
			t.Fatalf("%v was picked again", m)
		}
		var other Lease
		if m, _ := g.Pick(&other, own); m == nil { // takes the slot
			t.Fatal("no member has room")
		}
		if m := lease.Back(); m != first || lease.Member() != first {
			t.Errorf("back at %v, want %v", m, first)
		}
		other.Release()
		if lease.Back() != nil {
			t.Error("back twice")
		}
	}
	lease.Release()
	for _, m := range g.members {
		if n := m.active.Load(); n != 0 {
			t.Errorf("%v has %d flows in the end", m, n)
		}
	}
	g.Pick(&lease, own)
	lease.Connected(syscall.EHOSTUNREACH, time.Second) // says a firewall
	g.Pick(&lease, own)
	lease.Connected(syscall.ENETUNREACH, 0) // an attempt that failed at once
	if m, _ := g.Pick(&lease, own); m != nil || lease.Back() != nil {
		t.Error("back at a member that refused, or that the flow never had")
	}
}

// TestBackForNow: a flow goes back after seven other members, tries the rest the next time, and then all again; after another error, too.
func TestBackForNow(t *testing.T) {
	own, noRoute := Client{Addr: nobody, Local: nobody}, os.NewSyscallError("send", syscall.ENETUNREACH)
	_, g := set(t, &spec.Group{Balance: "first", Members: members(11), Retries: 100}, Options{})
	var lease Lease
	first, _ := g.Pick(&lease, own)
	tries := func(n int) (tried string) {
		lease.Connected(noRoute, 0)
		for range n {
			if m := lease.BackForNow(); m != nil {
				t.Fatalf("back at %v after %q", m, tried)
			}
			m, _ := g.Pick(&lease, own)
			tried += m.Name() + " "
			lease.Connected(syscall.ENETUNREACH, 0)
		}
		return tried
	}
	all := ""
	for range 2 {
		some := tries(7)
		if m := lease.BackForNow(); m != first || lease.Member() != first {
			t.Fatalf("back at %v, want %v", m, first)
		}
		rest := tries(3)
		if m, _ := g.Pick(&lease, own); m != nil || lease.Back() != first {
			t.Fatalf("%v was picked again", m)
		}
		if now := some + rest; all != "" && now != all || len(strings.Fields(now)) != 10 || strings.Contains(now, first.Name()+" ") {
			t.Errorf("it tried %q, and %q before", now, all)
		} else {
			all = now
		}
	}
	tries(7)
	lease.BackForNow()
	lease.Connected(syscall.ECONNREFUSED, 0) // says the host of the member
	for range 10 {
		if m, reason := g.Pick(&lease, own); m == nil || m == first {
			t.Fatalf("%v was picked: %v", m, reason)
		}
		lease.Connected(syscall.ECONNREFUSED, 0)
		if m := lease.BackForNow(); m != nil {
			t.Fatalf("back at %v", m)
		}
	}
	lease.Release()
	for _, m := range g.members {
		if n := m.active.Load(); n != 0 {
			t.Errorf("%v has %d flows in the end", m, n)
		}
	}
}

func TestSlowStart(t *testing.T) {
	for _, balance := range balancerNames() {
		if spec.BalancerNamed(balance).NoWeights {
			continue
		}
		t.Run(balance, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l log
				cfg := &spec.Group{Balance: balance, Members: members(2), SlowStart: 20 * time.Second}
				s, g := set(t, cfg, Options{MemberChanged: l.event})
				l.expect(t, "m0 new>up", "m1 new>up") // nobody is slow at the start
				s.SetMode("g", "m1", Drain)
				time.Sleep(time.Second)
				s.SetMode("g", "m1", AsFile)
				l.expect(t, "m1 up>drained", "m1 drained>slow start")
				before := 0
				for i := range 4 {
					time.Sleep(5*time.Second + time.Millisecond)
					synctest.Wait()
					hold := balance == "least-connections" || balance == "p2c"
					n := 8000
					var leases []*Lease
					got := 0
					for k := range n {
						lease := new(Lease)
						m, _ := g.Pick(lease, Client{Addr: clients(k), Local: nobody})
						if m == g.members[1] {
							got++
						}
						if hold {
							leases = append(leases, lease)
						} else {
							lease.Release()
						}
					}
					for _, lease := range leases {
						lease.Release()
					}
					if got <= before && i < 3 {
						t.Errorf("quarter %d: %d of %d flows, before %d", i, got, n, before)
					}
					if i == 0 && got > n/3 || i == 3 && (got < n*4/10 || got > n*6/10) {
						t.Errorf("quarter %d: %d of %d flows", i, got, n)
					}
					before = got
				}
				time.Sleep(2 * time.Second)
				l.expect(t, "m1 slow start>up")
			})
		})
	}
}

func TestReload(t *testing.T) {
	var mu sync.Mutex
	var gone []string
	left := make(chan struct{}, 10)
	opt := Options{MemberRemoved: func(m *Member) {
		mu.Lock()
		gone = append(gone, m.Name())
		mu.Unlock()
		left <- struct{}{}
	}}
	cfg := &spec.Group{Balance: "round-robin", Members: members(3)}
	s, g := set(t, cfg, opt)
	var l Lease
	m0, _ := g.Pick(&l, Client{Addr: nobody, Local: nobody})

	next := &spec.Group{Name: "g", Balance: "least-connections", Members: members(4, 9)[:4]}
	next.Members = slices.Delete(next.Members, 1, 2) // m1 is gone, m3 is new
	s.Apply([]*spec.Group{next, {Name: "other", Balance: "first", Members: members(1)}})
	if s.Group("g") != g {
		t.Error("the group is another one")
	}
	<-left
	if mu.Lock(); !slices.Equal(gone, []string{"m1"}) {
		t.Error(gone)
	}
	mu.Unlock()
	if g.members[0] != m0 || m0.Active() != 1 || m0.counts.load(totalAt) != 1 {
		t.Errorf("m0 has lost what it had: %d, %d", m0.Active(), m0.counts.load(totalAt))
	}
	if got := pick(t, g, 900, true, nil); got[0] < 700 || got[1] < 50 || got[2] < 50 {
		t.Errorf("new weights: %v", got)
	}
	l.Release()

	// An address of another kind under the same name is another member.
	again := &spec.Group{Name: "g", Balance: "first", Members: members(1)}
	again.Members[0].To.Port = 81
	s.Apply([]*spec.Group{again})
	<-left
	<-left
	<-left
	<-left // of the group that is gone
	if s.Group("other") != nil {
		t.Error("a group that is gone is there")
	}
	if m, _ := g.Pick(&l, Client{Addr: nobody, Local: nobody}); m == nil || m == m0 || m.Addr().AddrPort.Port() != 81 {
		t.Errorf("%v", m)
	}
	l.Release()
	s.Apply(nil)
	<-left
	if m, why := g.Pick(&l, Client{Addr: nobody, Local: nobody}); m != nil || why != spec.ReasonNoMember {
		t.Errorf("%v, %v", m, why)
	}
	l.Release()
}

// What an operator says stays, until the file changes its mind about the same thing.
func TestOverridesAndReload(t *testing.T) {
	apply := func(s *Set, weight int, drained bool) {
		cfg := &spec.Group{Name: "g", Balance: "first", Members: members(2, weight)}
		cfg.Members[0].Drained = drained
		s.Apply([]*spec.Group{cfg})
	}
	s, _ := set(t, &spec.Group{Balance: "first", Members: members(2, 5)}, Options{})
	look := func(what string, weight int, state State) {
		t.Helper()
		if m := s.Snapshot()[0].Members[0]; m.Weight != weight || m.State != state {
			t.Errorf("%s: weight %d, %v; want %d, %v", what, m.Weight, m.State, weight, state)
		}
	}
	for _, err := range []error{s.SetWeight("g", "m0", 7), s.SetMode("g", "m0", Drain)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	look("overridden", 7, Drained)
	apply(s, 5, false)
	look("the file says the same", 7, Drained)
	apply(s, 6, false)
	look("the file has another weight", 6, Drained)
	s.SetWeight("g", "m0", 8)
	apply(s, 6, true)
	look("the file drains it", 8, Drained)
	apply(s, 6, false)
	look("the file does not drain it any more", 8, Up)
	s.SetWeight("g", "m0", 0)
	look("the file's weight again", 6, Up)
	for want, err := range map[string]error{
		`no group "x"`:                                    s.SetMode("x", "m0", Drain),
		`group "g" has no member "x"`:                     s.SetWeight("g", "x", 1),
		"weight 257; allowed: 0 to 256":                   s.SetWeight("g", "m0", 257),
		"mode 9; allowed: AsFile, Enable, Drain, Disable": s.SetMode("g", "m0", 9),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Members that come up, or have more room, take those who wait.
func TestQueueMovesOn(t *testing.T) {
	cfg := &spec.Group{Balance: "least-connections", Members: members(2), Queue: spec.Queue{Size: 10}}
	cfg.Members[0].MaxFlows = 1
	cfg.Members[1].Drained = true
	s, g := set(t, cfg, Options{})
	flows := make([]flow, 4)
	for i := range flows {
		if m, _ := g.Pick(&flows[i].Lease, Client{Addr: nobody, Local: nobody}); m == nil {
			if m, why := g.Wait(&flows[i].Lease, &flows[i]); m != nil || why != spec.ReasonNone {
				t.Fatalf("%v, %v", m, why)
			}
		}
	}
	more := *cfg
	more.Members = slices.Clone(cfg.Members)
	more.Members[0].MaxFlows = 2
	s.Apply([]*spec.Group{&more})
	if flows[1].resumed != 1 || flows[2].resumed != 0 {
		t.Errorf("with one slot more: %v, %v", flows[1].resumed, flows[2].resumed)
	}
	more.Members[1].Drained = false
	s.Apply([]*spec.Group{&more})
	if flows[2].resumed != 1 || flows[3].resumed != 1 {
		t.Errorf("with a member more: %v, %v", flows[2].resumed, flows[3].resumed)
	}
	for i := range flows {
		if m, why := g.Pick(&flows[i].Lease, Client{Addr: nobody, Local: nobody}); i > 0 && m == nil {
			t.Errorf("flow %d: %v", i, why)
		}
		flows[i].Release()
	}
}

// A group that gets a destination in place of its members has nobody to wait for, until it has members again.
func TestQueueEndsWithMembers(t *testing.T) {
	cfg := &spec.Group{Balance: "round-robin", Members: members(1), Queue: spec.Queue{Size: 10}}
	cfg.Members[0].Drained = true
	s, g := set(t, cfg, Options{})
	var f, late flow
	wait := func(f *flow, want spec.Reason) {
		t.Helper()
		if m, why := g.Wait(&f.Lease, f); m != nil || why != want {
			t.Fatalf("%v, %v; want %v", m, why, want)
		}
	}
	for range 2 {
		f.resumed = 0
		if m, why := g.Pick(&f.Lease, Client{Addr: nobody, Local: nobody}); m != nil || why != spec.ReasonNone {
			t.Fatalf("%v, %v; want to wait", m, why)
		}
		wait(&f, spec.ReasonNone)
		named := spec.Group{Name: cfg.Name, Balance: cfg.Balance, Queue: cfg.Queue, Destination: &spec.Destination{By: spec.BySNI}}
		s.Apply([]*spec.Group{&named})
		if f.resumed != 1 {
			t.Fatalf("resumed %d times", f.resumed)
		}
		f.Release()
		wait(&late, spec.ReasonQueueFull) // it has looked at the members before
		s.Apply([]*spec.Group{cfg})
	}
}

// Flows wait for a member to come up as they wait for a slot, where the group has a queue.
func TestQueueWhileAllAreDown(t *testing.T) {
	cfg := &spec.Group{Balance: "round-robin", Members: members(2), Queue: spec.Queue{Size: 1}}
	s, g := set(t, cfg, Options{})
	for _, name := range []string{"m0", "m1"} {
		if err := s.SetMode("g", name, Drain); err != nil {
			t.Fatal(err)
		}
	}
	var l, second Lease
	p := &waiter{woken: make(chan struct{}, 1)}
	if m, why := g.Pick(&l, Client{Addr: nobody, Local: nobody}); m != nil || why != spec.ReasonNone {
		t.Fatalf("%v, %v; want to wait", m, why)
	}
	if m, why := g.Wait(&l, p); m != nil || why != spec.ReasonNone {
		t.Fatalf("%v, %v; want to wait", m, why)
	}
	if m, why := g.Pick(&second, Client{Addr: nobody, Local: nobody}); m != nil || why != spec.ReasonQueueFull {
		t.Errorf("beyond the queue: %v, %v", m, why)
	}
	if g.Open() {
		t.Error("the group is open")
	}
	if err := s.SetMode("g", "m1", Enable); err != nil {
		t.Fatal(err)
	}
	<-p.woken
	if m, why := g.Pick(&l, Client{Addr: nobody, Local: nobody}); m == nil || m.Name() != "m1" {
		t.Errorf("%v, %v", m, why)
	}
	l.Release()
	second.Release()
}

// Below the share of Panic members that are down take flows as well, until enough are well
// again; those that an operator has taken out never do.
func TestPanic(t *testing.T) {
	var mu sync.Mutex
	bad := map[string]bool{}
	probe := func(_ context.Context, _ *spec.Group, to relay.Addr) error {
		mu.Lock()
		defer mu.Unlock()
		if bad[to.String()] {
			return errors.New("down")
		}
		return nil
	}
	told := make(chan bool, 9)
	cfg := &spec.Group{
		Balance: "round-robin", Members: members(4), Panic: 0.5,
		Check: &spec.Check{Kind: "tcp", Every: 5 * time.Millisecond, Timeout: time.Second, Rise: 1, Fall: 1},
	}
	s, g := set(t, cfg, Options{probe: probe, PanicChanged: func(_ string, panics bool, _, _ int) { told <- panics }})
	states := func(want map[State]int) {
		t.Helper()
		testwait.Until(t, fmt.Sprint(want), func() bool {
			got := map[State]int{}
			for _, m := range s.Snapshot()[0].Members {
				got[m.State]++
			}
			return maps.Equal(got, want)
		})
	}
	breakDown := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		clear(bad)
		for _, m := range g.members[:n] {
			bad[m.Addr().String()] = true
		}
	}
	takes := func() (n int) {
		for _, m := range s.Snapshot()[0].Members {
			if m.AcceptsFlows {
				n++
			}
		}
		return n
	}
	states(map[State]int{Up: 4})
	breakDown(2)
	states(map[State]int{Up: 2, Down: 2})
	if n := takes(); n != 2 || len(told) > 0 {
		t.Errorf("half is well: %d take flows", n)
	}
	breakDown(3)
	if !<-told || takes() != 4 {
		t.Errorf("%d take flows", takes())
	}
	if err := s.SetMode("g", "m0", Drain); err != nil {
		t.Fatal(err)
	}
	if n := takes(); n != 3 {
		t.Errorf("%d take flows, with one drained", n)
	}
	breakDown(0)
	if <-told {
		t.Error("it panics again")
	}
	states(map[State]int{Up: 3, Drained: 1})
	if n := takes(); n != 3 {
		t.Errorf("%d take flows", n)
	}
}
