package haproxy

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Criteria on what a client sends first.

// matching is how a criterion compares.
type matching struct {
	method string // of -m
	folded bool   // -i
}

// anyHTTP is what HAProxy takes for HTTP: a request in the clear, and the preface of HTTP/2, too.
var anyHTTP = []string{spec.ProtocolHTTP, "http2"}

// predefined are the ACLs that HAProxy has by itself.
var predefined = map[string]test{
	"TRUE": {}, "WAIT_END": {},
	"HTTP":        {Condition: convert.Condition{Protocols: anyHTTP}},
	"REQ_CONTENT": {Condition: convert.Condition{Content: true}},
	"RDP_COOKIE":  {Condition: convert.Condition{Protocols: []string{"rdp"}}},
}

// firstTest reads a criterion on what a client sends first; ok is false if it is none.
func firstTest(name, converters string, m matching, values []string) (t test, ok bool) {
	fetch, args, _ := strings.Cut(strings.TrimSuffix(strings.ToLower(name), ")"), "(")
	protocol := func(names ...string) test { return test{Condition: convert.Condition{Protocols: names}} }
	switch fetch {
	case "req.proto_http", "req_proto_http":
		return protocol(anyHTTP...), len(values) == 0
	case "req.ssl_hello_type", "req_ssl_hello_type":
		return protocol(spec.ProtocolTLS), compares(values, 1, 1)
	case "req.ssl_ver", "req_ssl_ver":
		if !versionTLS(values) {
			return test{why: "the version of TLS that a client speaks is not a condition of a route; protocol: tls is one of all versions"}, true
		}
		return protocol(spec.ProtocolTLS), true
	case "req.rdp_cookie", "req_rdp_cookie", "rdp_cookie":
		return protocol("rdp"), m.method == "found"
	case "req.rdp_cookie_cnt", "req_rdp_cookie_cnt", "rdp_cookie_cnt":
		return protocol("rdp"), compares(values, 1, 1<<30)
	case "req.len", "req_len":
		switch {
		case compares(values, 0, 0):
			return test{Condition: convert.Condition{Silent: true}}, true
		case compares(values, 1, 1<<30):
			return test{Condition: convert.Condition{Content: true}}, true
		}
		return test{why: name + " has no counterpart; prefix of a route waits for as many bytes as it has"}, true
	case "req.payload", "payload":
		return prefixTest(name, args, converters, m, values), true
	case "req.hdr", "hdr", "req.fhdr", "hdr_dom", "hdr_end":
		if args != "host" {
			return t, false
		}
		if i := strings.IndexByte(fetch, '_'); i > 0 {
			m.method = fetch[i+1:]
		}
		t = sniTest(m.method, values)
		t.Hosts, t.SNI, t.Protocols = t.SNI, nil, nil
		return t, true
	}
	return t, false
}

// compares reports whether numbers hold for all from least to most, and no others: "1", "gt 0", "ge 1".
func compares(values []string, least, most int) bool {
	if len(values) == 1 {
		values = []string{"eq", values[0]}
	}
	if len(values) != 2 {
		return false
	}
	n, err := strconv.Atoi(values[1])
	if err != nil {
		return false
	}
	switch values[0] {
	case "eq":
		return n == least && n == most
	case "gt":
		return n+1 == least && most == 1<<30
	case "ge":
		return n == least && most == 1<<30
	case "lt":
		return least == 0 && n == most+1
	case "le":
		return least == 0 && n == most
	}
	return false
}

// versionTLS reports whether a comparison of versions holds for all of TLS: "gt 3", "ge 3.1".
func versionTLS(values []string) bool {
	if len(values) != 2 || values[0] != "gt" && values[0] != "ge" {
		return false
	}
	major, minor, _ := strings.Cut(values[1], ".")
	return len(major) == 1 && major <= "3" && (minor == "" || minor == "0" || minor == "1" && values[0] == "ge")
}

