package convert

import (
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Plan is the configuration that is being put together.
type Plan struct {
	Source Source
	budget int // bytes that included files may still have

	Top       Fields // log, admin and the like
	Comments  []string
	listeners []*Listener
	ports     map[spec.Endpoint]bool // that listeners have
	ranged    int                    // how many of them are in ranges
	groups    []*Group
	lists     []*list
	notes     []Note
	seen      map[Note]bool
}

// NewPlan returns an empty plan.
func NewPlan(src Source) *Plan {
	return &Plan{Source: src, seen: map[Note]bool{}, budget: MaxText}
}

// Listener is a listener of the plan.
type Listener struct {
	Name      string
	URL       string
	datagrams bool
	Sniffs    bool // it has or had routes that read what clients send first
	Comments  []string
	Fields    Fields // all keys but listen, routes and to
	Routes    []Route
	Lists     []string // the names of lists that its rules ask for; other lists may have the same networks by chance
	to        *Route   // without conditions; nil: none
	ordered   bool     // what allow and deny have depends on the order of rules, as they are now: no list may change it
}

// Route is a route of a listener. Without conditions it is the listener's to.
type Route struct {
	Condition
	Silence  time.Duration // how long a client is silent, if the condition is that
	To       *Group        // nil: its clients are refused
	Share    Share
	SplitBy  string // what chooses among parts; empty: chance
	Timeouts Fields
	comments []string
	parts    []part // nil: it leads to the group alone
}

// Group is a group of the plan. Groups with the same fields are one.
type Group struct {
	name   string
	Fields Fields
}

// Place is a place in the original.
type Place struct {
	File string
	Line int
}

// Note lists what is at a place.
func (p *Plan) Note(at Place, format string, args ...any) {
	n := Note{at.File, at.Line, OneLine(fmt.Sprintf(format, args...))}
	if p.seen[n] || len(p.notes) >= maxNotes {
		return
	}
	p.seen[n] = true
	p.notes = append(p.notes, n)
}

// MaxLife is the longest duration that Penstock takes.
const MaxLife = 8760 * time.Hour

// Duration writes a time; 0 is never.
func Duration(d time.Duration) Raw {
	switch {
	case d <= 0:
		return "never"
	case d > MaxLife:
		d = MaxLife
	case d < time.Millisecond:
		d = time.Millisecond
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return Raw(s)
}

// Number writes a number, at most most.
func Number(n, most int) Raw { return Raw(strconv.Itoa(min(n, most))) }

const Many = 1 << 30

// NameOf makes a name of Penstock of another one's. It is at most 50 bytes, so
// that a number can be added.
func NameOf(s string) string {
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-' {
			return c
		}
		return '-'
	}, s)
	name = strings.Trim(name, ".-")
	if len(name) > 50 {
		name = name[:50]
	}
	if name == "" {
		return "unnamed"
	}
	return name
}

// Unique returns name, with a number if it is taken.
func Unique(name string, taken func(string) bool) string {
	for n, base := 2, name; taken(name); n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	return name
}

// Listen adds a listener at a URL. It returns nil, and lists why, if the URL
// cannot be one or is taken.
func (p *Plan) Listen(at Place, name, url string) *Listener {
	e, err := spec.ParseListener(url)
	switch {
	case err != nil:
		p.Note(at, "listener left out: %v", err)
		return nil
	case len(p.listeners) >= MaxThings:
		p.Note(at, "listener left out: more than %d listeners", MaxThings)
		return nil
	}
	if e.Ports() > 1 {
		most := spec.MaxPorts
		if e.Kind == spec.UDP {
			most = spec.MaxUDPPorts
		}
		if p.ranged+e.Ports() > most {
			p.Note(at, "listener left out: more than %d ports in ranges", most)
			return nil
		}
	}
	for i := range e.Ports() {
		if p.ports[e.At(i)] {
			p.Note(at, "listener left out: %s is taken by another one of this configuration", e.At(i))
			return nil
		}
	}
	if p.ports == nil {
		p.ports = map[spec.Endpoint]bool{}
	}
	for i := range e.Ports() {
		p.ports[e.At(i)] = true
	}
	if e.Ports() > 1 {
		p.ranged += e.Ports()
	}
	url = e.String()
	name = Unique(NameOf(name), func(s string) bool {
		return slices.ContainsFunc(p.listeners, func(l *Listener) bool { return l.Name == s })
	})
	l := &Listener{Name: name, URL: url, datagrams: e.Kind.Datagrams()}
	p.listeners = append(p.listeners, l)
	return l
}

