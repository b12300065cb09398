package upstream

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/relay"
)

// memberNames are names and addresses of the only group's members.
func memberNames(s *Set) (names []string) {
	for _, m := range s.Snapshot()[0].Members {
		names = append(names, m.Name+" "+m.Addr.AddrPort.String())
	}
	return names
}

// What operators change of a group's members stays until the file changes the same thing.
func TestMemberChangesAndReload(t *testing.T) {
	at := func(port uint16) spec.Endpoint { return spec.Endpoint{Kind: spec.TCP, Host: "10.0.9.9", Port: port} }
	file := func(edit func(*spec.Group)) *spec.Group {
		g := &spec.Group{Name: "g", Balance: "first", Members: members(3)}
		if edit != nil {
			edit(g)
		}
		return g
	}
	for _, c := range []struct {
		name   string
		change func(*Set) error
		then   func(*spec.Group) // the next file
		want   string            // members before and after that file
	}{
		{"added", func(s *Set) error { return s.AddMember("g", spec.Member{Name: "x", To: at(1), Weight: 1}) }, nil,
			"m0 m1 m2 x; m0 m1 m2 x"},
		{"added, and then in the file", func(s *Set) error { return s.AddMember("g", spec.Member{Name: "x", To: at(1)}) },
			func(g *spec.Group) { g.Members = append(g.Members, spec.Member{Name: "x", To: at(2)}) }, "m0 m1 m2 x; m0 m1 m2 x:2"},
		{"removed", func(s *Set) error { return s.RemoveMember("g", "m1") }, nil, "m0 m2; m0 m2"},
		{"removed by its address", func(s *Set) error { return s.RemoveMember("g", "tcp://10.0.0.1:80") }, nil, "m0 m2; m0 m2"},
		{"removed, and changed in the file", func(s *Set) error { return s.RemoveMember("g", "m1") },
			func(g *spec.Group) { g.Members[1].Weight = 9 }, "m0 m2; m0 m1 m2"},
		{"removed, and from the file too", func(s *Set) error { return s.RemoveMember("g", "m1") },
			func(g *spec.Group) { g.Members = slices.Delete(g.Members, 1, 2) }, "m0 m2; m0 m2"},
		{"moved", func(s *Set) error { return s.MoveMember("g", "m1", at(7)) }, nil, "m0 m1:7 m2; m0 m1:7 m2"},
		{"moved, and something else in the file", func(s *Set) error { return s.MoveMember("g", "m1", at(7)) },
			func(g *spec.Group) { g.Members[1].Weight = 5 }, "m0 m1:7 m2; m0 m1:7 m2"},
		{"moved, and in the file too", func(s *Set) error { return s.MoveMember("g", "m1", at(7)) },
			func(g *spec.Group) { g.Members[1].To = at(8) }, "m0 m1:7 m2; m0 m1:8 m2"},
		{"moved and back", func(s *Set) error {
			s.MoveMember("g", "m1", at(7))
			return s.MoveMember("g", "m1", members(3)[1].To)
		}, nil, "m0 m1 m2; m0 m1 m2"},
		{"moved, removed and restored", func(s *Set) error {
			s.MoveMember("g", "m1", at(7))
			s.RemoveMember("g", "m1")
			return s.RestoreMember("g", "m1")
		}, nil, "m0 m1 m2; m0 m1 m2"},
		{"moved and restored", func(s *Set) error {
			s.MoveMember("g", "m1", at(7))
			s.SetMode("g", "m1", Drain)
			return s.RestoreMember("g", "m1")
		}, nil, "m0 m1 m2; m0 m1 m2"},
		{"added and removed", func(s *Set) error {
			s.AddMember("g", spec.Member{Name: "x", To: at(1)})
			return s.RemoveMember("g", "x")
		}, nil, "m0 m1 m2; m0 m1 m2"},
	} {
		s, _ := set(t, file(nil), Options{})
		if err := c.change(s); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		now := func() string {
			var list []string
			for _, m := range s.Snapshot()[0].Members {
				name := m.Name
				if port := m.Addr.AddrPort.Port(); port != 80 && port != 1 {
					name += fmt.Sprint(":", port)
				}
				list = append(list, name)
			}
			return strings.Join(list, " ")
		}
		got := now()
		s.Apply([]*spec.Group{file(c.then)})
		if got += "; " + now(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if c.then == nil && c.want == "m0 m1 m2; m0 m1 m2" && s.Snapshot()[0].Differences != nil {
			t.Errorf("%s: %+v", c.name, s.Snapshot()[0].Differences)
		}
	}
}

// Events say what happens to members at run time: they are new, move, and are removed.
func TestEventsOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		s, _ := set(t, &spec.Group{Balance: "first", Members: members(1)}, Options{MemberChanged: func(e MemberEvent) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf("%s %v>%v: %s", e.Member, e.From, e.To, e.Why))
		}})
		at := func(port uint16) spec.Endpoint { return spec.Endpoint{Kind: spec.TCP, Host: "10.0.9.9", Port: port} }
		if err := cmp.Or(s.AddMember("g", spec.Member{Name: "x", To: at(1)}), s.MoveMember("g", "x", at(2)), s.RemoveMember("g", "x")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := []string{"m0 new>up: configured", "x new>up: operator",
			"x new>up: operator: moved from tcp://10.0.9.9:1", "x up>removed: operator: moved to tcp://10.0.9.9:2", "x up>removed: operator"}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A member that moves keeps what was said of it; one that has a name is looked up.
func TestMovedMember(t *testing.T) {
	to := netip.MustParseAddrPort("192.0.2.7:80")
	found := make(chan struct{})
	s, g := set(t, &spec.Group{Balance: "first", Members: members(2)}, Options{
		Discoverer: func(spec.Discover) Discoverer {
			return answer{[]Target{{Addr: relay.Addr{Network: relay.TCP, AddrPort: to}}}, found}
		},
	})
	s.SetWeight("g", "m1", 9)
	s.SetMode("g", "m1", Drain)
	if err := s.MoveMember("g", "m1", spec.Endpoint{Kind: spec.TCP, Host: "192.0.2.1", Port: 5}); err != nil {
		t.Fatal(err)
	}
	if m := s.Snapshot()[0].Members[1]; m.Weight != 9 || m.State != Drained || m.Addr.AddrPort.Port() != 5 {
		t.Errorf("%+v", m)
	}
	want := []MemberDifference{{"m1", "changed", []FieldDifference{{"to", "tcp://10.0.0.1:80", "tcp://192.0.2.1:5"}, {"weight", "1", "9"}, {"state", "enabled", "drained"}}}}
	if got := s.Snapshot()[0].Differences; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if err := s.AddMember("g", spec.Member{Name: "far", To: spec.Endpoint{Kind: spec.TCP, Host: "far.example.com", Port: 80}}); err != nil {
		t.Fatal(err)
	}
	<-found
	if got := memberNames(s); len(got) != 3 || got[2] != "far 192.0.2.7:80" {
		t.Errorf("%q", got)
	}
	if err := s.RemoveMember("g", "tcp://192.0.2.7:80"); err == nil || !strings.Contains(err.Error(), "one address of member") {
		t.Error(err)
	}
	if err := s.RemoveMember("g", "far"); err != nil || g.Len() != 2 {
		t.Errorf("%v, %d members", err, g.Len())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watches) != 0 {
		t.Errorf("%d lookups go on for a member that was removed", len(s.watches))
	}
}

// An answer finds members once, and closes a channel then.
type answer struct {
	targets []Target
	given   chan struct{}
}

func (a answer) Watch(ctx context.Context, update func([]Target, error)) {
	update(a.targets, nil)
	close(a.given)
	<-ctx.Done()
}

// Additions are bounded, and the last member of a group stays.
func TestMemberChangesAreBounded(t *testing.T) {
	if testnet.RaceEnabled {
		t.Skip("nothing here is concurrent, and it takes 6 s of the race detector")
	}
	s, _ := set(t, &spec.Group{Balance: "first", Members: members(1)}, Options{})
	if err := s.RemoveMember("g", "m0"); err == nil || !strings.Contains(err.Error(), "only member") {
		t.Error(err)
	}
	for i := range MaxAdded + 1 {
		err := s.AddMember("g", spec.Member{Name: fmt.Sprint("x", i), To: spec.Endpoint{Kind: spec.TCP, Host: "10.9.9.9", Port: uint16(i + 1)}})
		if (err != nil) != (i == MaxAdded) {
			t.Fatalf("%d: %v", i, err)
		}
	}
}

// A removed member of the file comes back as it was, or not at all; where members are discovered,
// all of the file's may go; and a closed Set has nothing to change.
func TestMemberChangeErrors(t *testing.T) {
	s, _ := set(t, &spec.Group{Balance: "first", Members: members(2)}, Options{})
	if err := s.RemoveMember("g", "m1"); err != nil {
		t.Fatal(err)
	}
	changed := members(2)[1]
	changed.MaxFlows = 7
	if err := s.AddMember("g", changed); err == nil || !strings.Contains(err.Error(), "which was removed") {
		t.Errorf("another member of that name: %v", err)
	}
	if err := s.AddMember("g", members(2)[1]); err != nil || s.Snapshot()[0].Differences != nil {
		t.Errorf("the same member: %v, %+v", err, s.Snapshot()[0].Differences)
	}
	s.Close()
	if err := s.AddMember("g", spec.Member{Name: "x", To: changed.To}); err == nil {
		t.Error("a closed Set took a member")
	}

	given := make(chan struct{})
	s, g := set(t, &spec.Group{Balance: "first", Members: members(1), Discover: []spec.Discover{{Network: spec.TCP, Host: "x.test", Port: 1}}}, Options{
		Discoverer: func(spec.Discover) Discoverer { return answer{nil, given} },
	})
	<-given
	if err := s.RemoveMember("g", "m0"); err != nil || g.Len() != 0 {
		t.Errorf("%v, %d members", err, g.Len())
	}
}

// What an operator said of one address of a name is a difference, but nothing that the file can
// say of the name.
func TestOneAddressDiffers(t *testing.T) {
	at := func(s string) Target {
		return Target{Addr: relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort(s)}}
	}
	given := make(chan struct{})
	s, _ := set(t, &spec.Group{Balance: "first", Members: []spec.Member{{Name: "app", To: spec.Endpoint{Kind: spec.TCP, Host: "app.test", Port: 80}, Weight: 1}}}, Options{
		Discoverer: func(spec.Discover) Discoverer { return answer{[]Target{at("192.0.2.1:80"), at("192.0.2.2:80")}, given} },
	})
	<-given
	if err := s.SetWeight("g", "tcp://192.0.2.2:80", 9); err != nil {
		t.Fatal(err)
	}
	snap := s.Snapshot()[0]
	want := []MemberDifference{{"tcp://192.0.2.2:80", "changed", []FieldDifference{{"weight", "1", "9"}}}}
	if fmt.Sprint(snap.Differences) != fmt.Sprint(want) || len(snap.Running) != 1 || snap.Running[0].Weight != 1 {
		t.Errorf("%+v, %+v, want %+v", snap.Differences, snap.Running, want)
	}
	if err := s.SetWeight("g", "app", 9); err != nil {
		t.Fatal(err)
	}
	snap = s.Snapshot()[0]
	want[0].Member = "app"
	if fmt.Sprint(snap.Differences) != fmt.Sprint(want) || snap.Running[0].Weight != 9 {
		t.Errorf("%+v, %+v, want %+v", snap.Differences, snap.Running, want)
	}
}

