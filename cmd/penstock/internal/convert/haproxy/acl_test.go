package haproxy

import (
	"fmt"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// Conditions of HAProxy, and what becomes of them.
func TestConditions(t *testing.T) {
	h := &conversion{Plan: convert.NewPlan(convert.Source{})}
	x := &proxy{acls: map[string]*acl{}}
	for _, words := range [][]string{
		{"acl", "a", "req.ssl_sni", "-i", "A.example.org"}, {"acl", "sub", "req.ssl_sni", "-m", "end", ".example.org"},
		{"acl", "net", "src", "10.0.0.0/8"}, {"acl", "net", "src", "192.0.2.0/24"}, {"acl", "one", "src", "10.0.0.1"}, {"acl", "bad", "dst_port", "1"},
	} {
		h.acl(x, &line{words: words, read: 1})
	}
	for text, want := range map[string]string{
		"if a":                                 "[{[] [a.example.org] [] true false}] []",
		"if a net":                             "[{[10.0.0.0/8] [a.example.org] [] true false} {[192.0.2.0/24] [a.example.org] [] true false}] []",
		"if a sub":                             "[{[] [a.example.org] [] true false}] []",
		"if net one":                           "[{[10.0.0.1/32] [] [] false false}] []",
		"if a or one":                          "[{[] [a.example.org] [] true false} {[10.0.0.1/32] [] [] false false}] []",
		"if { src 10.0.0.1 } || { src ::1 }":   "[{[10.0.0.1/32] [] [] false false} {[::1/128] [] [] false false}] []",
		"if !net":                              "[{[] [] [] false false}] [10.0.0.0/8 192.0.2.0/24]",
		"if ! one":                             "[{[] [] [] false false}] [10.0.0.1/32]",
		"unless one":                           "[{[] [] [] false false}] [10.0.0.1/32]",
		"unless net":                           "[{[] [] [] false false}] [10.0.0.0/8 192.0.2.0/24]",
		"if a !one":                            "[{[] [a.example.org] [] true false}] [10.0.0.1/32]",
		"if !a":                                "a negated condition has no counterpart",
		"if !one or a":                         "a negated condition together with others has no counterpart",
		"if bad":                               "dst_port has no counterpart (a listener for each port has routes of its own)",
		"if nobody":                            "the acl nobody is not known",
		"if { src 10.0.0.1":                    "a brace does not end",
		"if { req.ssl_sni b.org } { src ::1 }": "[{[::1/128] [b.org] [] true false}] []",
		"if { req.ssl_sni b.org } a":           "[] []",
	} {
		words, _ := (&lexer{Plan: h.Plan}).words(convert.Place{}, text)
		conds, negated, why := h.conditions(x, convert.Place{}, words)
		got := fmt.Sprint(conds, " ", negated)
		if why != "" {
			got = why
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
