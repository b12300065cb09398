package lists

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaissmai/bart"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A List is one list of the configuration. It has no networks before it was loaded for the first time.
type List struct {
	Spec spec.List
	set  atomic.Pointer[Set]
	hits *atomic.Int64

	loading sync.Mutex // held while it is loaded, which may take long
	seen    stamp      // of the file that was loaded last
	bad     error      // why seen could not be loaded
	next    time.Time  // when to load it again
	crowd   decisions  // of crowdsec

	mu     sync.Mutex // held for moments
	status Status     // written with both locks held

	saving   sync.Mutex // held while it is saved
	lastSave lastSave
}

// Status is how a list is.
type Status struct {
	Loaded   time.Time // zero: never
	Saved    bool      // what was loaded is from the disk, of an earlier service
	Report   Report    // of what was loaded
	Err      error     // of the last attempt; nil: it was loaded
	Since    time.Time // since when it fails
	Failures int64
}

// Status returns how the list is.
func (l *List) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Set returns the networks as they are now.
func (l *List) Set() *Set { return l.set.Load() }

// Hits returns how many clients were looked up and found.
func (l *List) Hits() int64 { return l.hits.Load() }

// Contains reports whether the list contains an address, and counts it if it does.
func (l *List) Contains(a netip.Addr) bool {
	if !l.set.Load().Contains(a) {
		return false
	}
	l.hits.Add(1)
	return true
}

func newList(s spec.List, hits *atomic.Int64) *List {
	l := &List{Spec: s, hits: hits}
	l.set.Store(&Set{})
	return l
}

// GoOn makes the content of another list, which is of the same file, that of a list that was never loaded.
func (l *List) GoOn(o *List) {
	if o == nil || l.Spec != o.Spec {
		return
	}
	o.loading.Lock()
	defer o.loading.Unlock()
	l.loading.Lock()
	defer l.loading.Unlock()
	at := o.Status()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !at.Loaded.IsZero() && l.status.Loaded.IsZero() {
		l.set.Store(o.Set())
		l.seen, l.status = o.seen, at
	}
}

// A Table is the lists of a configuration, by name. A nil *Table has none.
type Table struct {
	lists map[string]*List
	Bans  *Bans // nil: none
}

// NewTable returns the lists of a configuration. A list that old has and that is the same goes on as it is. hits returns where the hits of
// a list are counted; nil: they begin at 0.
func NewTable(all []*spec.List, old *Table, hits func(name string) *atomic.Int64) *Table {
	t := &Table{lists: map[string]*List{}}
	for _, s := range all {
		was := old.Named(s.Name)
		switch {
		case was != nil && was.Spec == *s:
			t.lists[s.Name] = was
		case was != nil:
			t.lists[s.Name] = newList(*s, was.hits)
		case hits != nil:
			t.lists[s.Name] = newList(*s, hits(s.Name))
		default:
			t.lists[s.Name] = newList(*s, new(atomic.Int64))
		}
	}
	return t
}

// Named returns the list with a name; nil: there is none.
func (t *Table) Named(name string) *List {
	if t == nil {
		return nil
	}
	return t.lists[name]
}

// Of returns the lists that are named among networks.
func (t *Table) Of(networks []spec.Network) (all []*List) {
	for _, n := range networks {
		if l := t.Named(n.List); l != nil {
			all = append(all, l)
		}
	}
	return all
}

// Networks is what a key of the configuration contains: networks, and lists of them. A nil *Networks is for a key without any.
type Networks struct {
	fixed interface{ Contains(netip.Addr) bool } // a bart.Lite, which every package that knows of Networks would compile, if this said so; nil: none
	lists []*List
}

// NewNetworks returns the networks of a key.
func NewNetworks(all []spec.Network, t *Table) *Networks {
	if len(all) == 0 {
		return nil
	}
	n, fixed := &Networks{lists: t.Of(all)}, new(bart.Lite)
	for _, p := range all {
		if p.List == "" {
			fixed.Insert(spec.CanonicalPrefix(p.Prefix))
			n.fixed = fixed
		}
	}
	return n
}

// Contains reports whether an address, which is canonical, is in one of the networks, or of the lists, which then count it.
func (n *Networks) Contains(a netip.Addr) bool {
	if n.fixed != nil && n.fixed.Contains(a) {
		return true
	}
	for _, l := range n.lists {
		if l.Contains(a) {
			return true
		}
	}
	return false
}

// Find returns what among networks contains an address, for people: a network, or the entry of a list; false: nothing does.
func (t *Table) Find(all []spec.Network, a netip.Addr) (string, bool) {
	a = spec.CanonicalAddr(a)
	for _, n := range all {
		if n.List == "" {
			if spec.CanonicalPrefix(n.Prefix).Contains(a) {
				return n.String(), true
			}
		} else if l := t.Named(n.List); l != nil {
			if e, ok := l.Set().Lookup(a); ok {
				return n.String() + " (" + l.Describe(e) + ")", true
			}
		}
	}
	return "", false
}

// Describe says which entry of the list a network is.
func (l *List) Describe(e Entry) string {
	switch {
	case l.Spec.File != "":
		return fmt.Sprintf("%v, line %d of %s", e.Network, e.Line, l.Spec.File)
	case l.Spec.URL != "":
		return fmt.Sprintf("%v, line %d of %s", e.Network, e.Line, l.Spec.URL)
	case l.Spec.Etcd != "":
		return fmt.Sprintf("%v of etcd %s", e.Network, l.Spec.Etcd)
	}
	return fmt.Sprintf("%v, a decision of CrowdSec", e.Network)
}

// Banned returns the bans; nil: there are none.
func (t *Table) Banned() *Bans {
	if t == nil {
		return nil
	}
	return t.Bans
}
