package convert

import (
	"bytes"
	"path"
	"slices"
	"strings"
)

// A list is a file of networks that stays one: whoever keeps it up to date goes on as before.
type list struct {
	name, file string
	networks   []string
	used       bool
}

// KeepList remembers a file of one network per line. Where allow, deny or from has all of these networks, they become the list. A file whose
// lines do not mean the same to Penstock, or whose absolute path is not known, is copied.
func (p *Plan) KeepList(name string, text []byte) {
	file := name
	if p.Source.Path != nil {
		file = p.Source.Path(name)
	}
	if !path.IsAbs(file) || OneLine(file) != file || slices.ContainsFunc(p.lists, func(l *list) bool { return l.file == file }) {
		return
	}
	l := &list{file: file}
	for line := range bytes.Lines(text) {
		line, _, _ := strings.Cut(string(line), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		network, ok := Prefix(line)
		if _, mask, _ := strings.Cut(line, "/"); !ok || strings.Contains(mask, ".") {
			return
		}
		l.networks = append(l.networks, network)
	}
	if len(l.networks) == 0 {
		return
	}
	base := strings.TrimSuffix(path.Base(file), path.Ext(file))
	l.name = Unique(NameOf(base), func(s string) bool {
		return slices.ContainsFunc(p.lists, func(l *list) bool { return l.name == s })
	})
	p.lists = append(p.lists, l)
}

// byLists puts lists in the place of their networks, where all of these are there.
func (p *Plan) byLists(from []string) []string {
	if len(p.lists) == 0 || len(from) == 0 {
		return from
	}
	has := map[string]bool{}
	for _, s := range from {
		has[s] = true
	}
	var named []string
	for _, l := range p.lists {
		if !every(l.networks, func(s string) bool { return has[s] }) {
			continue
		}
		named, l.used = append(named, "list:"+l.name), true
		in := map[string]bool{}
		for _, s := range l.networks {
			in[s] = true
		}
		from = slices.DeleteFunc(slices.Clone(from), func(s string) bool { return in[s] })
	}
	return append(from, named...)
}

// nameLists puts lists in the place of networks of all listeners and routes.
func (p *Plan) nameLists() {
	for _, l := range p.listeners {
		for _, key := range []string{"allow", "deny"} {
			if from, ok := l.Fields.Get(key).([]string); ok {
				l.Fields.Set(key, p.byLists(from))
			}
		}
		if proxies, ok := l.Fields.Get("proxy-protocol").(Fields); ok {
			if from, ok := proxies.Get("from").([]string); ok {
				l.Fields.Sub("proxy-protocol", "from", p.byLists(from))
			}
		}
		for i := range l.Routes {
			l.Routes[i].From = p.byLists(l.Routes[i].From)
		}
	}
	p.lists = slices.DeleteFunc(p.lists, func(l *list) bool { return !l.used })
}