// prefixTest turns bytes at the beginning of what a client sends into a condition.
func prefixTest(name, args, converters string, m matching, values []string) test {
	offset, length, _ := strings.Cut(args, ",")
	n, ok := convert.Count(length)
	if offset != "0" || !ok {
		return test{why: name + " has no counterpart; prefix of a route is what a client sends first"}
	}
	if converters == "hex" {
		if m.method != "" && m.method != "str" && m.method != "beg" {
			return test{why: name + ",hex -m " + m.method + " has no counterpart"}
		}
		if m.method != "beg" {
			m.method = "bin"
		}
	} else if converters != "" {
		return test{why: name + "," + converters + " has no counterpart"}
	}
	var t test
	for _, v := range values {
		b, exact := v, m.method != "beg"
		switch {
		case m.method == "bin" || converters == "hex":
			text, err := hex.DecodeString(v)
			if err != nil {
				return test{why: convert.Quote(v) + " does not consist of pairs of hexadecimal digits"}
			}
			b = string(text)
		case m.folded && strings.ToLower(v) != strings.ToUpper(v):
			return test{why: "-i has no counterpart for what a client sends first"}
		case m.method == "reg":
			text, ok := literalRE(v)
			if !ok {
				return test{why: "the regular expression " + convert.Quote(v) + " has no counterpart; ^ and plain text do"}
			}
			b, exact = text, false
		case m.method == "str", m.method == "beg":
		default:
			return test{why: strings.TrimSpace(name+" -m "+m.method) + " has no counterpart; -m str, bin and beg have"}
		}
		switch {
		case len(b) == 0 || len(b) > spec.MaxPrefix:
			return test{why: "a prefix of a route has 1 to " + strconv.Itoa(spec.MaxPrefix) + " bytes"}
		case exact && n == 0:
			return test{why: name + " -m " + m.method + " has no counterpart; -m beg, or a length, has"}
		case exact && len(b) != n, n > 0 && len(b) > n:
			return test{why: convert.Quote(v) + " never matches: " + name + " has " + strconv.Itoa(n) + " bytes"}
		}
		if !slices.Contains(t.Prefixes, b) {
			t.Prefixes = append(t.Prefixes, b)
		}
	}
	if len(t.Prefixes) == 0 {
		return test{why: name + " has nothing to be compared with"}
	}
	return t
}

// literalRE returns the text with which a regular expression says that bytes begin.
func literalRE(re string) (string, bool) {
	text, ok := strings.CutPrefix(re, "^")
	text = strings.TrimSuffix(text, ".*")
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text) && strings.IndexByte(`.-\/*+?()[]{}^$|`, text[i+1]) >= 0:
			i++
			b.WriteByte(text[i])
		case strings.IndexByte(`\.*+?()[]{}^$|`, c) >= 0:
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ok && b.Len() > 0
}

// excluded reports whether clients for which no holds are nobody here anyhow: an earlier use_backend has taken them, or none of the
// conditions holds for them.
func excluded(no convert.Condition, term []convert.Condition, earlier []use) bool {
	for _, u := range earlier {
		if u.to != "" && u.share == (convert.Share{}) && slices.ContainsFunc(u.conds, func(c convert.Condition) bool { return convert.Covers(c, no) }) {
			return true
		}
	}
	return !slices.ContainsFunc(term, func(c convert.Condition) bool {
		_, both := convert.JoinConditions(c, no)
		return both
	})
}

// Gates: rules of content that let in clients by what they send first, and refuse all others.

// required returns the condition of a rule that refuses everybody else, "if !A !B" or "unless A", as one that lets in: "if A or B".
func required(words []string) (in []string, ok bool) {
	if len(words) > 1 && words[0] == "unless" {
		return append([]string{"if"}, words[1:]...), true
	}
	if len(words) == 0 || words[0] != "if" {
		return nil, false
	}
	in = []string{"if"}
	for words = words[1:]; len(words) > 0; {
		word := words[0]
		if !strings.HasPrefix(word, "!") {
			return nil, false
		}
		if word = word[1:]; word == "" {
			if words = words[1:]; len(words) == 0 {
				return nil, false
			}
			word = words[0]
		}
		n := 1
		if word == "{" {
			if n = slices.Index(words, "}") + 1; n == 0 {
				return nil, false
			}
		}
		if len(in) > 1 {
			in = append(in, "or")
		}
		in = append(append(in, word), words[1:n]...)
		words = words[n:]
	}
	return in, len(in) > 1
}

// gate notes that only those clients are let in for which one of the conditions holds, or that a rule before has accepted.
func (h *conversion) gate(x *proxy, conds []convert.Condition) {
	x.gates = append(x.gates, append(slices.Clone(x.accepted), conds...))
	for _, r := range x.skipped {
		h.Note(r.Place, "content accept left out: %s", r.why)
	}
	x.skipped = nil
}

// A skippedRule accepts clients by what has no counterpart.
type skippedRule struct {
	convert.Place
	why string
}

// letIn returns those clients of a condition that come through all gates; ok is false if that is too complex.
func (x *proxy) letIn(c convert.Condition) (in []convert.Condition, ok bool) {
	in = []convert.Condition{c}
	for _, gate := range x.gates {
		var next []convert.Condition
		for _, c := range in {
			for _, g := range gate {
				if convert.Unknowable(c, g) {
					return nil, false
				}
				if both, ok := convert.JoinConditions(c, g); ok {
					next = append(next, both)
				}
			}
		}
		if in = next; len(in) > maxTerms {
			return nil, false
		}
	}
	return in, true
}