// A flow that comes to a group that was removed is not queued there for ever.
func TestRemovedGroupQueuesNothing(t *testing.T) {
	s, g := set(t, &spec.Group{Balance: "first", Members: members(1), Queue: spec.Queue{Size: 8}}, Options{})
	s.Apply(nil)
	var l Lease
	defer l.Release()
	if m, reason := g.Pick(&l, Client{}); m != nil || reason != spec.ReasonNoMember {
		t.Errorf("%v, %v", m, reason)
	}
	if m, reason := g.Wait(&l, nil); m != nil || reason != spec.ReasonQueueFull {
		t.Errorf("queued: %v, %v", m, reason)
	}
}

// Changes, reloads and flows at the same time.
func TestMemberChangesUnderLoad(t *testing.T) {
	cfg := &spec.Group{Balance: "least-connections", Members: members(4), Retries: 3}
	s, g := set(t, cfg, Options{})
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 3 {
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				var l Lease
				g.Pick(&l, Client{Addr: clients(i)})
				l.Release()
			}
		})
	}
	for i := range 100 {
		name, to := fmt.Sprint("x", i%7), spec.Endpoint{Kind: spec.TCP, Host: "10.9.9.9", Port: uint16(i%5 + 1)}
		s.AddMember("g", spec.Member{Name: name, To: to})
		s.MoveMember("g", fmt.Sprint("m", i%4), to)
		s.RemoveMember("g", fmt.Sprint("x", (i+3)%7))
		s.RestoreMember("g", fmt.Sprint("m", (i+1)%4))
		if i%10 == 0 {
			s.Apply([]*spec.Group{cfg})
			s.Snapshot()
		}
	}
	close(stop)
	load.Wait()
	for _, m := range g.members {
		if n := m.Active(); n != 0 {
			t.Errorf("%s has %d flows", m.name, n)
		}
	}
}
