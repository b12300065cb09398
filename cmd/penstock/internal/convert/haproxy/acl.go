package haproxy

import (
	"bytes"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// test is one criterion of an ACL. why is set if it has no counterpart.
type test struct {
	convert.Condition
	counts *counter // of a client's connections; what is in condition is then empty
	share  convert.Share
	why    string
}

// acl is what the lines of one name say: one of the tests must hold.
type acl struct {
	tests []test
	at    []convert.Place
	used  bool
}

// acl reads a line "acl NAME CRITERION ...".
func (h *conversion) acl(x *proxy, l *line) {
	name, words := l.next(), l.rest()
	if len(words) == 0 {
		h.Note(l.Place, "acl without a criterion")
		return
	}
	a := x.acls[name]
	if a == nil {
		a = &acl{}
		x.acls[name] = a
	}
	a.tests = append(a.tests, h.test(x, l.Place, words))
	a.at = append(a.at, l.Place)
}

// unusedACLs lists those that no rule has asked for.
func (h *conversion) unusedACLs(x *proxy) {
	for name, a := range x.acls {
		for _, at := range a.at {
			if !a.used {
				h.Note(at, "acl %s: nothing that is converted uses it", name)
			}
		}
	}
}

// named returns the tests of an ACL.
func (x *proxy) named(name string) []test {
	a := x.acls[name]
	if a == nil {
		return nil
	}
	a.used = true
	return a.tests
}

// test reads a criterion with its flags and values.
func (h *conversion) test(x *proxy, here convert.Place, words []string) test {
	name, converters := fetchOf(words[0])
	var values, large []string // large are files of networks by name
	method, folded := "", false
	for words = words[1:]; len(words) > 0 && strings.HasPrefix(words[0], "-"); words = words[1:] {
		flag := words[0]
		if flag == "--" {
			words = words[1:]
			break
		}
		folded = folded || flag == "-i"
		if (flag == "-m" || flag == "-f") && len(words) > 1 {
			words = words[1:]
			if flag == "-m" {
				method = words[0]
				continue
			}
			if name != "src" || converters != "" || method != "" && method != "ip" {
				text, why := h.ReadFile(words[0])
				if why != "" {
					return test{why: why}
				}
				values = append(values, linesOf(text)...)
				continue
			}
			text, named, why := h.ReadNetworks(words[0])
			if why != "" {
				return test{why: why}
			}
			if named != "" {
				large = append(large, named)
				continue
			}
			x.lists = append(x.lists, h.KeepList(words[0], text, ""))
			values = append(values, linesOf(text)...)
		}
	}
	values = append(values, words...)
	if c, ok := counterOf(name, converters, method, values); ok {
		return test{counts: c, why: strings.ToLower(name) + " has no counterpart in this rule" + counterHint(c)}
	}
	if s, ok := shareOf(name, converters, method, values); ok {
		return test{share: s, why: "rand has a counterpart in use_backend only, as its only condition"}
	}
	if t, ok := firstTest(name, converters, matching{method, folded}, values); ok {
		return t
	}
	if converters != "" && converters != "lower" {
		return test{why: name + "," + converters + " has no counterpart"}
	}
	switch name := strings.ToLower(name); name {
	case "req.ssl_sni", "req_ssl_sni", "ssl_fc_sni":
		x.cases = x.cases || !folded && converters != "lower"
		if name == "ssl_fc_sni" {
			return sniTest(method, values).ended()
		}
		return sniTest(method, values)
	case "ssl_fc":
		if len(values) == 0 {
			return test{Condition: convert.Condition{Ended: true}}
		}
	case "req.ssl_alpn":
		if method == "sub" {
			method = "" // of a list of what the client offers
		}
		return alpnTest(name, method, values)
	case "ssl_fc_alpn":
		return alpnTest(name, method, values).ended()
	case "src":
		from := large
		for _, v := range values {
			p, ok := convert.Prefix(v)
			if !ok {
				return test{why: convert.Quote(v) + " is not a range of addresses"}
			}
			from = append(from, p)
		}
		if len(from) > 0 {
			return test{Condition: convert.Condition{From: from}}
		}
	case "true", "always_true", "wait_end":
		if len(values) == 0 {
			return test{}
		}
	}
	fetch, _, _ := strings.Cut(name, "(")
	if hint := fetchHints[name]; hint != "" {
		return test{why: name + " has no counterpart" + hint}
	}
	return test{why: name + " has no counterpart" + fetchHints[fetch]}
}

// fetchOf divides a sample into what is fetched, with its arguments, and converters.
func fetchOf(word string) (name, converters string) {
	end := strings.IndexByte(word, ',')
	if open := strings.IndexByte(word, '('); open >= 0 && open < end {
		if end = strings.Index(word, "),"); end >= 0 {
			end++
		}
	}
	if end < 0 {
		return word, ""
	}
	return word[:end], word[end+1:]
}

var fetchHints = map[string]string{
	"src_is_local":        "",
	"dst_port":            " (a listener for each port has routes of its own)",
	"ssl_c_s_dn(cn)":      " (client-names of a route are names in the client's certificate)",
	"ssl_c_s_dn":          " (client-names of a route are names in the client's certificate)",
	"ssl_c_used":          " (client-names of a route are names in the client's certificate)",
	"ssl_c_verify":        " (with verify: optional, a client with a bad certificate is refused)",
	"nbsrv":               " (a backup member takes over when no other is up)",
	"connslots":           " (a member's max-flows and the group's queue)",
	"req.rdp_cookie":      " (balance: maglev keeps a client at its member)",
	"fe_conn":             " (limits.flows of the listener)",
	"src_get_gpc0":        "",
	"sc0_get_gpc0":        "",
	"src_http_req_rate":   " (layer 7)",
	"sc_http_req_rate(0)": " (layer 7)",
}

// sniTest turns values of req.ssl_sni into patterns.
func sniTest(method string, values []string) test {
	var t test
	for _, v := range values {
		var patterns []string
		switch method {
		case "", "str":
			patterns = []string{v}
		case "end":
			if end, ok := strings.CutPrefix(v, "."); ok {
				patterns = []string{"*." + end}
			} else {
				patterns = []string{v, "*." + v}
			}
		case "dom":
			patterns = []string{strings.Trim(v, "."), "*." + strings.Trim(v, ".")}
		default:
			return test{why: "-m " + method + " has no counterpart; a name, or *. and its end, can be matched"}
		}
		for _, s := range patterns {
			s, ok := convert.ServerName(s)
			if !ok || strings.HasPrefix(v, "*") {
				return test{why: convert.Quote(v) + " is not a server name"}
			}
			if !slices.Contains(t.SNI, s) {
				t.SNI = append(t.SNI, s)
			}
		}
	}
	if len(t.SNI) == 0 {
		return test{why: "no server names"}
	}
	return t
}

// alpnTest turns protocols into a condition.
func alpnTest(name, method string, values []string) test {
	if method != "" && method != "str" || len(values) == 0 {
		return test{why: strings.TrimSpace(name+" -m "+method) + " has no counterpart"}
	}
	for _, v := range values {
		if v == "" || len(v) > 255 || convert.OneLine(v) != v {
			return test{why: convert.Quote(v) + " is not a protocol"}
		}
	}
	return test{Condition: convert.Condition{ALPN: values}}
}

// ended makes a test of the ClientHello one of TLS that has ended here.
func (t test) ended() test {
	t.Ended = t.why == ""
	return t
}

// list reads a file with one thing per line.
func (h *conversion) list(name string) (values []string, why string) {
	text, why := h.ReadFile(name)
	return linesOf(text), why
}

func linesOf(text []byte) (values []string) {
	for line := range bytes.Lines(text) {
		if s := strings.TrimSpace(string(line)); s != "" && s[0] != '#' {
			values = append(values, s)
		}
	}
	return values
}

// maxTerms bounds the alternatives that one condition may grow to.
const maxTerms = 256

// conditions reads "if ..." or "unless ...". It returns alternatives, of which one must hold, and as negated the
// ranges, from "unless" and "!", that the client must not be in. earlier are the use_backend whose clients do not get so far.
func (h *conversion) conditions(x *proxy, here convert.Place, words []string, earlier []use) (conds []convert.Condition, negated []string, why string) {
	if len(words) == 0 {
		return []convert.Condition{{}}, nil, ""
	}
	unless := words[0] == "unless"
	if words[0] != "if" && !unless {
		return nil, nil, convert.Quoted(words) + " is not a condition"
	}
	term := []convert.Condition{{}}
	terms, negations := 0, 0
	var without []convert.Condition // what must not hold for the clients of a term
	ended := func() bool {
		for _, no := range without {
			if !excluded(no, term, earlier) {
				return false
			}
		}
		conds, term, without = append(conds, term...), []convert.Condition{{}}, nil
		terms++
		return true
	}
	for words = words[1:]; len(words) > 0; {
		word := words[0]
		words = words[1:]
		if word == "||" || word == "or" || word == "OR" {
			if !ended() {
				return nil, nil, noNegation
			}
			continue
		}
		not := false
		for strings.HasPrefix(word, "!") {
			not = !not
			if word = word[1:]; word == "" {
				if len(words) == 0 {
					return nil, nil, "nothing follows !"
				}
				word, words = words[0], words[1:]
			}
		}
		var tests []test
		if word == "{" {
			end := slices.Index(words, "}")
			if end < 1 {
				return nil, nil, "a brace does not end"
			}
			tests = []test{h.test(x, here, words[:end])}
			words = words[end+1:]
		} else if tests = x.named(word); tests == nil {
			t, ok := predefined[word]
			if !ok {
				return nil, nil, "the acl " + convert.Quote(word) + " is not known"
			}
			tests = []test{t}
		}
		if not && len(tests) == 1 && (tests[0].Content || tests[0].Silent) { // one is the other's opposite
			tests, not = []test{{Condition: convert.Condition{Content: tests[0].Silent, Silent: tests[0].Content}}}, false
		}
		if not {
			for _, t := range tests {
				switch {
				case t.why != "":
					return nil, nil, t.why
				case t.Ended:
					return nil, nil, noNegation
				case t.ByFirst() || t.ByName():
					without = append(without, t.Condition)
				case len(t.From) == 0:
					return nil, nil, noNegation
				default:
					negations++
					negated = append(negated, t.From...)
				}
			}
			continue
		}
		var next []convert.Condition
		for _, t := range tests {
			if t.why != "" {
				return nil, nil, t.why
			}
			for _, c := range term {
				if convert.Unknowable(c, t.Condition) {
					return nil, nil, "a file that is too large to be read has no counterpart together with other addresses"
				}
				if both, ok := convert.JoinConditions(c, t.Condition); ok {
					next = append(next, both)
				}
			}
		}
		if len(next)+len(conds) > maxTerms {
			return nil, nil, "the condition is too complex"
		}
		term = next
	}
	if !ended() {
		return nil, nil, noNegation
	}
	switch {
	case negations == 0 && !unless:
		return conds, nil, ""
	case negations == 0 && terms == 1 && len(conds) == 1 && onlyFrom(&conds[0]):
		return []convert.Condition{{}}, conds[0].From, "" // unless A
	case negations == 0:
		all := []string{}
		for i, c := range conds {
			if !onlyFrom(&conds[i]) {
				return nil, nil, noNegation
			}
			all = append(all, c.From...)
		}
		return []convert.Condition{{}}, all, ""
	case terms == 1 && !unless:
		return conds, negated, ""
	}
	return nil, nil, "a negated condition together with others has no counterpart"
}

// noNegation is why most conditions with "unless" and "!" are left out.
const noNegation = "a negated condition has no counterpart"

// onlyFrom reports whether a condition asks for the client's address, and nothing else.
func onlyFrom(c *convert.Condition) bool {
	return len(c.From) > 0 && !c.ByName() && !c.ByFirst() && !c.Ended && !c.Content
}

// shareOf reads a comparison with a number by chance.
func shareOf(name, converters, method string, values []string) (s convert.Share, ok bool) {
	text, called := strings.CutPrefix(name, "rand(")
	text, closed := strings.CutSuffix(text, ")")
	of, number := convert.Count(text)
	if !called || !closed || !number || of < 1 || of > spec.MaxPartWeight || converters+method != "" || len(values) != 2 {
		return s, false
	}
	n, number := convert.Count(values[1])
	n = min(n, of)
	switch values[0] { // the number is from 0 to of - 1
	case "lt":
	case "le":
		n = min(n+1, of)
	case "ge":
		n = of - n
	case "gt":
		n = max(0, of-n-1)
	default:
		return s, false
	}
	return convert.Share{N: n, Of: of}, number
}

// byChance returns the share of a condition that is nothing but a comparison with a number by chance.
func (h *conversion) byChance(x *proxy, here convert.Place, words []string) (convert.Share, bool) {
	var tests []test
	switch n := len(words); {
	case n == 2 && words[0] == "if":
		tests = x.named(words[1])
	case n > 3 && words[0] == "if" && words[1] == "{" && slices.Index(words, "}") == n-1:
		tests = []test{h.test(x, here, words[2:n-1])}
	}
	if len(tests) != 1 {
		return convert.Share{}, false
	}
	return tests[0].share, tests[0].share.Of > 0
}

// use reads a use_backend.
func (h *conversion) use(x *proxy, l *line) {
	to, words := l.next(), l.rest()
	if share, ok := h.byChance(x, l.Place, words); ok && !strings.Contains(to, "%[") {
		if share.N > 0 { // or nobody goes there
			x.uses = append(x.uses, use{l.Place, to, []convert.Condition{{}}, share})
		}
		return
	}
	conds, negated, why := h.conditions(x, l.Place, words, x.uses)
	switch {
	case why != "":
	case len(negated) > 0:
		why = "a negated condition has no counterpart; put a route for these clients in front"
	case slices.ContainsFunc(conds, func(c convert.Condition) bool { return c.Content }):
		why = "that a client has sent something is not a condition of a route; silence is: put a route with it in front"
	}
	if why != "" {
		h.Note(l.Place, "use_backend %s left out: %s", to, why)
		x.uses = append(x.uses, use{Place: l.Place})
		return
	}
	if strings.Contains(to, "%[") {
		if len(words) > 0 {
			h.Note(l.Place, "use_backend %s with a condition: no counterpart", to)
			return
		}
		h.useMap(x, l, to)
		return
	}
	x.uses = append(x.uses, use{l.Place, to, conds, convert.Share{}})
}

// useMap reads a use_backend that looks the server name up in a map.
func (h *conversion) useMap(x *proxy, l *line, to string) {
	inner, ok := strings.CutPrefix(to, "%[")
	parts := strings.SplitN(strings.TrimSuffix(inner, "]"), ",", 2)
	name := parts[0]
	if ok && len(parts) == 2 && (name == "req.ssl_sni" || name == "req_ssl_sni" || name == "ssl_fc_sni") {
		rest := strings.TrimPrefix(parts[1], "lower,")
		kind, args, called := strings.Cut(rest, "(")
		method := map[string]string{"map": "str", "map_str": "str", "map_end": "end", "map_dom": "dom"}[kind]
		args, closed := strings.CutSuffix(args, ")")
		if called && closed && method != "" {
			file, def, _ := strings.Cut(args, ",")
			text, why := h.ReadFile(strings.TrimSpace(file))
			if why != "" {
				h.Note(l.Place, "use_backend left out: %s", why)
				return
			}
			n := 0
			for line := range bytes.Lines(text) {
				n++
				pair := strings.Fields(string(line))
				if len(pair) < 2 || pair[0][0] == '#' {
					continue
				}
				t := sniTest(method, pair[:1])
				if name == "ssl_fc_sni" {
					t = t.ended()
				}
				if t.why != "" {
					h.Note(convert.Place{File: file, Line: n}, "left out: %s", t.why)
					continue
				}
				x.uses = append(x.uses, use{convert.Place{File: file, Line: n}, pair[1], []convert.Condition{t.Condition}, convert.Share{}})
			}
			if def = strings.TrimSpace(def); def != "" {
				x.uses = append(x.uses, use{l.Place, def, []convert.Condition{{}}, convert.Share{}})
				h.Note(l.Place, "use_backend: clients without a server name go to %s, too; for HAProxy's map they have nothing to look up, and it goes on to the next rule", convert.Quote(def))
			}
			return
		}
	}
	h.Note(l.Place, "use_backend %s: no counterpart; req.ssl_sni with map(FILE) is converted", to)
}
