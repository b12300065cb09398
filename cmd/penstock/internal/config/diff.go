package config

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Kinds of change to a part of the configuration.
const (
	New     = "new"
	Gone    = "gone"
	Changed = "changed"
)

// Diff is the difference between two configurations. It leaves out parts that are the same.
// Values are written as in the file.
type Diff struct {
	Restart   []Change       `json:"restart,omitempty"`  // take effect on the next start
	Settings  []Change       `json:"settings,omitempty"` // of the daemon as a whole
	Listeners []ListenerDiff `json:"listeners,omitempty"`
	Groups    []GroupDiff    `json:"groups,omitempty"`

	// lost holds what the new configuration takes from open flows: listeners, routes, groups
	// and members. Fields that do not matter are empty. The value is true where the flow
	// loses the socket to its client, which datagram flows share.
	lost map[flowPlace]bool
}

// Change is a key whose value differs.
type Change struct {
	Key string `json:"key"` // such as timeouts.idle
	Old string `json:"old"`
	New string `json:"new"`
}

// ListenerDiff is the change of a listener.
type ListenerDiff struct {
	Name    string      `json:"name"`
	What    string      `json:"what"`    // New, Gone, Changed
	Rebinds bool        `json:"rebinds"` // it is bound anew: its address or a socket option differs
	Changes []Change    `json:"changes,omitempty"`
	Routes  []RouteDiff `json:"routes,omitempty"`
}

// RouteDiff is the change of a route. The listener's own to is the route named default.
type RouteDiff struct {
	Name    string   `json:"name"`
	What    string   `json:"what"`
	Live    string   `json:"live-flows,omitempty"` // if it is gone: keep, drain or close
	Changes []Change `json:"changes,omitempty"`
}

// GroupDiff is the change of a group.
type GroupDiff struct {
	Name    string       `json:"name"`
	What    string       `json:"what"`
	Changes []Change     `json:"changes,omitempty"`
	Members []MemberDiff `json:"members,omitempty"`
}

// MemberDiff is the change of a member that the file lists. Discovered members are not known
// here.
type MemberDiff struct {
	Name    string   `json:"name"`
	What    string   `json:"what"`
	Changes []Change `json:"changes,omitempty"`
}

type flowPlace struct{ listener, route, group, member string }

// Compare returns the difference between two configurations.
func Compare(old, new *spec.Config) Diff {
	d := Diff{lost: map[flowPlace]bool{}}
	engineKeys.changes("engine.", &old.Engine, &new.Engine, &d.Restart)
	fileKeys.changes("", fileOf(old), fileOf(new), &d.Settings)
	d.Settings = slices.DeleteFunc(d.Settings, func(c Change) bool { return slices.Contains(d.Restart, c) })
	if old.Admin.Token != new.Admin.Token {
		d.Settings = append(d.Settings, Change{"admin.token-file", "one token", "another"})
	}
	if old.Admin.ReadToken != new.Admin.ReadToken {
		d.Settings = append(d.Settings, Change{"admin.read-token-file", "one token", "another"})
	}
	pairs(old.Lists, new.Lists, func(l *spec.List) string { return l.Name }, func(a, b *spec.List) {
		var none spec.List
		if a == nil {
			a = &none
		}
		if b == nil {
			b = &none
		}
		listKeys.changes("lists."+cmp.Or(a.Name, b.Name)+".", a, b, &d.Settings)
	})
	pairs(old.Listeners, new.Listeners, func(l *spec.Listener) string { return l.Name }, func(a, b *spec.Listener) {
		if l := d.listener(a, b); l.What != "" {
			d.Listeners = append(d.Listeners, l)
		}
	})
	pairs(old.Groups, new.Groups, func(g *spec.Group) string { return g.Name }, func(a, b *spec.Group) {
		if g := d.group(a, b); g.What != "" {
			d.Groups = append(d.Groups, g)
		}
	})
	return d
}

// Empty reports whether nothing changes.
func (d Diff) Empty() bool {
	return len(d.Restart)+len(d.Settings)+len(d.Listeners)+len(d.Groups) == 0
}

// Loses reports whether an open flow loses its listener, route, group or member, and whether it
// must then end whatever its route says about such flows. The names are those of the old
// configuration. Loses takes constant time.
func (d Diff) Loses(listener, route, group, member string) (loses, ends bool) {
	for _, p := range [...]flowPlace{{listener: listener}, {listener: listener, route: route}, {listener: listener, route: route, group: group}, {group: group}, {group: group, member: member}} {
		if must, lost := d.lost[p]; lost {
			loses, ends = true, ends || must
		}
	}
	return loses, ends
}

