package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Report is what a relay says of itself, at KEY/nodes/ID.
type Report struct {
	Node     string    `json:"node"`
	Zone     string    `json:"zone,omitempty"`
	Version  int64     `json:"version,omitempty"` // of the running configuration in etcd; 0: it is from elsewhere
	Hash     string    `json:"hash"`              // of the running configuration
	Refused  *Refused  `json:"refused,omitempty"` // the last configuration, if the relay did not take it
	Penstock string    `json:"penstock"`          // version of the program
	Since    time.Time `json:"since"`             // start of the service
	Crashes  int64     `json:"crashes,omitempty"` // of workers since then, after each of which a keeper has started another one
	At       time.Time `json:"at"`                // when this report was written
	State    string    `json:"state"`             // one of States

	Flows           int64 `json:"flows"` // open now
	Begun           int64 `json:"flows_total"`
	Refusals        int64 `json:"refusals_total"`
	Failed          int64 `json:"failed_total"` // flows that ended because the relay could not do its job
	ConnectFailures int64 `json:"connect_failures_total"`
	BytesUp         int64 `json:"bytes_up"`
	BytesDown       int64 `json:"bytes_down"`

	Served    *Served             `json:"served,omitempty"`    // by all listeners; nil: by a version of the program that does not count it
	Listeners map[string]Listener `json:"listeners,omitempty"` // of the running configuration, at most maxListeners
	Unlisted  int                 `json:"unlisted,omitempty"`  // how many there are besides

	Groups      map[string]Group `json:"groups,omitempty"`      // at most maxGroups
	OtherGroups Group            `json:"other_groups,omitzero"` // all others together, without names
	Host        Host             `json:"host"`
	Sources     []Source         `json:"sources,omitempty"` // of members, at most maxSources
}

// States are the values of Report.State: as for a daemon, and drained, when it was asked to take no new flows.
var States = []string{"starting", "ready", "draining", "drained"}

// Refused is a configuration that a relay did not take.
type Refused struct {
	Version int64     `json:"version,omitempty"`
	Error   string    `json:"error"`
	At      time.Time `json:"at"`
}

// Group counts the members of a group.
type Group struct {
	Up   int      `json:"up"` // members that take new flows
	All  int      `json:"all"`
	Down []string `json:"down,omitempty"` // names of some that do not, at most maxDown
}

func (g *Group) add(other Group) {
	g.Up += other.Up
	g.All += other.All
}

// missing returns how many members take no new flows. A group without members misses one.
func (g Group) missing() int {
	if g.All == 0 {
		return 1
	}
	return g.All - g.Up
}

// Members returns how many members of all groups take new flows, and how many there are.
func (r *Report) Members() (up, all int) {
	sum := r.OtherGroups
	for _, g := range r.Groups {
		sum.add(g)
	}
	return sum.Up, sum.All
}

// Host is the health of a relay's host and process.
type Host struct {
	Name   string  `json:"name"`
	CPU    float64 `json:"cpu"`     // seconds of the process, since its start
	Load   float64 `json:"load"`    // of one minute
	CPUs   int     `json:"cpus"`    // that the process may use
	Memory int64   `json:"memory"`  // bytes that the process has in memory
	Free   int64   `json:"free"`    // bytes of memory that the host has for more
	FDs    int64   `json:"fds"`     // open descriptors of the process
	MaxFDs int64   `json:"max_fds"` // 0: unknown
}

// Source is a source of members.
type Source struct {
	Name  string  `json:"name"`
	Age   float64 `json:"age"` // seconds since its last good answer
	Error string  `json:"error,omitempty"`
}

// The bounds of a report.
const (
	maxReport  = 128 << 10
	maxGroups  = 200
	maxDown    = 5
	maxSources = 50
	maxText    = 500
)