// NoteV6Only notes that a listener at [::] accepted only IPv6.
func (p *Plan) NoteV6Only(l *Listener) {
	if strings.Contains(l.URL, "[::]") {
		l.Comments = append(l.Comments, "IPv6 only in the original. Here IPv4 clients come in too, unless a listener at 0.0.0.0 has the port, or net.ipv6.bindv6only is 1.")
	}
}

// Drop takes a listener out again.
func (p *Plan) Drop(l *Listener) {
	p.listeners = slices.DeleteFunc(p.listeners, func(other *Listener) bool { return other == l })
	e, err := spec.ParseListener(l.URL)
	for i := range e.Ports() {
		delete(p.ports, e.At(i))
	}
	if err == nil && e.Ports() > 1 {
		p.ranged -= e.Ports()
	}
}

// Group returns the group that has these fields, and makes it if there is none.
func (p *Plan) Group(name string, f Fields) *Group {
	base := NameOf(name)
	f = withoutTCP(f)
	for _, g := range p.groups {
		if (g.name == base || strings.HasPrefix(g.name, base+"-")) && reflect.DeepEqual(g.Fields, f) {
			return g
		}
	}
	g := &Group{Unique(base, func(s string) bool {
		return slices.ContainsFunc(p.groups, func(g *Group) bool { return g.name == s })
	}), f}
	p.groups = append(p.groups, g)
	return g
}

// withoutTCP leaves out what only TCP sockets have, if all members are Unix sockets: there it
// means nothing in the original, either.
func withoutTCP(f Fields) Fields {
	members := urlsOf(f)
	if f.Get("discover") != nil || f.Get("destination") != nil || slices.ContainsFunc(members, func(url string) bool { return !strings.HasPrefix(url, "unix") }) {
		return f
	}
	tcp, _ := f.Get("tcp").(Fields)
	tcp = slices.DeleteFunc(slices.Clone(tcp), func(g Field) bool { return g.Key != "recv-buffer" && g.Key != "send-buffer" })
	f.Set("tcp", tcp)
	return slices.DeleteFunc(f, func(g Field) bool {
		return g.Key == "source" || g.Key == "interface" || g.Key == "tcp" && len(tcp) == 0
	})
}

