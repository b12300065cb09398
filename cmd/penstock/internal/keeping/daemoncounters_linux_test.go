package keeping

import (
	"slices"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/keeper"
	"github.com/penstock/penstock/relay"
)

// otherLayouts are those of another version: it has words that this one does not have, before and between those that it
// shares, and some that this one has are missing.
func otherLayouts() []counts.Layout {
	var list []counts.Layout
	for _, l := range counterLayouts() {
		l.Words = slices.Concat([]string{"other.first"}, slices.DeleteFunc(slices.Clone(l.Words), func(w string) bool { return w == "retries" }), []string{"other.last"})
		list = append(list, l)
	}
	slices.Reverse(list)
	return list
}

// Counters go on from version to version, there and back again, whose layouts differ.
func TestCountersOfOtherLayout(t *testing.T) {
	var memory *keeper.Memory
	// open returns what openCounters returns to a worker of a version.
	open := func(layouts []counts.Layout) *counts.Memory {
		t.Helper()
		var m *counts.Memory
		if memory != nil {
			var err error
			if m, err = counts.Open(memory.Words()); err != nil {
				t.Fatal(err)
			}
			if m.Fits(layouts...) {
				return m
			}
		}
		next, m, err := newCounters(m, layouts)
		if err != nil {
			t.Fatal(err)
		}
		if memory != nil {
			memory.Close()
		}
		memory = next
		return m
	}
	key := account.Key{Listener: "l", Route: "r", Group: "g", Member: "m"}
	var want int64
	for i, other := range []bool{false, false, true, true, false, true, false, false} {
		n := int64(i + 1)
		want += n
		if other {
			m := open(otherLayouts())
			add := func(table, word string) {
				t.Helper()
				rows := m.Table(table).Rows()
				if len(rows) != 1 {
					t.Fatalf("%d: %d rows of %s", i, len(rows), table)
				}
				at := slices.IndexFunc(otherLayouts(), func(l counts.Layout) bool { return l.Name == table })
				rows[0].Words()[slices.Index(otherLayouts()[at].Words, word)].Add(n)
			}
			add("series", "begun")
			add("series", "ended.end")
			add("values", "value")
			add("lookups", "failures")
			continue
		}
		m := open(counterLayouts())
		c := account.OpenCounters(m.Table("series"))
		s := c.Series(key)
		for range n {
			s.Begin()
			s.End(&account.Entry{Record: relay.Record{Cause: relay.CauseEnd}})
		}
		p := c.Snapshot(nil, nil)
		if len(p) != 1 || p[0].Begun != want || p[0].Ended[relay.CauseEnd] != want {
			t.Errorf("%d: want %d: %+v", i, want, p)
		}
		v := saved.NewValues(m.Table("values"))
		if got := v.GoOn("value", n); got != want {
			t.Errorf("%d: a value of %d, want %d", i, got, want)
		}
		if got := m.Table("lookups").Take("name").Words()[0].Add(n); got != want {
			t.Errorf("%d: %d failures of lookups, want %d", i, got, want)
		}
	}
	memory.Close()
}
