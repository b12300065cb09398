package nginx

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A choice is one of the values that a text with variables may have, and for
// which clients.
type choice struct {
	convert.Place
	value string
	cond  convert.Condition
	share convert.Share // of the clients that no choice before has taken
	by    string        // what chooses them, as split-by
}

// maxChoices bounds what the variables of one configuration grow to.
const maxChoices = 1 << 15

// names says which variables have what a client asks for: those of a ClientHello that passes through, or of TLS
// that ends at the listener.
type names struct {
	preread, ended bool
	agreed         []string // protocols that TLS that ends at the listener may agree on
}

// namedHost stands for the name that a client asks for in the value of a proxy_pass; a port follows.
const namedHost = "$name"

// have reports whether a variable is the name that a client asks for.
func (n *names) have(variable string) bool {
	return variable == "ssl_server_name" && n.ended || variable == "ssl_preread_server_name" && n.preread && !n.ended
}

// expand returns what a text with variables may be, the first match first. port
// is the listener's.
func (n *conversion) expand(here convert.Place, text, port string, names names, depth int) []choice {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "$server_port", port), "${server_port}", port)
	begin := strings.IndexByte(text, '$')
	if begin < 0 {
		return []choice{{Place: here, value: text}}
	}
	name, end := "", begin+1
	if strings.HasPrefix(text[end:], "{") {
		if i := strings.IndexByte(text[end:], '}'); i > 0 {
			name, end = text[end+1:end+i], end+i+1
		}
	} else {
		for end < len(text) && (text[end] == '_' || text[end] >= '0' && text[end] <= '9' || text[end]|0x20 >= 'a' && text[end]|0x20 <= 'z') {
			end++
		}
		name = text[begin+1 : end]
	}
	if names.have(name) && begin == 0 && strings.HasPrefix(text[end:], ":") {
		return []choice{{Place: here, value: namedHost + text[end:]}}
	}
	d := n.vars[name]
	if d == nil || name == "" {
		n.Note(here, "$%s: no counterpart; a map of $ssl_preread_server_name, $ssl_preread_protocol, $ssl_server_name, $ssl_preread_alpn_protocols, $ssl_alpn_protocol or $remote_addr is converted", name)
		return nil
	}
	d.used = true
	if depth > 8 {
		n.Note(here, "$%s: variables refer to each other", name)
		return nil
	}
	var all []choice
	for _, c := range n.values(d, port, names, depth) {
		for _, inner := range n.expand(c.Place, text[:begin]+c.value+text[end:], port, names, depth+1) {
			cond, ok := convert.JoinConditions(c.cond, inner.cond)
			if n.counts++; n.counts > maxChoices {
				n.Note(here, "$%s: too many combinations", name)
				return all
			}
			if ok {
				if c.share != (convert.Share{}) && inner.share != (convert.Share{}) {
					n.Note(here, "$%s: split_clients within split_clients: no counterpart", name)
					continue
				}
				share, by := c.share, cmp.Or(c.by, inner.by)
				if share == (convert.Share{}) {
					share = inner.share
				}
				all = append(all, choice{inner.Place, inner.value, cond, share, by})
			}
		}
	}
	return all
}