// SocketURL writes a TCP or UDP address.
func SocketURL(network, host string, port string) string {
	return network + "://" + net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// finish drops what is not reached: routes behind wider ones, listeners without
// a route, groups that no listener uses.
func (p *Plan) finish() {
	used := map[*Group]bool{}
	p.listeners = slices.DeleteFunc(p.listeners, func(l *Listener) bool {
		l.joinShares()
		var kept []Route
		for _, r := range l.Routes {
			if l.to != nil && r.anybody() {
				break
			}
			if !slices.ContainsFunc(kept, func(earlier Route) bool { return hides(earlier, r) }) {
				kept = append(kept, r)
			}
			if r.anybody() {
				l.to = nil
				break
			}
		}
		if n := len(kept); n > 0 && l.to == nil && kept[n-1].anybody() {
			l.to = &kept[n-1]
			for _, f := range kept[n-1].Timeouts {
				l.Fields.Sub("timeouts", f.Key, f.Value, f.Comments...)
			}
			kept = kept[:n-1]
		}
		if slices.ContainsFunc(kept, func(r Route) bool { return hides(r, Route{}) }) {
			l.to = nil // routes by address take everybody
		}
		l.Routes = kept
		for _, r := range kept {
			for _, g := range r.groups() {
				used[g] = true
			}
		}
		if l.to != nil {
			for _, g := range l.to.groups() {
				used[g] = true
			}
		}
		return len(kept) == 0 && l.to == nil
	})
	p.groups = slices.DeleteFunc(p.groups, func(g *Group) bool { return !used[g] })
	p.nameLists()
}

var Everywhere = []string{"0.0.0.0/0", "::/0"}

// anybody reports whether a route asks for nothing.
func (r *Route) anybody() bool { return len(r.From) == 0 && !r.ByName() && !r.ByFirst() }

// hides reports whether a takes every client that b would.
func hides(a, b Route) bool {
	return a.covers(&b.Condition) && (!a.Silent || b.Silence >= a.Silence)
}

func every(list []string, f func(string) bool) bool {
	return !slices.ContainsFunc(list, func(s string) bool { return !f(s) })
}

// yaml writes the plan.
func (p *Plan) yaml(from string, files []File) []byte {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	var w writer
	w.line(0, "# Converted by penstock convert from "+OneLine(strings.Join(names, ", "))+".")
	w.line(0, "# Comments tell where "+from+" behaves differently, or a choice was made.")
	w.comments(0, p.Comments)
	if len(p.Top) > 0 {
		w.line(0, "")
		w.mapping(0, p.Top)
	}
	if len(p.lists) > 0 {
		w.line(0, "")
		w.line(0, "# Files that are read again when they change, without a reload.")
		w.line(0, "lists:")
		for _, l := range p.lists {
			of := Fields{{Key: "file", Value: l.file}}
			if l.lines != "" {
				of.Set("lines", l.lines)
			}
			w.line(1, Quote(l.name)+": "+Inline(of))
		}
	}
	w.line(0, "")
	w.line(0, "listeners:")
	for _, l := range p.listeners {
		w.comments(1, l.Comments)
		w.line(1, Quote(l.Name)+":")
		w.line(2, "listen: "+Quote(l.URL))
		w.mapping(2, l.Fields)
		if len(l.Routes) > 0 {
			w.line(2, "routes:")
			names := map[string]bool{}
			for _, r := range l.Routes {
				w.comments(3, r.comments)
				w.line(3, "- "+Inline(r.fields(names)))
			}
		}
		if l.to != nil {
			if l.to.SplitBy != "" && l.to.parts != nil {
				w.line(2, "split-by: "+l.to.SplitBy)
			}
			w.line(2, "to: "+Inline(l.to.destination()))
		}
	}
	w.line(0, "")
	w.line(0, "groups:")
	for _, g := range p.groups {
		w.line(1, Quote(g.name)+":")
		w.mapping(2, g.Fields)
	}
	return []byte(w.b.String())
}

// fields writes a route. names are those of the listener's routes before it; a
// route is named after its group, so a second one to a group has a name of its own.
func (r Route) fields(names map[string]bool) Fields {
	var f Fields
	to := r.toName()
	name := Unique(to, func(s string) bool { return names[s] || s == "default" })
	names[name] = true
	if name != to || r.parts != nil {
		f.Set("name", name)
	}
	var prefixes []string
	for _, p := range r.Prefixes {
		prefixes = append(prefixes, bytesOf(p))
	}
	for _, c := range []struct {
		key  string
		list []string
	}{{"from", r.From}, {"protocol", r.Protocols}, {"prefix", prefixes}, {"host", r.Hosts}, {"sni", r.SNI}, {"alpn", r.ALPN}} {
		if len(c.list) == 1 {
			f.Set(c.key, c.list[0])
		} else if len(c.list) > 1 {
			f.Set(c.key, c.list)
		}
	}
	if r.Silent {
		f.Set("silence", Duration(r.Silence))
	}
	f.Set("to", r.destination())
	if r.SplitBy != "" && r.parts != nil {
		f.Set("split-by", Raw(r.SplitBy))
	}
	if len(r.Timeouts) > 0 {
		f.Set("timeouts", r.Timeouts)
	}
	return f
}
