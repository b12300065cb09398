package convert

import (
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// plan is the configuration that is being put together.
type plan struct {
	src    Source
	budget int               // bytes that included files may still have
	files  int               // files that were included
	env    map[string]string // variables that the original sets itself

	top       fields // log, admin and the like
	comments  []string
	listeners []*listener
	ports     map[spec.Endpoint]bool // that listeners have
	ranged    int                    // how many of them are in ranges
	groups    []*group
	notes     []Note
	seen      map[Note]bool
}

// listener is a listener of the plan.
type listener struct {
	name      string
	url       string
	datagrams bool
	tls       bool // it has or had routes that read a ClientHello
	comments  []string
	fields    fields // all keys but listen, routes and to
	routes    []route
	to        *group
}

// route is a route of a listener. Without conditions it is the listener's to.
type route struct {
	from, sni, alpn []string
	to              *group
	timeouts        fields
	comments        []string
}

// group is a group of the plan. Groups with the same fields are one.
type group struct {
	name   string
	fields fields
}

// at is a place in the original.
type at struct {
	file string
	line int
}

// note lists what is at a place.
func (p *plan) note(at at, format string, args ...any) {
	n := Note{at.file, at.line, oneLine(fmt.Sprintf(format, args...))}
	if p.seen[n] || len(p.notes) >= maxNotes {
		return
	}
	p.seen[n] = true
	p.notes = append(p.notes, n)
}

// maxLife is the longest duration that Penstock takes.
const maxLife = 8760 * time.Hour

// duration writes a time; 0 is never.
func duration(d time.Duration) raw {
	switch {
	case d <= 0:
		return "never"
	case d > maxLife:
		d = maxLife
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
	return raw(s)
}

// number writes a number, at most most.
func number(n, most int) raw { return raw(strconv.Itoa(min(n, most))) }

const many = 1 << 30

// nameOf makes a name of Penstock of another one's. It is at most 50 bytes, so
// that a number can be added.
func nameOf(s string) string {
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

// unique returns name, with a number if it is taken.
func unique(name string, taken func(string) bool) string {
	for n, base := 2, name; taken(name); n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	return name
}

// listen adds a listener at a URL. It returns nil, and lists why, if the URL
// cannot be one or is taken.
func (p *plan) listen(at at, name, url string) *listener {
	e, err := spec.ParseListener(url)
	switch {
	case err != nil:
		p.note(at, "listener left out: %v", err)
		return nil
	case len(p.listeners) >= maxThings:
		p.note(at, "listener left out: more than %d listeners", maxThings)
		return nil
	}
	if e.Ports() > 1 {
		most := spec.MaxPorts
		if e.Kind == spec.UDP {
			most = spec.MaxUDPPorts
		}
		if p.ranged+e.Ports() > most {
			p.note(at, "listener left out: more than %d ports in ranges", most)
			return nil
		}
	}
	for i := range e.Ports() {
		if p.ports[e.At(i)] {
			p.note(at, "listener left out: %s is taken by another one of this configuration", e.At(i))
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
	name = unique(nameOf(name), func(s string) bool {
		return slices.ContainsFunc(p.listeners, func(l *listener) bool { return l.name == s })
	})
	l := &listener{name: name, url: url, datagrams: e.Kind.Datagrams()}
	p.listeners = append(p.listeners, l)
	return l
}

// v6only notes that a listener at [::] accepted only IPv6.
func (p *plan) v6only(l *listener) {
	if strings.Contains(l.url, "[::]") {
		l.comments = append(l.comments, "IPv6 only in the original. Here IPv4 clients come in too, unless a listener at 0.0.0.0 has the port, or net.ipv6.bindv6only is 1.")
	}
}

// drop takes a listener out again.
func (p *plan) drop(l *listener) {
	p.listeners = slices.DeleteFunc(p.listeners, func(other *listener) bool { return other == l })
	e, err := spec.ParseListener(l.url)
	for i := range e.Ports() {
		delete(p.ports, e.At(i))
	}
	if err == nil && e.Ports() > 1 {
		p.ranged -= e.Ports()
	}
}

// shift adds to a port, or to both ends of a range.
func shift(port string, by int) string {
	first, last, ranged := strings.Cut(port, "-")
	n, _ := strconv.Atoi(first)
	first = strconv.Itoa(n + by)
	if !ranged {
		return first
	}
	n, _ = strconv.Atoi(last)
	return first + "-" + strconv.Itoa(n+by)
}

// group returns the group that has these fields, and makes it if there is none.
func (p *plan) group(name string, f fields) *group {
	base := nameOf(name)
	f = withoutTCP(f)
	for _, g := range p.groups {
		if (g.name == base || strings.HasPrefix(g.name, base+"-")) && reflect.DeepEqual(g.fields, f) {
			return g
		}
	}
	g := &group{unique(base, func(s string) bool {
		return slices.ContainsFunc(p.groups, func(g *group) bool { return g.name == s })
	}), f}
	p.groups = append(p.groups, g)
	return g
}

// withoutTCP leaves out what only TCP sockets have, if all members are Unix sockets: there it
// means nothing in the original, either.
func withoutTCP(f fields) fields {
	members := urlsOf(f)
	if f.get("discover") != nil || slices.ContainsFunc(members, func(url string) bool { return !strings.HasPrefix(url, "unix") }) {
		return f
	}
	tcp, _ := f.get("tcp").(fields)
	tcp = slices.DeleteFunc(slices.Clone(tcp), func(g field) bool { return g.key != "recv-buffer" && g.key != "send-buffer" })
	f.set("tcp", tcp)
	return slices.DeleteFunc(f, func(g field) bool {
		return g.key == "source" || g.key == "interface" || g.key == "tcp" && len(tcp) == 0
	})
}

// tcpURL writes a TCP or UDP address.
func tcpURL(network, host string, port string) string {
	return network + "://" + net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// finish drops what is not reached: routes behind wider ones, listeners without
// a route, groups that no listener uses.
func (p *plan) finish() {
	used := map[*group]bool{}
	p.listeners = slices.DeleteFunc(p.listeners, func(l *listener) bool {
		var kept []route
		for _, r := range l.routes {
			if l.to != nil && len(r.from)+len(r.sni)+len(r.alpn) == 0 {
				break
			}
			if !slices.ContainsFunc(kept, func(earlier route) bool { return hides(earlier, r) }) {
				kept = append(kept, r)
			}
			if len(r.from)+len(r.sni)+len(r.alpn) == 0 {
				l.to = nil
				break
			}
		}
		if n := len(kept); n > 0 && l.to == nil && len(kept[n-1].from)+len(kept[n-1].sni)+len(kept[n-1].alpn) == 0 {
			l.to = kept[n-1].to
			for _, f := range kept[n-1].timeouts {
				l.fields.sub("timeouts", f.key, f.value, f.comments...)
			}
			kept = kept[:n-1]
		}
		if slices.ContainsFunc(kept, func(r route) bool { return hides(r, route{}) }) {
			l.to = nil // routes by address take everybody
		}
		l.routes = kept
		for _, r := range kept {
			used[r.to] = true
		}
		if l.to != nil {
			used[l.to] = true
		}
		return len(kept) == 0 && l.to == nil
	})
	p.groups = slices.DeleteFunc(p.groups, func(g *group) bool { return !used[g] })
}

var everywhere = []string{"0.0.0.0/0", "::/0"}

// hides reports whether a takes every client that b would.
func hides(a, b route) bool {
	if len(a.from) > 0 {
		from := b.from
		if len(from) == 0 {
			from = everywhere
		}
		if !every(from, func(s string) bool {
			return slices.ContainsFunc(a.from, func(t string) bool { return inside(t, s) })
		}) {
			return false
		}
	}
	if len(a.sni) > 0 && (len(b.sni) == 0 || !every(b.sni, func(name string) bool {
		return slices.ContainsFunc(a.sni, func(pattern string) bool { return matches(pattern, name) })
	})) {
		return false
	}
	return len(a.alpn) == 0 || len(b.alpn) > 0 && every(b.alpn, func(s string) bool { return slices.Contains(a.alpn, s) })
}

// matches reports whether the names of one pattern include those of another.
func matches(pattern, name string) bool {
	end, wild := strings.CutPrefix(pattern, "*")
	return pattern == name || wild && strings.HasSuffix(strings.TrimPrefix(name, "*"), end)
}

// inside reports whether the range outer has all of inner.
func inside(outer, inner string) bool {
	a, err1 := netip.ParsePrefix(outer)
	b, err2 := netip.ParsePrefix(inner)
	return err1 == nil && err2 == nil && a.Bits() <= b.Bits() && a.Contains(b.Addr())
}

func every(list []string, f func(string) bool) bool {
	return !slices.ContainsFunc(list, func(s string) bool { return !f(s) })
}

// yaml writes the plan.
func (p *plan) yaml(from Product, files []File) []byte {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	var w writer
	w.line(0, "# Converted by penstock convert from "+oneLine(strings.Join(names, ", "))+".")
	w.line(0, "# Comments tell where "+map[Product]string{HAProxy: "HAProxy", Nginx: "nginx"}[from]+" behaves differently, or a choice was made.")
	w.comments(0, p.comments)
	if len(p.top) > 0 {
		w.line(0, "")
		w.mapping(0, p.top)
	}
	w.line(0, "")
	w.line(0, "listeners:")
	for _, l := range p.listeners {
		w.comments(1, l.comments)
		w.line(1, quote(l.name)+":")
		w.line(2, "listen: "+quote(l.url))
		w.mapping(2, l.fields)
		if len(l.routes) > 0 {
			w.line(2, "routes:")
			names := map[string]bool{}
			for _, r := range l.routes {
				w.comments(3, r.comments)
				w.line(3, "- "+flow(r.fields(names)))
			}
		}
		if l.to != nil {
			w.line(2, "to: "+quote(l.to.name))
		}
	}
	w.line(0, "")
	w.line(0, "groups:")
	for _, g := range p.groups {
		w.line(1, quote(g.name)+":")
		w.mapping(2, g.fields)
	}
	return []byte(w.b.String())
}

// fields writes a route. names are those of the listener's routes before it; a
// route is named after its group, so a second one to a group has a name of its own.
func (r route) fields(names map[string]bool) fields {
	var f fields
	name := unique(r.to.name, func(s string) bool { return names[s] || s == "default" })
	names[name] = true
	if name != r.to.name {
		f.set("name", name)
	}
	for _, c := range []struct {
		key  string
		list []string
	}{{"from", r.from}, {"sni", r.sni}, {"alpn", r.alpn}} {
		if len(c.list) == 1 {
			f.set(c.key, c.list[0])
		} else if len(c.list) > 1 {
			f.set(c.key, c.list)
		}
	}
	f.set("to", r.to.name)
	if len(r.timeouts) > 0 {
		f.set("timeouts", r.timeouts)
	}
	return f
}
