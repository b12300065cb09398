package upstream

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// The last good answers of registries survive the process, and those of DNS, which is asked anew, do
// not. A registry that is away leaves the members as they were, and the time of the answer.
func TestGoodAnswers(t *testing.T) {
	registry := spec.Discover{Registry: spec.Registry{Name: "main", Kind: "etcd", Servers: "http://a:1"}, Key: "/web"}
	cfg := &spec.Group{Balance: "random", Lookups: spec.Lookups{Keep: time.Hour, Vanish: 0.5}, Discover: []spec.Discover{registry}}
	s, _, tell := startSource(t, cfg, Options{})
	if s.AnswersRevision() != 0 || len(s.GoodAnswers()) != 0 {
		t.Error("answers before there were any")
	}
	want := found(1, 2, 3)
	want[0].Zone, want[1].Priority, want[2].Draining, want[2].Metadata, want[0].Backup, want[1].Name = "a", 3, true, `{"x":1}`, true, ""
	tell(want, nil)
	before := s.AnswersRevision()
	tell(slices.Clone(want), nil)
	tell(nil, errors.New("away"))
	if s.AnswersRevision() != before || before == 0 {
		t.Error("the revision changes without a change")
	}
	text, err := EncodeAnswers(s.GoodAnswers())
	if err != nil {
		t.Fatal(err)
	}
	at := s.Snapshot()[0].Lookups[0].GoodAt
	list, err := DecodeAnswers(text)
	if err != nil || len(list) != 1 || !slices.Equal(list[0].Targets, want) || !list[0].At.Equal(at) {
		t.Fatalf("%+v, %v", list, err)
	}

	again := *cfg
	again.Discover = []spec.Discover{registry}
	again.Discover[0].Registry.Name = "another"
	next, g, tell := startSource(t, &again, Options{LastGood: list})
	if g.Len() != 3 {
		t.Fatalf("%d members before an answer", g.Len())
	}
	l := next.Snapshot()[0].Lookups[0]
	if !l.GoodAt.Equal(at) || !l.At.IsZero() || l.Registry != "another" {
		t.Errorf("%+v", l)
	}
	if m := next.Snapshot()[0].Members[2]; m.State != Drained || !m.Draining || m.Metadata != `{"x":1}` {
		t.Errorf("%+v", m)
	}
	select {
	case <-next.watches[lookups(g.Config())[0]].answered:
		t.Error("it does not wait for an answer")
	default:
	}
	tell(nil, errors.New("away"))
	if err := next.Wait(t.Context()); err != nil || g.Len() != 3 {
		t.Errorf("%d members, %v", g.Len(), err)
	}
	tell(found(1), nil) // less than half: it may be a fault
	if g.Len() != 3 {
		t.Errorf("%d members", g.Len())
	}

	moved := *cfg
	moved.Discover = []spec.Discover{registry}
	moved.Discover[0].Registry.Servers, moved.Discover[0].Registry.CA = "http://b:1", "/ca"
	if _, g, _ := startSource(t, &moved, Options{LastGood: list}); g.Len() != 3 {
		t.Errorf("%d members of a registry whose servers have changed", g.Len())
	}
	other := *cfg
	other.Discover = []spec.Discover{registry}
	other.Discover[0].Key = "/other"
	if _, g, _ := startSource(t, &other, Options{LastGood: list}); g.Len() != 0 {
		t.Errorf("%d members of another lookup", g.Len())
	}
	dns := &spec.Group{Balance: "random"}
	s, _, tell = startSource(t, dns, Options{})
	tell(found(1), nil)
	if len(s.GoodAnswers()) != 0 {
		t.Error("answers of DNS are kept")
	}
}

// A text that is damaged, or of another version, says so, and nothing of it is used.
func TestDecodeAnswers(t *testing.T) {
	good, err := EncodeAnswers([]SavedLookup{{Query: "q", Targets: found(1)}})
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"empty": "", "half": string(good[:len(good)/2]), "version": strings.Replace(string(good), `"version":1`, `"version":2`, 1),
		"weight": strings.Replace(string(good), `"Weight":1`, `"Weight":1000`, 1), "address": strings.Replace(string(good), "192.0.0.1:80", "", 1),
		"text": "no JSON at all",
	} {
		if list, err := DecodeAnswers([]byte(text)); err == nil || list != nil {
			t.Errorf("%s: %+v, %v", what, list, err)
		}
	}
}

