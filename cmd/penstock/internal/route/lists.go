package route

import (
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/lists"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Lists of networks change while the table is used. So clients are looked for in them one by one, after the index of prefixes.

// addLists adds the lists of a route.
func (t *Table) addLists(i int32, r *spec.Route, all *lists.Table) {
	of := all.Of(r.From)
	if len(of) == 0 {
		return
	}
	if t.lists == nil {
		t.lists = map[int32][]*lists.List{}
	}
	if t.lists[i] = of; len(r.SNI)+len(r.Hosts) == 0 {
		t.byList = append(t.byList, i)
	}
}

// inLists returns the first list of a route that contains the client; nil: none.
func (t *Table) inLists(i int32, c *client) *lists.List {
	if t.lists == nil || !c.address.IsValid() {
		return nil
	}
	for _, l := range t.lists[i] {
		if l.Set().Contains(c.address) {
			return l
		}
	}
	return nil
}

// countHit counts a client whose route was chosen by a list.
func (t *Table) countHit(i int32, c *client) {
	if t.lists == nil || t.lists[i] == nil {
		return
	}
	if _, ok := slices.BinarySearch(c.all, i); !ok {
		if l := t.inLists(i, c); l != nil {
			l.Contains(c.address)
		}
	}
}
