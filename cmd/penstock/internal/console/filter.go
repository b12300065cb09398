package console

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Filter holds the flags that select open flows. A flow must match all that are given.
type Filter struct {
	EndedFilter
	State string        `placeholder:"STATE" enum:",sniffing,handshake,queued,connecting,relaying" default:"" help:"Flows that are sniffing, in a TLS handshake, queued, connecting or relaying."`
	Idle  time.Duration `placeholder:"TIME" help:"Flows that have moved no bytes for at least this long."`
}

// EndedFilter holds the flags that select ended flows too. A flow must match all that are given.
type EndedFilter struct {
	From     from          `placeholder:"CIDR" help:"Flows of clients in this network, or with this address."`
	Listener string        `placeholder:"NAME" help:"Flows of this listener."`
	Route    string        `placeholder:"NAME" help:"Flows of this route."`
	Group    string        `placeholder:"NAME" help:"Flows of this group."`
	Member   string        `placeholder:"NAME" help:"Flows of this member."`
	Kind     string        `placeholder:"KIND" enum:",stream,datagram" default:"" help:"Flows of this kind: stream or datagram."`
	Path     string        `placeholder:"PATH" enum:",none,copy,splice,gso" default:"" help:"Flows with this data path in either direction: none, copy, splice or gso."`
	Older    time.Duration `placeholder:"TIME" help:"Flows that are, or were when they ended, at least this old."`
	Younger  time.Duration `placeholder:"TIME" help:"Flows that are, or were when they ended, at most this old."`
	MinBytes size          `placeholder:"SIZE" help:"Flows that have moved at least this much, in both directions together: bytes, or a number with KiB, MiB, GiB or TiB."`
}

// api returns the filter of the API.
func (f *Filter) api() api.Filter {
	a := f.EndedFilter.api()
	a.State, a.MinIdle = f.State, f.Idle
	return a
}

// api returns the filter of the API.
func (f *EndedFilter) api() api.Filter {
	return api.Filter{Source: f.From.prefix, Listener: f.Listener, Route: f.Route, Group: f.Group, Member: f.Member,
		Kind: f.Kind, Path: f.Path, MinAge: f.Older, MaxAge: f.Younger, MinBytes: int64(f.MinBytes)}
}

// Validate checks what the types of the flags do not. Kong calls it.
func (f *Filter) Validate() error {
	if err := f.EndedFilter.Validate(); err != nil {
		return err
	}
	return notNegative("--idle", f.Idle)
}

// Validate checks what the types of the flags do not. Kong calls it.
func (f *EndedFilter) Validate() error {
	if err := notNegative("--older", f.Older); err != nil {
		return err
	}
	return notNegative("--younger", f.Younger)
}

func notNegative(flag string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%s: %v; allowed: 0 or more", flag, d)
	}
	return nil
}

// checkNames returns an error if the filter has a name that nothing has. It is for a filter that no flow matches: flows may
// outlive the listener, route, group or member that they have the name of.
func (f *EndedFilter) checkNames(ctx context.Context, client *api.Client) error {
	if f.Listener+f.Route+f.Group+f.Member == "" {
		return nil
	}
	all, err := call(ctx, client.Listeners)
	if err != nil {
		return err
	}
	used, err := call(ctx, client.Groups)
	if err != nil {
		return err
	}
	var listeners, routes, groups, members []string
	for _, l := range all.Listeners {
		listeners = append(listeners, l.Name)
		for _, r := range l.Routes {
			routes, groups = append(routes, r.Name), append(groups, r.Groups()...)
		}
	}
	for _, g := range used.Groups {
		groups = append(groups, g.Name)
		for _, m := range g.Members {
			members = append(members, m.Name)
		}
	}
	for _, n := range []struct {
		kind, name string
		known      []string
	}{{"listener", f.Listener, listeners}, {"route", f.Route, routes}, {"group", f.Group, groups}, {"member", f.Member, members}} {
		if n.name != "" && !slices.Contains(n.known, n.name) {
			return api.NotFound(n.kind, n.name, someOf(n.known))
		}
	}
	return nil
}

// someOf returns names in order, each once, and of many only the first ones.
func someOf(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if more := len(names) - maxNames; more > 0 {
		return strings.Join(names[:maxNames], ", ") + fmt.Sprintf(", and %d more", more)
	}
	return strings.Join(names, ", ")
}

// maxNames bounds how many names an error lists.
const maxNames = 20

// filterWords are the words that parseFilter accepts, with their API parameters.
var filterWords = []struct{ word, parameter string }{
	{"from", "source"}, {"listener", "listener"}, {"route", "route"}, {"group", "group"}, {"member", "member"}, {"state", "state"},
	{"kind", "kind"}, {"path", "path"}, {"older", "min_age"}, {"younger", "max_age"}, {"idle", "min_idle"}, {"min-bytes", "min_bytes"},
}

// parseFilter parses a filter that a person types at top: words such as group=web, older=5m
// or min-bytes=1MiB, named like the flags. A word without a name is the network or address
// of the client.
func parseFilter(line string) (api.Filter, error) {
	q := url.Values{}
	for _, field := range strings.Fields(line) {
		word, value, ok := strings.Cut(strings.TrimLeft(field, "-"), "=")
		if !ok {
			word, value = "from", field
		}
		parameter := ""
		var known []string
		for _, w := range filterWords {
			known = append(known, w.word)
			if w.word == word {
				parameter = w.parameter
			}
		}
		if parameter == "" {
			return api.Filter{}, fmt.Errorf("%s; allowed: an address, or WORD=VALUE with %s", api.Quote(word), strings.Join(known, ", "))
		}
		if parameter == "min_bytes" {
			var n size
			if err := n.UnmarshalText([]byte(value)); err != nil {
				return api.Filter{}, err
			}
			value = strconv.FormatInt(int64(n), 10)
		}
		q.Set(parameter, value)
	}
	f, err := api.ParseFilter(q)
	var p *api.Problem
	if errors.As(err, &p) {
		err = errors.New(p.Error())
	}
	return f, err
}

// filterLine returns the line that parseFilter parses as f.
func filterLine(f *api.Filter) string {
	q := f.Query()
	var words []string
	for _, w := range filterWords {
		if v := q.Get(w.parameter); v != "" {
			words = append(words, w.word+"="+v)
		}
	}
	return strings.Join(words, " ")
}

type from struct{ prefix netip.Prefix }

func (f *from) UnmarshalText(b []byte) error {
	got, err := api.ParseFilter(url.Values{"source": {string(b)}})
	if err != nil || !got.Source.IsValid() {
		return fmt.Errorf("invalid network %s; allowed: an address, or a prefix such as 10.0.0.0/8", api.Quote(string(b)))
	}
	f.prefix = got.Source
	return nil
}

// size is a number of bytes.
type size int64

func (n *size) UnmarshalText(b []byte) error {
	v, err := spec.ParseSize(string(b))
	if err != nil {
		return fmt.Errorf("invalid size %s; allowed: a number of bytes, or a number with KiB, MiB, GiB or TiB", api.Quote(string(b)))
	}
	*n = size(v)
	return nil
}
