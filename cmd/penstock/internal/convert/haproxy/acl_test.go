package haproxy

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// text writes the fields of conditions that are set.
func text(conds []convert.Condition) string {
	var list []string
	for _, c := range conds {
		var fields []string
		for v, i := reflect.ValueOf(c), 0; i < v.NumField(); i++ {
			if !v.Field(i).IsZero() {
				fields = append(fields, fmt.Sprint(v.Type().Field(i).Name, ":", v.Field(i)))
			}
		}
		list = append(list, "{"+strings.Join(fields, " ")+"}")
	}
	return strings.Join(list, " or ")
}

// Conditions of HAProxy, and what becomes of them.
func TestConditions(t *testing.T) {
	h := &conversion{Plan: convert.NewPlan(convert.Source{})}
	x := &proxy{acls: map[string]*acl{}}
	for _, words := range [][]string{
		{"acl", "a", "req.ssl_sni", "-i", "A.example.org"}, {"acl", "sub", "req.ssl_sni", "-m", "end", ".example.org"},
		{"acl", "net", "src", "10.0.0.0/8"}, {"acl", "net", "src", "192.0.2.0/24"}, {"acl", "one", "src", "10.0.0.1"}, {"acl", "bad", "dst_port", "1"},
		{"acl", "tls", "req.ssl_hello_type", "1"}, {"acl", "ssh", "req.payload(0,4)", "-m", "bin", "5353482d"},
	} {
		h.acl(x, &line{words: words, read: 1})
	}
	for condition, want := range map[string]string{
		"if a":                                 "{SNI:[a.example.org]} []",
		"if a net":                             "{From:[10.0.0.0/8] SNI:[a.example.org]} or {From:[192.0.2.0/24] SNI:[a.example.org]} []",
		"if a sub":                             "{SNI:[a.example.org]} []",
		"if net one":                           "{From:[10.0.0.1/32]} []",
		"if a or one":                          "{SNI:[a.example.org]} or {From:[10.0.0.1/32]} []",
		"if { src 10.0.0.1 } || { src ::1 }":   "{From:[10.0.0.1/32]} or {From:[::1/128]} []",
		"if !net":                              "{} [10.0.0.0/8 192.0.2.0/24]",
		"if ! one":                             "{} [10.0.0.1/32]",
		"unless one":                           "{} [10.0.0.1/32]",
		"unless net":                           "{} [10.0.0.0/8 192.0.2.0/24]",
		"if a !one":                            "{SNI:[a.example.org]} [10.0.0.1/32]",
		"if !a":                                noNegation,
		"if !one or a":                         "a negated condition together with others has no counterpart",
		"if bad":                               "dst_port has no counterpart (a listener for each port has routes of its own)",
		"if nobody":                            "the acl nobody is not known",
		"if { src 10.0.0.1":                    "a brace does not end",
		"if { req.ssl_sni b.org } { src ::1 }": "{From:[::1/128] SNI:[b.org]} []",
		"if { req.ssl_sni b.org } a":           " []",

		"if tls":                          "{Protocols:[tls]} []",
		"if tls a":                        "{SNI:[a.example.org]} []",
		"if tls or HTTP":                  "{Protocols:[tls]} or {Protocols:[http http2]} []",
		"if tls HTTP":                     " []",
		"if a HTTP":                       " []",
		"if ssh":                          "{Prefixes:[SSH-]} []",
		"if ssh !tls !HTTP":               "{Prefixes:[SSH-]} []",
		"if ssh tls":                      " []",
		"if HTTP !ssh":                    "{Protocols:[http http2]} []",
		"if one !tls":                     noNegation,
		"unless tls":                      noNegation,
		"if { req.len 0 }":                "{Silent:true} []",
		"if !REQ_CONTENT":                 "{Silent:true} []",
		"if ! { req.len gt 0 } one":       "{From:[10.0.0.1/32] Silent:true} []",
		"if { req.len eq 0 } ssh":         " []",
		"if ssh !{ req.len lt 1 }":        "{Prefixes:[SSH-]} []",
		"if { req.hdr(host) A.org } HTTP": "{Hosts:[a.org]} []",
		"if { hdr_end(host) .b.org }":     "{Hosts:[*.b.org]} []",
		"if { req.hdr(host) a.org } tls":  " []",
		"if { req.hdr(user-agent) x }":    "req.hdr(user-agent) has no counterpart",
		"if { req_ssl_ver ge 3.1 }":       "{Protocols:[tls]} []",
		"if RDP_COOKIE":                   "{Protocols:[rdp]} []",

		"if { payload(0,3) -m reg ^a\\.b }":          "{Prefixes:[a.b]} []",
		"if { req.payload(0,4) -m beg SS } ssh":      "{Prefixes:[SSH-]} []",
		"if { req.payload(0,2),hex 5353 } { src ::1": "a brace does not end",
		"if { req.payload(0,2),hex 5353 5354 }":      "{Prefixes:[SS ST]} []",
	} {
		words, _ := (&lexer{Plan: h.Plan}).words(convert.Place{}, strings.ReplaceAll(condition, `\`, `\\`))
		conds, negated, why := h.conditions(x, convert.Place{}, words, x.uses)
		got := fmt.Sprint(text(conds), " ", negated)
		if why != "" {
			got = why
		}
		if got != want {
			t.Errorf("%s: %s, want %s", condition, got, want)
		}
	}
}

// A negated condition holds where an earlier use_backend has taken all clients of what is negated.
func TestNegatedAfterTaken(t *testing.T) {
	h := &conversion{Plan: convert.NewPlan(convert.Source{})}
	x := &proxy{acls: map[string]*acl{}}
	tls := convert.Condition{Protocols: []string{"tls"}}
	for _, c := range []struct {
		use  use
		want string
	}{
		{use{to: "a", conds: []convert.Condition{tls}}, ""},
		{use{to: "a", conds: []convert.Condition{{Protocols: []string{"http", "tls"}}}}, ""},
		{use{to: "a", conds: []convert.Condition{tls}, share: convert.Share{N: 1, Of: 2}}, noNegation},
		{use{conds: []convert.Condition{tls}}, noNegation}, // it was left out
		{use{to: "a", conds: []convert.Condition{{From: []string{"10.0.0.0/8"}, Protocols: []string{"tls"}}}}, noNegation},
	} {
		x.uses = []use{c.use}
		if _, _, why := h.conditions(x, convert.Place{}, []string{"if", "!", "{", "req.ssl_hello_type", "1", "}"}, x.uses); why != c.want {
			t.Errorf("%+v: %q, want %q", c.use, why, c.want)
		}
	}
}

// A file of networks is a list where it is whole, and copied where it is not, or where its absolute path is not known.
func TestListFiles(t *testing.T) {
	files := map[string]string{"/etc/a.lst": "10.0.0.0/8\n192.0.2.1\n", "b.lst": "10.1.0.0/16\n", "/etc/c.lst": "10.2.0.0/255.255.0.0\n", "/etc/empty.lst": "# nobody\n"}
	src := convert.Source{Read: func(name string) ([]convert.File, error) {
		if text, ok := files[name]; ok {
			return []convert.File{{Name: name, Text: []byte(text)}}, nil
		}
		return nil, os.ErrNotExist
	}}
	for rule, want := range map[string][]string{
		"reject if { src -f /etc/a.lst }":                    {"lists:\n  a: {file: /etc/a.lst}\n", `deny: [list:a]`},
		"reject if { src -f b.lst }":                         {"deny: [10.1.0.0/16]"},
		"reject if { src -f /etc/c.lst }":                    {"deny: [10.2.0.0/16]"},
		"reject if { src -f /etc/a.lst } { src 10.0.0.0/9 }": {"deny: [10.0.0.0/9]"},
		"expect-proxy layer4 if { src -f /etc/a.lst }":       {`from: [list:a]`},
	} {
		result, err := Reader.Convert([]convert.File{{Name: "haproxy.cfg", Text: []byte("defaults\n mode tcp\n timeout connect 1s\n timeout client 1m\n timeout server 1m\nlisten a\n bind 127.0.0.1:1\n tcp-request connection " + rule + "\n server s 10.0.0.1:1\n")}}, src)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range want {
			if !strings.Contains(string(result.YAML), s) {
				t.Errorf("%s: no %q in\n%s%v", rule, s, result.YAML, result.Notes)
			}
		}
		if strings.Contains(want[0], "lists:") != strings.Contains(string(result.YAML), "lists:") && !strings.Contains(want[0], "list:") {
			t.Errorf("%s:\n%s", rule, result.YAML)
		}
	}
}
