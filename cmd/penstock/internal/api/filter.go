package api

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/datapath"
)

// Filter selects flows. All conditions that are set must hold; the zero value matches every
// flow.
type Filter struct {
	Source   netip.Prefix // the address of the client is in this network
	Listener string
	Route    string
	Group    string
	Member   string
	State    string // one of FlowStates
	Kind     string // stream or datagram
	Path     string // of either direction: none, copy, splice, gso
	MinAge   time.Duration
	MaxAge   time.Duration
	MinIdle  time.Duration
	MinBytes int64 // both directions together
}

// The bounds of a listing.
const (
	DefaultSorted = 100    // the limit of a sorted listing that has none
	MaxLimit      = 10_000 // of Page.Limit
	MaxWindow     = 10 * time.Second
	DefaultWindow = time.Second
)

// Sorts are the values of Page.Sort.
var Sorts = []string{"bytes", "age", "rate"}

// Page selects the part and the order of a listing.
type Page struct {
	// Sort is the sort key, greatest first; empty for none.
	Sort string
	// Limit is the maximum number of flows. Without a limit and a sort key the listing has
	// all flows, in no order. With a limit and no sort key it is in the order of ids.
	Limit int
	// Cursor is Flows.Next of the previous page.
	Cursor uint64
	// Window is the time over which rates are measured; 0 means DefaultWindow.
	Window time.Duration
}

// Empty reports whether the filter matches every flow.
func (f *Filter) Empty() bool { return *f == Filter{} }

// Match reports whether the filter matches a flow.
func (f *Filter) Match(flow *Flow) bool {
	return matchesName(f.Listener, flow.Listener) && matchesName(f.Route, flow.Route) && matchesName(f.Group, flow.Group) && matchesName(f.Member, flow.Member) &&
		matchesName(f.State, flow.State) && matchesName(f.Kind, flow.Kind) &&
		(f.Path == "" || f.Path == flow.Up.Path || f.Path == flow.Down.Path) &&
		(f.MinAge == 0 || flow.Age >= f.MinAge.Seconds()) && (f.MaxAge == 0 || flow.Age <= f.MaxAge.Seconds()) &&
		(f.MinIdle == 0 || flow.Idle >= f.MinIdle.Seconds()) &&
		flow.Bytes() >= f.MinBytes &&
		(!f.Source.IsValid() || f.Source.Contains(flow.Client.AddrPort.Addr().Unmap()))
}

// matchesName reports whether a flow has the name that is wanted; empty: any.
func matchesName(want, got string) bool { return want == "" || want == got }

// words returns the conditions that are text, in the order of the documentation.
func (f *Filter) words() []word {
	return []word{
		{"listener", &f.Listener, nil}, {"route", &f.Route, nil}, {"group", &f.Group, nil}, {"member", &f.Member, nil},
		{"state", &f.State, FlowStates}, {"kind", &f.Kind, []string{"stream", "datagram"}},
		{"path", &f.Path, paths()},
	}
}

type word struct {
	name    string
	value   *string
	allowed []string // nil for any
}

func (f *Filter) times() []span {
	return []span{{"min_age", &f.MinAge}, {"max_age", &f.MaxAge}, {"min_idle", &f.MinIdle}}
}

type span struct {
	name  string
	value *time.Duration
}

// Query returns the filter as parameters of a request.
func (f *Filter) Query() url.Values {
	q := url.Values{}
	if f.Source.IsValid() {
		q.Set("source", f.Source.String())
	}
	for _, w := range f.words() {
		if *w.value != "" {
			q.Set(w.name, *w.value)
		}
	}
	for _, s := range f.times() {
		if *s.value != 0 {
			q.Set(s.name, s.value.String())
		}
	}
	if f.MinBytes != 0 {
		q.Set("min_bytes", strconv.FormatInt(f.MinBytes, 10))
	}
	return q
}

