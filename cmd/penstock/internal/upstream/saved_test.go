package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// throughJSON returns what the next process reads.
func throughJSON(t testing.TB, s SavedSet) *SavedSet {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	out := new(SavedSet)
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func describe(s *Set) (lines []string) {
	for _, g := range s.Snapshot() {
		for _, m := range g.Members {
			lines = append(lines, fmt.Sprintf("%s/%s %s %v weight %d %v accepts %v streak %d", g.Name, m.Name, m.Addr, m.State, m.Weight, m.Mode, m.AcceptsFlows, m.Streak))
		}
	}
	return lines
}

// A restart changes nothing about members: neither what operators have changed, nor what checks and
// connects have found.
func TestSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ward
		w.set("tcp://10.0.0.1:80", true)
		cfg := &spec.Group{
			Name: "g", Balance: "round-robin", Members: members(6), Check: check(), SlowStart: time.Minute, Retries: 9,
			Eject: &spec.Eject{Failures: 2, For: 20 * time.Second, Max: time.Minute, Share: 0.5},
		}
		first := NewSet(Options{probe: w.probe})
		first.Apply([]*spec.Group{cfg})
		revision := first.Revision()
		time.Sleep(time.Second) // the first checks
		for _, err := range []error{
			first.SetMode("g", "m2", Drain), first.SetWeight("g", "m3", 7), first.RemoveMember("g", "m4"),
			first.MoveMember("g", "m5", spec.Endpoint{Kind: spec.TCP, Host: "10.7.7.7", Port: 81}),
			first.AddMember("g", spec.Member{Name: "new", Weight: 2, MaxFlows: 9, To: spec.Endpoint{Kind: spec.TCP, Host: "10.8.8.8", Port: 82}}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(25 * time.Second)
		m0 := first.Group("g").members[0]
		m0.failed(syscall.ECONNREFUSED)
		m0.failed(syscall.ECONNREFUSED)
		synctest.Wait()
		if first.Revision() == revision {
			t.Error("the revision has not changed")
		}
		turn := &first.Group("g").turn
		turn.Store(41)
		want := describe(first)
		saved := throughJSON(t, first.Save())
		first.Close()

		time.Sleep(time.Second)
		var l log
		asked := w.asked("tcp://10.0.0.1:80")
		next := NewSet(Options{probe: w.probe, MemberChanged: l.event, Saved: saved})
		defer next.Close()
		next.Apply([]*spec.Group{cfg})
		l.expect(t) // nothing
		if w.asked("tcp://10.0.0.1:80") != asked {
			t.Error("a check came before the first look")
		}
		if got := describe(next); !slices.Equal(got, want) {
			t.Errorf("after the restart\n%s\nbefore\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if n := next.Group("g").turn.Load(); n != 41 {
			t.Errorf("turn %d", n)
		}
		for flow := range 20 {
			var lease Lease
			m, _ := next.Group("g").Pick(&lease, Client{})
			if m == nil || !slices.Contains([]string{"m3", "m5", "new"}, m.Name()) {
				t.Fatalf("flow %d: member %v", flow, m)
			}
			lease.Release()
		}
		if again := throughJSON(t, next.Save()); fmt.Sprint(again.Groups[0].Added, again.Groups[0].Removed, again.Groups[0].Moved) != fmt.Sprint(saved.Groups[0].Added, saved.Groups[0].Removed, saved.Groups[0].Moved) {
			t.Errorf("%+v, was %+v", again.Groups[0], saved.Groups[0])
		}
		time.Sleep(20 * time.Second) // the ejection goes on for the rest of its time
		if got := l.take(); !slices.Contains(got, "m0 ejected>slow start") && !slices.Contains(got, "m0 ejected>up") {
			t.Errorf("events %q", got)
		}
		if err := next.RestoreMember("g", "m4"); err != nil {
			t.Error(err)
		}
	})
}

// What the file has changed meanwhile, it has changed.
func TestSavedAndAnotherFile(t *testing.T) {
	file := func(weight int) *spec.Group {
		return &spec.Group{Name: "g", Balance: "first", Members: members(3, 1, weight)}
	}
	first := NewSet(Options{})
	first.Apply([]*spec.Group{file(1)})
	first.SetWeight("g", "m1", 9)
	first.SetMode("g", "m1", Drain)
	first.RemoveMember("g", "m2")
	saved := throughJSON(t, first.Save())
	first.Close()
	next := NewSet(Options{Saved: saved})
	defer next.Close()
	cfg := file(4)
	cfg.Members[2].Weight = 5
	next.Apply([]*spec.Group{cfg})
	got := describe(next)
	want := []string{
		"g/m0 tcp://10.0.0.0:80 up weight 1 as configured accepts true streak 0",
		"g/m1 tcp://10.0.0.1:80 drained weight 4 drained accepts false streak 0",
		"g/m2 tcp://10.0.0.2:80 up weight 5 as configured accepts true streak 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Members found by a lookup are there before the first answer, which then updates them.
func TestSavedLookups(t *testing.T) {
	target := func(host byte) Target {
		return Target{Name: fmt.Sprint("t", host), Weight: 1, Addr: relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:80", host))}}
	}
	cfg := &spec.Group{Name: "g", Balance: "first", Discover: []spec.Discover{{Network: spec.TCP, Host: "name", Port: 80}}}
	first := NewSet(Options{Discoverer: func(spec.Discover) Discoverer { return fixed{target(1), target(2)} }})
	first.Apply([]*spec.Group{cfg})
	if err := first.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.SetMode("g", "t2", Drain)
	saved := throughJSON(t, first.Save())
	first.Close()

	answers := make(asked)
	next := NewSet(Options{Saved: saved, Discoverer: func(spec.Discover) Discoverer { return answers }})
	defer next.Close()
	next.Apply([]*spec.Group{cfg})
	if err := next.Wait(t.Context()); err != nil { // does not wait
		t.Fatal(err)
	}
	if got := strings.Join(describe(next), "; "); !strings.Contains(got, "t1 tcp://10.0.0.1:80 up") || !strings.Contains(got, "t2 tcp://10.0.0.2:80 drained") {
		t.Error(got)
	}
	done := make(chan bool)
	answers <- func(update func([]Target, error)) {
		update([]Target{target(2), target(3)}, nil)
		close(done)
	}
	<-done
	if got := strings.Join(describe(next), "; "); strings.Contains(got, "t1") || !strings.Contains(got, "t2 tcp://10.0.0.2:80 drained") || !strings.Contains(got, "t3 tcp://10.0.0.3:80 up") {
		t.Error(got)
	}
}

// What is counted goes on in the next process, and not for members that are gone.
func TestCountsGoOn(t *testing.T) {
	mem := make([]atomic.Int64, counts.Size(Layouts()...))
	m, err := counts.Create(mem, Layouts()...)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &spec.Group{
		Name: "g", Balance: "first", Members: members(2), Queue: spec.Queue{Size: 9, Timeout: time.Minute},
		Discover: []spec.Discover{{Network: spec.TCP, Host: "name", Port: 80}},
	}
	cfg.Members[0].MaxFlows, cfg.Members[1].Drained = 1, true
	broken := func(spec.Discover) Discoverer { return lookupFails{} }
	first := NewSet(Options{Counts: m, Discoverer: broken})
	first.Apply([]*spec.Group{cfg})
	first.Wait(t.Context())
	var a, b Lease
	first.Group("g").Pick(&a, Client{})
	a.Connected(nil, 5*time.Millisecond)
	a.Answered(7 * time.Millisecond)
	a.Answered(0)
	first.Group("g").members[1].failed(syscall.ECONNREFUSED)
	if _, why := first.Group("g").Wait(&b, nil); why != spec.ReasonNone {
		t.Fatal(why)
	}
	first.Close()

	if m, err = counts.Open(mem); err != nil {
		t.Fatal(err)
	}
	next := NewSet(Options{Counts: m, Discoverer: broken})
	defer next.Close()
	next.Apply([]*spec.Group{cfg})
	next.Wait(t.Context())
	s := next.Snapshot()[0]
	if m := s.Members[0]; m.Total != 1 || m.Connects != 1 || m.ConnectTime != 5*time.Millisecond || m.Answers != 1 || m.AnswerTime != 7*time.Millisecond || m.Active != 0 {
		t.Errorf("%+v", m)
	}
	if s.Members[1].Failures != 1 || s.QueuedTotal != 1 || s.Lookups[0].Failures != 2 {
		t.Errorf("%+v", s)
	}
	next.Apply([]*spec.Group{{Name: "g", Balance: "first", Members: members(2)[1:]}})
	next.Apply([]*spec.Group{cfg})
	if m := next.Snapshot()[0].Members; m[0].Connects != 0 || m[1].Failures != 1 {
		t.Errorf("a member that was removed and added again begins with %+v", m[0])
	}
}

// A flow that goes on holds its member's slot again, whatever the limit; one of a member or group
// that is gone has one that stands for it.
func TestRestoreLease(t *testing.T) {
	cfg := &spec.Group{Balance: "least-connections", Members: members(2)}
	cfg.Members[0].MaxFlows = 1
	s, g := set(t, cfg, Options{})
	leases := make([]Lease, 4)
	for i := range leases[:3] {
		if m := g.Restore(&leases[i], "m0", *g.members[0].Addr()); m != g.members[0] || leases[i].Member() != m {
			t.Fatalf("%v", m)
		}
	}
	if g.members[0].Active() != 3 {
		t.Errorf("%d flows", g.members[0].Active())
	}
	m := g.Restore(&leases[3], "m0", relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort("10.9.9.9:80")})
	if !m.Removed() || m.Name() != "m0" || m == g.members[0] {
		t.Errorf("%+v", m)
	}
	for range 3 { // m0 is full
		var l Lease
		if m, why := g.Pick(&l, Client{}); m != g.members[1] {
			t.Errorf("%v, %v", m, why)
		}
		defer l.Release()
	}
	for i := range leases {
		leases[i].Release()
	}
	if g.members[0].Active() != 0 {
		t.Errorf("%d flows", g.members[0].Active())
	}
	var l Lease
	if m, _ := g.Pick(&l, Client{}); m != g.members[0] {
		t.Error("the balancer does not know that slots are free")
	}
	l.Release()

	if s.RestoreGroup("g") != g {
		t.Error("another group g")
	}
	gone := s.RestoreGroup("gone")
	m = gone.Restore(&l, "x", *g.members[0].Addr())
	if !gone.Removed() || !m.Removed() || gone.Len() != 0 {
		t.Errorf("%+v", gone)
	}
	if m, why := gone.Pick(new(Lease), Client{}); m != nil || why != spec.ReasonNoMember {
		t.Errorf("%v, %v", m, why)
	}
	l.Release()
}

// Whatever was saved, the Set works, and has the members of the file.
func FuzzSaved(f *testing.F) {
	s := NewSet(Options{})
	s.Apply([]*spec.Group{{Name: "g", Balance: "round-robin", Members: members(3)}})
	s.SetMode("g", "m0", Drain)
	s.RemoveMember("g", "m1")
	s.AddMember("g", spec.Member{Name: "new", To: spec.Endpoint{Kind: spec.TCP, Host: "10.8.8.8", Port: 82}})
	s.MoveMember("g", "m2", spec.Endpoint{Kind: spec.TCP, Host: "10.7.7.7", Port: 81})
	text, _ := json.Marshal(s.Save())
	s.Close()
	f.Add(text)
	f.Add([]byte(`{"groups":[{"name":"g","members":[{"name":"m0","url":"tcp://10.0.0.0:80","state":99,"mode":-1}],"added":[{"name":"m0","to":"x"},{"to":"tcp://1.2.3.4:5"}]}],"lookups":[{"query":"","targets":[{}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		saved := new(SavedSet)
		if json.Unmarshal(text, saved) != nil {
			return
		}
		s := NewSet(Options{Saved: saved, Discoverer: func(spec.Discover) Discoverer { return fixed{} }})
		defer s.Close()
		s.Apply([]*spec.Group{{Name: "g", Balance: "round-robin", Members: members(3), Check: nil, Eject: &spec.Eject{Failures: 1, For: time.Hour, Max: time.Hour, Share: 1}}})
		var l Lease
		s.Group("g").Pick(&l, Client{})
		l.Release()
		s.Snapshot()
		s.Save()
		if s.Group("g").Len() > 3+MaxAdded {
			t.Errorf("%d members", s.Group("g").Len())
		}
	})
}

// lookupFails is a Discoverer whose lookup fails once.
type lookupFails struct{}

func (lookupFails) Watch(ctx context.Context, update func([]Target, error)) {
	update(nil, errors.New("no answer"))
	<-ctx.Done()
}

// A lookup is recognized in what another version has saved; registries are told apart by all that
// matters, which are no names.
func TestQueryText(t *testing.T) {
	d := spec.Discover{Network: spec.TCP, Host: "a.b", Port: 80, Every: time.Second, Lookups: spec.Lookups{Keep: 1, Vanish: 0.5}}
	if got, want := queryText(d), "{Network:tcp Host:a.b Port:80 Service: Every:0s Lookups:{Keep:0s MaxMembers:0} Weight:0 MaxFlows:0}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	r := spec.Discover{Registry: spec.Registry{Name: "x", Kind: "consul", Servers: "http://a:1"}, Key: "web", Tags: "v2", Network: spec.TCP}
	same, other, elsewhere := r, r, r
	same.Registry.Name, same.Lookups.Keep = "y", time.Hour
	other.Tags, elsewhere.Registry.Servers = "v3", "http://b:1"
	if queryText(r) != queryText(same) || queryText(r) == queryText(other) || queryText(r) == queryText(elsewhere) {
		t.Error(queryText(r))
	}
	if namedText(r) != namedText(elsewhere) || namedText(r) == namedText(other) || namedText(r) == namedText(same) || namedText(d) != "" {
		t.Error(namedText(r))
	}
	// Of another text the next version would recognize nothing.
	if got, want := queryText(r), `consul "http://a:1" context "": "web" network tcp port 0 port-name "" tags "v2" datacenter "" stale false weight 0 max-flows 0`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := namedText(r), `consul "x": "web" network tcp port 0 port-name "" tags "v2" datacenter "" stale false weight 0 max-flows 0`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A member that operators have removed stays so in the next process, whatever the file says of it.
func TestSavedRemovalOfMemberWithKeys(t *testing.T) {
	cfg := &spec.Group{Name: "g", Balance: "first", Members: members(2)}
	m := &cfg.Members[1]
	m.CheckPort, m.CheckAddress, m.AgentPort, m.AgentAddress, m.AgentSend = 81, netip.MustParseAddr("10.0.0.9"), 82, netip.MustParseAddr("10.0.0.8"), "a\xffb"
	m.QUICServerID = "\xff\x00"
	m.Weight, m.Backup, m.MaxFlows, m.Drained = 5, true, 7, true
	for v, i := reflect.ValueOf(*m), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("this test does not set %s", v.Type().Field(i).Name)
		}
	}
	first := NewSet(Options{})
	first.Apply([]*spec.Group{cfg})
	if err := first.RemoveMember("g", "m1"); err != nil {
		t.Fatal(err)
	}
	saved := throughJSON(t, first.Save())
	first.Close()
	next := NewSet(Options{Saved: saved})
	defer next.Close()
	next.Apply([]*spec.Group{cfg})
	if got := describe(next); len(got) != 1 || !strings.HasPrefix(got[0], "g/m0") {
		t.Errorf("%q", got)
	}
}