// pairs calls f with the items of equal name in both lists, first in the order of the new list,
// then of the old one. An item that only one list has is paired with nil.
func pairs[T any](old, new []*T, name func(*T) string, f func(a, b *T)) {
	before := make(map[string]*T, len(old))
	for _, a := range old {
		before[name(a)] = a
	}
	for _, b := range new {
		f(before[name(b)], b)
		delete(before, name(b))
	}
	for _, a := range old {
		if before[name(a)] != nil {
			f(a, nil)
		}
	}
}

// classifyChange returns the kind of a change, or "" if there is none.
func classifyChange(isNew, isGone, changed bool) string {
	switch {
	case isNew:
		return New
	case isGone:
		return Gone
	case changed:
		return Changed
	}
	return ""
}

func (d *Diff) listener(a, b *spec.Listener) ListenerDiff {
	l := ListenerDiff{}
	switch {
	case a == nil:
		l.Name, l.What, l.Rebinds = b.Name, New, true
		return l
	case b == nil:
		l.Name, l.What = a.Name, Gone
		d.lost[flowPlace{listener: a.Name}] = a.Datagrams
		return l
	}
	l.Name = a.Name
	listenerKeys.changes("", &listener{Listener: *a}, &listener{Listener: *b}, &l.Changes)
	l.Rebinds = a.Listen != b.Listen || a.Inherit != b.Inherit || a.Datagrams != b.Datagrams ||
		a.Transparent != b.Transparent || a.Interface != b.Interface
	if l.Rebinds && a.Datagrams {
		d.lost[flowPlace{listener: a.Name}] = true
	}
	pairs(routesOf(a), routesOf(b), func(r *spec.Route) string { return r.Name }, func(x, y *spec.Route) {
		r := RouteDiff{}
		switch {
		case x == nil:
			r.Name = y.Name
		case y == nil:
			r.Name, r.Live = x.Name, x.Removed.What
			d.lost[flowPlace{listener: a.Name, route: x.Name}] = false
		default:
			for g := range x.Groups() {
				if !y.LeadsTo(g.Name) {
					d.lost[flowPlace{listener: a.Name, route: x.Name, group: g.Name}] = false
				}
			}
			r.Name = x.Name
			routeKeys.changes("", x, y, &r.Changes)
			// A value that the route inherits is reported once, for the listener.
			r.Changes = slices.DeleteFunc(r.Changes, func(c Change) bool {
				return slices.Contains(l.Changes, c) || slices.Contains(l.Changes, Change{"limits." + c.Key, c.Old, c.New})
			})
		}
		if r.What = classifyChange(x == nil, y == nil, len(r.Changes) > 0); r.What != "" {
			l.Routes = append(l.Routes, r)
		}
	})
	if was, is := order(a, b), order(b, a); !slices.Equal(was, is) {
		i := 0
		for was[i] == is[i] {
			i++
		}
		l.Changes = append(l.Changes, Change{"order of routes", was[i] + " is number " + strconv.Itoa(i+1), is[i] + " is"})
	}
	l.What = classifyChange(false, false, l.Rebinds || len(l.Changes)+len(l.Routes) > 0)
	return l
}

// routesOf returns the routes of a listener, its default included.
func routesOf(l *spec.Listener) []*spec.Route {
	if l.Default == nil {
		return l.Routes
	}
	return append(slices.Clone(l.Routes), l.Default)
}

// order returns the names of the routes of l that other has too.
func order(l, other *spec.Listener) (names []string) {
	has := make(map[string]bool, len(other.Routes))
	for _, r := range other.Routes {
		has[r.Name] = true
	}
	for _, r := range l.Routes {
		if has[r.Name] {
			names = append(names, r.Name)
		}
	}
	return names
}

func (d *Diff) group(a, b *spec.Group) GroupDiff {
	g := GroupDiff{}
	switch {
	case a == nil:
		g.Name, g.What = b.Name, New
		return g
	case b == nil:
		g.Name, g.What = a.Name, Gone
		d.lost[flowPlace{group: a.Name}] = false
		return g
	}
	g.Name = a.Name
	groupKeys.changes("", a, b, &g.Changes)
	pairs(members(a), members(b), func(m *spec.Member) string { return m.Name }, func(x, y *spec.Member) {
		m := MemberDiff{}
		switch {
		case x == nil:
			m.Name = y.Name
		case y == nil:
			m.Name = x.Name
		default:
			m.Name = x.Name
			memberKeys.changes("", x, y, &m.Changes)
		}
		if m.What = classifyChange(x == nil, y == nil, len(m.Changes) > 0); m.What != "" {
			g.Members = append(g.Members, m)
		}
		if x != nil && (y == nil || x.To != y.To) {
			d.lost[flowPlace{group: a.Name, member: x.Name}] = false
		}
	})
	g.What = classifyChange(false, false, len(g.Changes)+len(g.Members) > 0)
	return g
}

func members(g *spec.Group) []*spec.Member {
	list := make([]*spec.Member, len(g.Members))
	for i := range g.Members {
		list[i] = &g.Members[i]
	}
	return list
}