// Bound shortens what is too long for a report. It changes nothing that r refers to.
func (r *Report) Bound() {
	if r.Refused != nil {
		refused := *r.Refused
		refused.Error = shorten(refused.Error)
		r.Refused = &refused
	}
	r.Sources = slices.Clone(r.Sources[:min(len(r.Sources), maxSources)])
	for i := range r.Sources {
		r.Sources[i].Name, r.Sources[i].Error = shorten(r.Sources[i].Name), shorten(r.Sources[i].Error)
	}
	if len(r.Groups) > maxGroups { // those with members down, or without any, come first
		names := make([]string, 0, len(r.Groups))
		for name := range r.Groups {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int {
			return cmp.Or(cmp.Compare(r.Groups[b].missing(), r.Groups[a].missing()), compare(a, b))
		})
		groups := make(map[string]Group, maxGroups)
		for _, name := range names[:maxGroups] {
			groups[name] = r.Groups[name]
		}
		for _, name := range names[maxGroups:] {
			r.OtherGroups.add(r.Groups[name])
		}
		r.Groups = groups
	}
	if n := len(r.Listeners) - maxListeners; n > 0 {
		names := slices.Sorted(maps.Keys(r.Listeners))
		r.Listeners = maps.Clone(r.Listeners)
		for _, name := range names[maxListeners:] {
			delete(r.Listeners, name)
		}
		r.Unlisted += n
	}
	r.Groups = maps.Clone(r.Groups)
	for name, g := range r.Groups {
		g.Down = slices.Clone(g.Down[:min(len(g.Down), maxDown)])
		for i := range g.Down {
			g.Down[i] = shorten(g.Down[i])
		}
		r.Groups[name] = g
	}
}

// text returns a report as it is written. If it is larger than others read, it says less.
func (r *Report) text() []byte {
	short := *r
	for _, less := range []func(){
		func() {},
		func() {
			short.Groups = maps.Clone(r.Groups)
			for name, g := range short.Groups {
				g.Down = nil
				short.Groups[name] = g
			}
		},
		func() { short.Sources = nil },
		func() {
			short.Groups, short.OtherGroups.Down = nil, nil
			short.OtherGroups.Up, short.OtherGroups.All = r.Members()
		},
		func() { short.Listeners, short.Unlisted = nil, r.Unlisted+len(r.Listeners) },
	} {
		less()
		text, err := json.Marshal(&short)
		if err != nil { // strings and numbers
			panic(err)
		}
		if len(text) <= maxReport {
			return text
		}
	}
	return []byte("{}") // it has nothing else that is long
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func shorten(s string) string {
	if len(s) <= maxText {
		return s
	}
	return s[:maxText-3] + "..."
}

// equal reports whether two reports say the same of what matters at once: not the numbers, which change
// all the time.
func (r *Report) equal(other *Report) bool {
	a, b := *r, *other
	for _, p := range []*Report{&a, &b} {
		p.At, p.Flows, p.Begun, p.Refusals, p.Failed, p.ConnectFailures, p.BytesUp, p.BytesDown = time.Time{}, 0, 0, 0, 0, 0, 0, 0
		p.Host, p.Served, p.Listeners = Host{}, nil, nil
		p.Sources = slices.Clone(p.Sources)
		for i := range p.Sources {
			p.Sources[i].Age = 0
			if p.Sources[i].Error != "" {
				p.Sources[i].Error = "failed" // its text may have times in it
			}
		}
	}
	return reflect.DeepEqual(a, b)
}

// ParseReport reads a report. What a relay says is not trusted: it is bounded, and for a terminal everything
// in it must still be made printable.
func ParseReport(text []byte) (Report, error) {
	var r Report
	if len(text) > maxReport {
		return r, fmt.Errorf("a report of %d bytes; allowed: %d", len(text), maxReport)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return Report{}, err
	}
	if !spec.ValidNode(r.Node) || r.Zone != "" && !spec.ValidNode(r.Zone) {
		return Report{}, fmt.Errorf("a report of the node %q in the zone %q", r.Node, r.Zone)
	}
	if g := r.OtherGroups; g.Up < 0 || g.All < g.Up || len(g.Down) > 0 {
		return Report{}, fmt.Errorf("other groups of %d members, %d of them up", g.All, g.Up)
	}
	for name, g := range r.Groups {
		if g.Up < 0 || g.All < g.Up {
			return Report{}, fmt.Errorf("a group %q of %d members, %d of them up", name, g.All, g.Up)
		}
	}
	for name, l := range r.Listeners {
		if err := l.check(); err != nil {
			return Report{}, fmt.Errorf("listener %q: %w", name, err)
		}
	}
	if r.Served != nil {
		if err := r.Served.check(); err != nil {
			return Report{}, err
		}
	}
	for _, n := range []int64{r.Version, r.Crashes, int64(r.Unlisted), r.Flows, r.Begun, r.Refusals, r.Failed, r.ConnectFailures, r.BytesUp, r.BytesDown, r.Host.Memory, r.Host.Free, r.Host.FDs, r.Host.MaxFDs} {
		if n < 0 {
			return Report{}, fmt.Errorf("a number below 0: %d", n)
		}
	}
	r.Bound()
	return r, nil
}