// ParseFilter parses parameters of a request, and deletes those that it knows from q.
func ParseFilter(q url.Values) (f Filter, err error) {
	if s := take(q, "source"); s != "" {
		if f.Source, err = parseSource(s); err != nil {
			return Filter{}, err
		}
	}
	for _, w := range f.words() {
		*w.value = take(q, w.name)
		if *w.value != "" && w.allowed != nil && !slices.Contains(w.allowed, *w.value) {
			return Filter{}, refuse(w.name, *w.value, strings.Join(w.allowed, ", "))
		}
	}
	for _, s := range f.times() {
		if *s.value, err = takeTime(q, s.name, 0); err != nil {
			return Filter{}, err
		}
	}
	if s := take(q, "min_bytes"); s != "" {
		if f.MinBytes, err = strconv.ParseInt(s, 10, 64); err != nil || f.MinBytes < 0 {
			return Filter{}, refuse("min_bytes", s, "a number of bytes")
		}
	}
	return f, nil
}

// Query adds the page to q, as parameters of a request.
func (p *Page) Query(q url.Values) {
	if p.Sort != "" {
		q.Set("sort", p.Sort)
	}
	if p.Limit != 0 {
		q.Set("limit", strconv.Itoa(p.Limit))
	}
	if p.Cursor != 0 {
		q.Set("cursor", strconv.FormatUint(p.Cursor, 10))
	}
	if p.Window != 0 {
		q.Set("window", p.Window.String())
	}
}

// ParsePage parses parameters of a request, and deletes those that it knows from q. It sets
// defaults.
func ParsePage(q url.Values) (p Page, err error) {
	if p.Sort = take(q, "sort"); p.Sort != "" && !slices.Contains(Sorts, p.Sort) {
		return Page{}, refuse("sort", p.Sort, strings.Join(Sorts, ", "))
	}
	if s := take(q, "limit"); s != "" {
		if p.Limit, err = strconv.Atoi(s); err != nil || p.Limit < 1 || p.Limit > MaxLimit {
			return Page{}, refuse("limit", s, fmt.Sprintf("1 to %d", MaxLimit))
		}
	}
	if s := take(q, "cursor"); s != "" {
		if p.Cursor, err = strconv.ParseUint(s, 10, 64); err != nil || p.Sort != "" || p.Limit == 0 {
			return Page{}, refuse("cursor", s, "next of the previous page, with a limit and without a sort")
		}
	}
	given := take(q, "window")
	if given != "" {
		q.Set("window", given)
		if p.Window, err = takeTime(q, "window", MaxWindow); err != nil {
			return Page{}, err
		}
		if p.Sort != "rate" {
			return Page{}, refuse("window", given, "only with sort=rate")
		}
	}
	if p.Sort == "rate" && p.Window == 0 {
		p.Window = DefaultWindow
	}
	if p.Sort != "" && p.Limit == 0 {
		p.Limit = DefaultSorted
	}
	return p, nil
}

// parseSource parses a prefix or an address.
func parseSource(s string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(s); err == nil {
		ip = ip.Unmap().WithZone("")
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, refuse("source", s, "an address, or a prefix such as 10.0.0.0/8")
	}
	return p.Masked(), nil
}

func take(q url.Values, name string) string {
	s := q.Get(name)
	q.Del(name)
	return s
}

// takeTime takes a duration, which is at most most if that is not 0.
func takeTime(q url.Values, name string, most time.Duration) (time.Duration, error) {
	s := take(q, name)
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || most != 0 && d > most {
		allowed := "a number with its unit such as 500ms, 30s, 5m or 1h"
		if most != 0 {
			allowed += ", at most " + most.String()
		}
		return 0, refuse(name, s, allowed)
	}
	return d, nil
}

// refuse returns the error for an invalid parameter.
func refuse(name, value, allowed string) error {
	return NewProblem(http.StatusBadRequest, name+": "+Quote(value), allowed)
}

// paths returns the names of the data paths.
func paths() (names []string) {
	for p := datapath.None; p.String() != "unknown"; p++ {
		names = append(names, p.String())
	}
	return names
}