// values returns the values of a map, geo or set, the first match first.
func (n *conversion) values(d *directive, port string, names names, depth int) []choice {
	switch {
	case d.name == "set":
		return []choice{{Place: d.Place, value: d.arg(1)}}
	case d.name == "geo":
		return n.geo(d)
	case d.name == "split_clients" && len(d.args) == 2:
		return n.split(d)
	case d.name == "map" && len(d.args) == 2 && variableName(d.arg(0)) == "ssl_preread_protocol":
		return n.spoken(d, names)
	case d.name != "map" || len(d.args) != 2:
		n.Note(d.Place, "%s: no counterpart", d.name)
		return nil
	}
	source := variableName(d.arg(0))
	if n.vars[source] != nil && source != variableName(d.arg(1)) {
		return n.through(d, port, names, depth)
	}
	var exact, wild []choice
	var def *choice
	hostnames := false
	for _, e := range d.block {
		if len(e.args) != 1 {
			switch e.name {
			case "hostnames":
				hostnames = true
			case "volatile":
			default:
				n.Note(e.Place, "%s in a map: no counterpart", e.name)
			}
			continue
		}
		c := choice{Place: e.Place, value: e.arg(0)}
		key := e.name
		if key == "default" {
			def = &c
			continue
		}
		key = strings.TrimPrefix(key, `\`)
		switch source {
		case "ssl_preread_server_name", "ssl_server_name":
			if source == "ssl_server_name" && !names.ended || source != "ssl_server_name" && (!names.preread || names.ended) {
				continue // the variable is empty
			}
			patterns, why := namePatterns(key, hostnames)
			if why != "" {
				n.Note(e.Place, "%s left out: %s", convert.Quote(e.name), why)
				continue
			}
			for _, s := range patterns {
				c.cond = convert.Condition{SNI: []string{s}}
				if strings.HasPrefix(s, "*") {
					wild = append(wild, c)
				} else {
					exact = append(exact, c)
				}
			}
		case "ssl_preread_alpn_protocols", "ssl_alpn_protocol":
			if source == "ssl_alpn_protocol" && !names.ended || source != "ssl_alpn_protocol" && (!names.preread || names.ended) {
				continue
			}
			protocol, why := protocolOf(key)
			if why != "" {
				n.Note(e.Place, "%s left out: %s", convert.Quote(e.name), why)
				continue
			}
			if names.ended && !slices.Contains(names.agreed, protocol) {
				n.Note(e.Place, "%s left out: ssl_alpn does not have it", convert.Quote(e.name))
				continue
			}
			c.cond = convert.Condition{ALPN: []string{protocol}}
			exact = append(exact, c)
		case "remote_addr", "realip_remote_addr", "binary_remote_addr":
			p, ok := convert.Prefix(key)
			if !ok {
				n.Note(e.Place, "%s left out: not an address", convert.Quote(e.name))
				continue
			}
			c.cond = convert.Condition{From: []string{p}}
			exact = append(exact, c)
		case "server_port":
			if strings.Contains(port, "-") {
				n.Note(d.Place, "map of $server_port: no counterpart behind a range of ports")
				return nil
			}
			if key == port {
				return []choice{c}
			}
		default:
			n.Note(d.Place, "map of $%s: no counterpart; $ssl_preread_server_name, $ssl_server_name, $ssl_preread_alpn_protocols, $ssl_alpn_protocol and $remote_addr have one", source)
			return nil
		}
	}
	slices.SortStableFunc(wild, func(a, b choice) int { return cmp.Compare(len(b.cond.SNI[0]), len(a.cond.SNI[0])) })
	if def == nil {
		def = &choice{Place: d.Place} // the value is empty
	}
	return append(merge(append(exact, wild...)), *def)
}

// through returns the values of a map of a variable that something else here sets, such as a geo.
func (n *conversion) through(d *directive, port string, names names, depth int) (all []choice) {
	to := map[string]string{}
	def := ""
	for _, e := range d.block {
		switch {
		case len(e.args) != 1 && e.name == "volatile":
		case len(e.args) != 1 || strings.HasPrefix(e.name, "~"):
			n.Note(e.Place, "%s in a map of %s: no counterpart", convert.Quote(e.name), d.arg(0))
			return nil // or clients would go where they do not belong
		case e.name == "default":
			def = e.arg(0)
		default:
			to[strings.ToLower(strings.TrimPrefix(e.name, `\`))] = e.arg(0)
		}
	}
	for _, c := range n.expand(d.Place, d.arg(0), port, names, depth+1) {
		value, ok := to[strings.ToLower(c.value)]
		if !ok {
			value = def
		}
		c.value = value
		all = append(all, c)
	}
	return all
}

// split returns the values of a split_clients block. Each share is that of the clients which those before have left.
func (n *conversion) split(d *directive) (all []choice) {
	by := ""
	if strings.Contains(d.arg(0), "remote_addr") {
		by = "source"
	}
	left := 10000 // of ten thousand, as nginx counts
	for _, e := range d.block {
		c := choice{Place: e.Place, value: e.arg(0), by: by}
		if e.name != "*" {
			whole, part, _ := strings.Cut(strings.TrimSuffix(e.name, "%"), ".")
			share, ok := convert.Count(whole + (part + "00")[:max(2, len(part))])
			if !ok || !strings.HasSuffix(e.name, "%") || len(part) > 2 || share < 1 || share > left {
				n.Note(e.Place, "%s in split_clients: not a share", convert.Quote(e.name))
				continue
			}
			c.share = convert.Share{N: share, Of: left}
			left -= share
		}
		all = append(all, c)
	}
	if n := len(d.block); n == 0 || d.block[n-1].name != "*" {
		all = append(all, choice{Place: d.Place, by: by}) // the value is empty
	}
	return all
}

// spoken returns the values of a map of $ssl_preread_protocol: one for clients of TLS, and one for all others, for whom it is empty. Of
// which version they speak is no condition of a route.
func (n *conversion) spoken(d *directive, names names) []choice {
	var def, other, tls *choice
	for _, e := range d.block {
		if len(e.args) != 1 {
			n.Note(e.Place, "%s in a map: no counterpart", e.name)
			continue
		}
		c := &choice{Place: e.Place, value: e.arg(0)}
		switch key := strings.TrimPrefix(e.name, `\`); {
		case key == "default":
			def = c
		case key == "":
			other = c
		case !versionRE().MatchString(key):
			n.Note(e.Place, "%s left out: not a version of TLS", convert.Quote(e.name))
		case tls != nil && tls.value != c.value:
			n.Note(e.Place, "%s left out: which version of TLS a client speaks is not a condition of a route; all of them go where those of line %d do", convert.Quote(e.name), tls.Line)
		default:
			tls = c
		}
	}
	if tls == nil {
		tls = def
	} else if other != nil && def != nil && def.value != tls.value {
		n.Note(def.Place, "default left out: which version of TLS a client speaks is not a condition of a route; all of them go where those of line %d do", tls.Line)
	}
	if other == nil {
		other = def
	}
	var all []choice
	if tls != nil && names.preread && !names.ended {
		c := *tls
		c.cond = convert.Condition{Protocols: []string{spec.ProtocolTLS}}
		all = append(all, c)
	}
	if other == nil {
		other = &choice{Place: d.Place}
	}
	return append(all, *other)
}

// versionRE matches the versions that nginx knows, and the regular expression of all of them.
var versionRE = convert.LazyRE(`^(?:SSLv[23]|TLSv1(?:\.[0-3])?|~\*?\^?TLSv?(?:1)?)$`)

// merge joins neighbours that have the same value.
func merge(list []choice) []choice {
	var all []choice
	for _, c := range list {
		if n := len(all); n > 0 && all[n-1].value == c.value {
			last := &all[n-1].cond
			last.SNI = append(last.SNI, c.cond.SNI...)
			last.ALPN = append(last.ALPN, c.cond.ALPN...)
			last.From = append(last.From, c.cond.From...)
			continue
		}
		c.cond.SNI = slices.Clone(c.cond.SNI)
		c.cond.ALPN = slices.Clone(c.cond.ALPN)
		c.cond.From = slices.Clone(c.cond.From)
		all = append(all, c)
	}
	return all
}

// namePatterns turns a key of a map of server names into patterns.
func namePatterns(key string, hostnames bool) (patterns []string, why string) {
	switch {
	case key == "":
		return nil, "clients without a server name go where the listener's own to says"
	case strings.HasPrefix(key, "~"):
		if m := suffixRE().FindStringSubmatch(key); m != nil {
			key = "*." + strings.ReplaceAll(m[1], `\.`, ".")
			break
		}
		return nil, "regular expressions have no counterpart; a name, or *. and its end, can be matched"
	case hostnames && strings.HasPrefix(key, "."):
		name, ok := convert.ServerName(key[1:])
		if !ok {
			return nil, "not a server name"
		}
		return []string{name, "*." + name}, ""
	case strings.Contains(key, "*") && !hostnames:
		return nil, "without the word hostnames it is not a wildcard in nginx either"
	}
	name, ok := convert.ServerName(key)
	if !ok {
		return nil, "not a name, or *. and its end"
	}
	return []string{name}, ""
}

// suffixRE matches regular expressions of all names that end in something.
var suffixRE = convert.LazyRE(`^~\*?(?:\^(?:\.\*|\.\+|\[\^\.\]\+))?\\\.((?:[A-Za-z0-9_-]|\\\.)+)\$$`)

// protocolOf turns a key of a map of ALPN protocols into a protocol.
func protocolOf(key string) (protocol, why string) {
	if re, ok := strings.CutPrefix(key, "~"); ok {
		if m := protocolRE().FindStringSubmatch(re); m != nil {
			return strings.ReplaceAll(m[1], `\.`, "."), ""
		}
		return "", "only regular expressions such as ~\\bh2\\b, of one protocol, have a counterpart"
	}
	if key == "" || strings.Contains(key, ",") || convert.OneLine(key) != key || len(key) > 255 {
		return "", "a list of protocols has no counterpart: one that the client offers decides"
	}
	return key, ""
}

var protocolRE = convert.LazyRE(`^\*?\\b((?:[A-Za-z0-9/_-]|\\\.)+)\\b$`)

// geo returns the values of a geo block: the longest range first.
func (n *conversion) geo(d *directive) []choice {
	if len(d.args) > 1 && variableName(d.arg(0)) != "remote_addr" {
		n.Note(d.Place, "geo of %s: no counterpart; that of the client's address has one", d.arg(0))
		return nil
	}
	var all []choice
	var def *choice
	single := true // there is one value, so that it does not matter which range is the longest
	for _, e := range d.block {
		c := choice{Place: e.Place, value: e.arg(0)}
		p, ok := convert.Prefix(e.name)
		switch {
		case e.name == "default":
			def = &c
		case !ok || len(e.args) != 1:
			n.Note(e.Place, "%s in a geo: no counterpart", convert.Quote(e.name))
		default:
			single = single && (len(all) == 0 || all[0].value == c.value)
			c.cond = convert.Condition{From: []string{p}}
			all = append(all, c)
		}
	}
	for _, e := range d.block {
		if single {
			n.keep(n.reading, e)
		}
	}
	slices.SortStableFunc(all, func(a, b choice) int {
		return cmp.Compare(netip.MustParsePrefix(b.cond.From[0]).Bits(), netip.MustParsePrefix(a.cond.From[0]).Bits())
	})
	all = merge(all)
	if def == nil {
		def = &choice{Place: d.Place} // the value is empty
	}
	return append(all, *def)
}
