package lists

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// What was saved of a list is what it begins with, unless it is that of another place, damaged, or the list was loaded.
func TestSaved(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var entries []Entry
	for i := range 500 {
		a := draw(r)
		p, _ := a.Prefix(16 + r.IntN(a.BitLen()-15))
		entries = append(entries, Entry{p.Masked(), uint32(i)})
	}
	entries = append(entries, Entry{netip.MustParsePrefix("192.0.2.0/24"), 7}, Entry{netip.MustParsePrefix("2001:db8::/32"), 8})
	if !NewSet(nil).Equal(&Set{}) {
		t.Error("two empty sets differ")
	}
	set := NewSet(entries)
	loaded := time.Unix(1.7e9, 0)
	l := newList(spec.List{Name: "a", URL: "http://a.test/x"}, new(atomic.Int64))
	text := l.Saved(set, loaded)
	if err := l.Restore(text); err != nil {
		t.Fatal(err)
	}
	if s := l.Status(); !l.Set().Equal(set) || !s.Loaded.Equal(loaded) || !s.Saved {
		t.Errorf("%d networks, %+v", l.Set().Len(), s)
	}
	if err := l.Restore(l.Saved(&Set{}, loaded)); err != nil || l.Set().Len() != set.Len() {
		t.Errorf("%v, %d networks of a list that has some", err, l.Set().Len())
	}
	for what, c := range map[string]struct {
		spec spec.List
		text string
		want string
	}{
		"another place":  {spec.List{URL: "http://b.test/x"}, string(text), "that of another place"},
		"another format": {l.Spec, strings.Replace(string(text), "list 1", "list 2", 1), "no saved list"},
		"half of it":     {l.Spec, string(text[:len(text)-3]), "checksum"},
		"nothing":        {l.Spec, "", "not whole"},
		"a changed line": {l.Spec, strings.TrimSuffix(string(text), "\n") + "0\n", "checksum"},
	} {
		other := newList(c.spec, new(atomic.Int64))
		if err := other.Restore([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) || other.Set().Len() > 0 {
			t.Errorf("%s: %v, %d networks", what, err, other.Set().Len())
		}
	}
}

// A list is saved when it is another one, at most once a minute; what could not be written is written later, and a list that is from
// another place since a reload is written although it has the same networks.
func TestSaveAgain(t *testing.T) {
	hits := new(atomic.Int64)
	spec1 := spec.List{Name: "a", URL: "http://a.test/x"}
	table := NewTable([]*spec.List{&spec1}, nil, nil)
	l := table.Named("a")
	now := time.Unix(1.7e9, 0)
	load := func(l *List, networks ...string) {
		var list []Entry
		for _, n := range networks {
			list = append(list, Entry{netip.MustParsePrefix(n), 0})
		}
		l.set.Store(NewSet(list))
		l.status.Loaded, l.status.Saved = now, false
	}
	var disk error
	var text []byte
	save := func(l *List, after time.Duration, final bool) (wrote bool, err error) {
		now = now.Add(after)
		err = l.Save(now, final, func(b []byte) error { text, wrote = b, true; return disk })
		return wrote, err
	}
	for _, c := range []struct {
		what       string
		do         func()
		after      time.Duration
		final      bool
		wrote, err bool
	}{
		{what: "not loaded", final: true},
		{what: "loaded", do: func() { load(l, "192.0.2.0/24") }, wrote: true},
		{what: "the same", do: func() { load(l, "192.0.2.0/24") }, after: saveChangedEvery},
		{what: "the same at the end", final: true},
		{what: "another, soon", do: func() { load(l, "192.0.2.0/24", "198.51.100.0/24") }, after: saveChangedEvery / 2, wrote: true},
		{what: "another one, too soon", do: func() { load(l, "198.51.100.0/24") }, after: saveChangedEvery / 2},
		{what: "another one, a minute later", after: saveChangedEvery, wrote: true},
		{what: "another one, at the end", do: func() { load(l, "192.0.2.0/24") }, final: true, wrote: true},
		{what: "nothing for an hour", after: saveSameEvery, wrote: true},
		{what: "the disk is full", do: func() { load(l, "203.0.113.0/24"); disk = errors.New("full") }, after: saveChangedEvery, wrote: true, err: true},
		{what: "at once again", after: time.Second},
		{what: "still full", after: saveChangedEvery, wrote: true},
		{what: "no longer full, at the end", do: func() { disk = nil }, final: true, wrote: true},
		{what: "full again", do: func() { load(l, "192.0.2.0/24"); disk = errors.New("full") }, after: saveChangedEvery, wrote: true, err: true},
		{what: "no longer full", do: func() { disk = nil }, after: saveChangedEvery, wrote: true},
		{what: "and that is all", after: saveChangedEvery, final: true},
	} {
		if c.do != nil {
			c.do()
		}
		if wrote, err := save(l, c.after, c.final); wrote != c.wrote || (err != nil) != c.err {
			t.Errorf("%s: written: %v, %v", c.what, wrote, err)
		}
	}
	spec2 := spec1
	spec2.URL = "https://b.test/x"
	moved := NewTable([]*spec.List{&spec2}, table, nil).Named("a")
	load(moved, "192.0.2.0/24")
	if wrote, err := save(moved, time.Second, false); !wrote || err != nil {
		t.Errorf("from another place: written: %v, %v", wrote, err)
	}
	if err := newList(spec2, hits).Restore(text); err != nil {
		t.Error(err)
	}
}

// FuzzSaved: whatever is on the disk, and what is read is written in the same way.
func FuzzSaved(f *testing.F) {
	l := newList(spec.List{URL: "http://a.test/x"}, new(atomic.Int64))
	f.Add([]byte("192.0.2.0/24 1\n2001:db8::/32 2\n"), false)
	f.Add(l.Saved(&Set{}, time.Unix(1, 0)), true)
	f.Add([]byte("10.0.0.0/8 4294967295\n10.1.0.0/16 2\n"), false)
	f.Fuzz(func(t *testing.T, text []byte, whole bool) {
		if !whole { // behind a good head: nobody guesses a checksum
			set, _, err := Parse(text)
			if err != nil {
				return
			}
			text = l.Saved(set, time.Unix(1, 0))
		}
		set, loaded, origin, err := parseSaved(text)
		if err != nil {
			if !whole {
				t.Errorf("%v", err)
			}
			return
		}
		if origin != l.origin() {
			return
		}
		again, at, _, err := parseSaved(l.Saved(set, loaded))
		if err != nil || !again.Equal(set) || !at.Equal(loaded) {
			t.Errorf("%v: %d networks of %d, %v", err, again.Len(), set.Len(), at)
		}
	})
}