// FuzzDecodeAnswers: whatever is decoded can be used, and written again.
func FuzzDecodeAnswers(f *testing.F) {
	d := spec.Discover{Registry: spec.Registry{Kind: "etcd", Servers: "http://a:1"}, Key: "/web"}
	targets := found(1, 2)
	targets[0].Zone, targets[0].Metadata, targets[1].Draining = "z", "{}", true
	text, err := EncodeAnswers([]SavedLookup{{queryText(d), namedText(d), time.Unix(1, 0), targets}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":1,"lookups":[{"query":"x","targets":[{}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := DecodeAnswers(text)
		if err != nil {
			return
		}
		s := NewSet(Options{LastGood: list, Discoverer: func(spec.Discover) Discoverer { return fixed{} }, Zone: "z"})
		defer s.Close()
		s.Apply([]*spec.Group{{Name: "g", Balance: "maglev", Zone: spec.ZonePrefer, Discover: []spec.Discover{d}}})
		var l Lease
		s.Group("g").Pick(&l, Client{})
		l.Release()
		if _, err := EncodeAnswers(s.GoodAnswers()); err != nil {
			t.Error(err)
		}
	})
}

// What was written can be read, whatever one of the members is: else a start without registries would
// have no members at all.
func TestAnswersWithOddMembers(t *testing.T) {
	unix := Target{Weight: 1, Addr: relay.Addr{Network: relay.Unix, Path: "/run/web"}}
	d := spec.Discover{Registry: spec.Registry{Kind: "xds", Servers: "http://a:1"}, Key: "web"}
	cfg := &spec.Group{Balance: "random", Discover: []spec.Discover{d}}
	s, _, tell := startSource(t, cfg, Options{})
	ts := append(found(1, 2, 3, 4, 5), unix)
	ts[0].Name, ts[1].Zone, ts[2].Metadata, ts[3].Name = "a\ufffd", "z\n", strings.Repeat("x", MaxMetadata+1), strings.Repeat("n", maxSavedText+1)
	tell(ts, nil)
	text, err := EncodeAnswers(s.GoodAnswers())
	if err != nil {
		t.Fatal(err)
	}
	list, err := DecodeAnswers(text)
	if err != nil || len(list) != 1 || !slices.Equal(list[0].Targets, []Target{ts[4], unix}) {
		t.Errorf("%+v, %v", list, err)
	}
	next := NewSet(Options{Saved: throughJSON(t, s.Save()), Discoverer: func(spec.Discover) Discoverer { return make(scripted) }})
	defer next.Close()
	next.Apply([]*spec.Group{s.Group("g").Config()})
	if n := next.Group("g").Len(); n != 2 {
		t.Errorf("%d members after an upgrade", n)
	}
}

// An answer that is too large for the file does not keep others out.
func TestAnswersThatAreTooLarge(t *testing.T) {
	list := []SavedLookup{{Query: "a", Targets: found(1)}, {Query: "b", Targets: found(1, 2, 3, 4, 5, 6, 7, 8, 9)}, {Query: "c", Targets: found(2)}}
	text, err := encodeAnswers(list, 800)
	if err != nil || len(text) > 800 {
		t.Fatal(len(text), err)
	}
	got, err := DecodeAnswers(text)
	if err != nil || len(got) != 2 || got[0].Query != "a" || got[1].Query != "c" {
		t.Errorf("%+v, %v", got, err)
	}
}

// The members of a lookup from an earlier process are for the start: a group that comes by a reload
// much later begins without them.
func TestLastGoodIsForTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := spec.Discover{Registry: spec.Registry{Kind: "etcd", Servers: "http://a:1"}, Key: "/web"}
		cfg := &spec.Group{Name: "g", Balance: "random", Discover: []spec.Discover{d}}
		s := NewSet(Options{LastGood: []SavedLookup{{Query: queryText(d), Targets: found(1, 2)}}, Discoverer: func(spec.Discover) Discoverer { return make(scripted) }})
		defer s.Close()
		s.Apply([]*spec.Group{cfg})
		if n := s.Group("g").Len(); n != 2 {
			t.Errorf("%d members", n)
		}
		s.Apply(nil)
		time.Sleep(claimTime + time.Second)
		s.Apply([]*spec.Group{cfg})
		if n := s.Group("g").Len(); n != 0 {
			t.Errorf("%d members", n)
		}
	})
}

// A clock that was set back does not make answers younger than now.
func TestAnswersAreNotOfTheFuture(t *testing.T) {
	d := spec.Discover{Registry: spec.Registry{Kind: "etcd", Servers: "http://a:1"}, Key: "/web"}
	list := []SavedLookup{{Query: queryText(d), At: time.Now().Add(time.Hour), Targets: found(1)}}
	for _, opt := range []Options{{LastGood: list}, {Saved: &SavedSet{Lookups: list}}} {
		s, _, _ := startSource(t, &spec.Group{Balance: "random", Discover: []spec.Discover{d}}, opt)
		if at := s.Snapshot()[0].Lookups[0].GoodAt; at.IsZero() || at.After(time.Now()) {
			t.Error(at)
		}
	}
}
