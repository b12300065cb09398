package convert

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A list is a file of networks that stays one: whoever keeps it up to date goes on as before.
type list struct {
	name, file, lines string
	networks          []string // nil: it is too large to be read, and whoever refers to it has its name
	used              bool
}

// KeepList remembers a file of one network per line, and returns the name of the list. Where allow, deny or from of a listener whose Lists has that
// name has all of these networks, they become the list. lines says what its lines look like, as the key of a list does. A file whose lines do
// not mean the same to Penstock, or whose absolute path is not known, is copied, and has no name.
func (p *Plan) KeepList(name string, text []byte, lines string) string {
	l := p.newList(name, lines)
	if l == nil {
		return ""
	}
	for _, o := range p.lists {
		if o.file == l.file && o.lines == lines {
			return o.name
		}
	}
	var ok bool
	if l.networks, ok = networksOf(text, lines); ok && len(l.networks) > 0 {
		p.addList(l)
	}
	return l.name
}

// ReadNetworks returns the text of a file of networks. Of one that is larger than what may still be read, it returns the name of a list instead,
// as allow, deny and from refer to it, if its beginning is one.
func (p *Plan) ReadNetworks(name string) (text []byte, named, why string) {
	l := p.newList(name, "")
	if l != nil {
		for _, o := range p.lists {
			if o.file == l.file && o.networks == nil {
				return nil, spec.ListPrefix + o.name, ""
			}
		}
	}
	if l == nil || p.Source.Read == nil {
		text, why = p.ReadFile(name)
		return text, "", why
	}
	files, err := p.Source.Read(name)
	switch {
	case err != nil:
		return nil, "", err.Error()
	case len(files) != 1:
		text, why = p.ReadFile(name)
		return text, "", why
	case p.Spend(len(files[0].Text)):
		return files[0].Text, "", ""
	}
	begin := files[0].Text[:bytes.LastIndexByte(files[0].Text, '\n')+1]
	if networks, ok := networksOf(begin, ""); !ok || len(networks) == 0 {
		return nil, "", "the file " + Quote(name) + " is too large to be read, and no list of Penstock's: one address or network per line, without masks such as 255.255.0.0"
	}
	p.addList(l)
	return nil, spec.ListPrefix + l.name, ""
}

// newList returns a list that has no networks yet; nil: its path cannot be one.
func (p *Plan) newList(name, lines string) *list {
	file := name
	if p.Source.Path != nil {
		file = p.Source.Path(name)
	}
	if !path.IsAbs(file) || OneLine(file) != file || len(file) > 4096 {
		return nil
	}
	return &list{file: file, lines: lines}
}

func (p *Plan) addList(l *list) {
	base := strings.TrimSuffix(path.Base(l.file), path.Ext(l.file))
	l.name = Unique(NameOf(base), func(s string) bool {
		return slices.ContainsFunc(p.lists, func(l *list) bool { return l.name == s })
	})
	p.lists = append(p.lists, l)
}

// networksOf returns the networks of a text. It reports false if a line is not one for Penstock.
func networksOf(text []byte, lines string) (networks []string, ok bool) {
	as := spec.List{Lines: lines}
	for line := range bytes.Lines(text) {
		line, _, _ = bytes.Cut(line, []byte("#"))
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if lines == "" && bytes.IndexByte(line, ';') >= 0 {
			return nil, false
		}
		word, ok := as.NetworkIn(line)
		if !ok {
			return nil, false
		}
		network, ok := Prefix(string(word))
		if _, mask, _ := bytes.Cut(word, []byte("/")); !ok || bytes.IndexByte(mask, '.') >= 0 {
			return nil, false
		}
		networks = append(networks, network)
	}
	return networks, true
}

// isList reports whether a network of a condition is the name of a list.
func isList(network string) bool { return strings.HasPrefix(network, spec.ListPrefix) }

// byLists puts lists in the place of their networks, where all of these are there, if they are among those with a name.
func (p *Plan) byLists(from, names []string) []string {
	if len(p.lists) == 0 || len(from) == 0 {
		return from
	}
	has := map[string]bool{}
	for _, s := range from {
		has[s] = true
	}
	var named []string
	for _, l := range p.lists {
		if l.networks == nil {
			l.used = l.used || has[spec.ListPrefix+l.name]
			continue
		}
		if !slices.Contains(names, l.name) || !every(l.networks, func(s string) bool { return has[s] }) {
			continue
		}
		named, l.used = append(named, spec.ListPrefix+l.name), true
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
		access := l.Lists
		if l.ordered {
			access = nil
		}
		for _, key := range []string{"allow", "deny"} {
			if from, ok := l.Fields.Get(key).([]string); ok {
				l.Fields.Set(key, p.byLists(from, access))
			}
		}
		if proxies, ok := l.Fields.Get("proxy-protocol").(Fields); ok {
			if from, ok := proxies.Get("from").([]string); ok {
				l.Fields.Sub("proxy-protocol", "from", p.byLists(from, l.Lists))
			}
		}
		for i := range l.Routes {
			l.Routes[i].From = p.byLists(l.Routes[i].From, l.Lists)
		}
	}
	p.lists = slices.DeleteFunc(p.lists, func(l *list) bool { return !l.used })
}
