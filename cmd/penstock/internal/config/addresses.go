package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

const addressPattern = `([0-9]+(\.[0-9]+){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)`

// parsePrefix parses a range of addresses. IPv4-mapped IPv6 addresses are read as IPv4 addresses.
func parsePrefix(text, tag string) (p netip.Prefix, f *fault) {
	if f := notString(text, tag); f != nil {
		return p, f
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, faultf("invalid address or range %s", quote(text))
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return p, faultf("the range %s is larger than all IPv4-mapped addresses", quote(text))
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return p, &fault{problem: fmt.Sprintf("%s has address bits set beyond its prefix length", quote(text)), near: p.Masked().String()}
	}
	return p, nil
}

// network is a prefix, or the name of a list.
var network = scalar("network", "an address, a range such as 10.0.0.0/8 or 2001:db8::/32, or list:NAME with the name of one of lists", map[string]any{"type": "string", "pattern": `^(` + addressPattern + `(/[0-9]+)?|list:[A-Za-z0-9_][A-Za-z0-9_.-]{0,62})$`},
	func(text, tag string) (n spec.Network, f *fault) {
		if name, ok := strings.CutPrefix(text, spec.ListPrefix); ok && tag == "!!str" {
			if !nameRE.MatchString(name) {
				return n, faultf("invalid name of a list %s", quote(name))
			}
			return spec.Network{List: name}, nil
		}
		n.Prefix, f = parsePrefix(text, tag)
		return n, f
	})

var address = scalar("address", "an IPv4 or IPv6 address", map[string]any{"type": "string", "pattern": `^` + addressPattern + `$`},
	func(text, tag string) (a netip.Addr, f *fault) {
		if f := notString(text, tag); f != nil {
			return a, f
		}
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return a, faultf("invalid address %s", quote(text))
		}
		return a.Unmap(), nil
	})

const urlPattern = `(tcp|udp)://.*:[0-9]+(-[0-9]+)?|unix(gram)?:(///|@).+`

var (
	listenEndpoint   = endpoint("URL to listen on", `^(`+urlPattern+`)$`, spec.ParseListener)
	upstreamEndpoint = endpoint("URL to connect to", upstreamPattern, spec.ParseUpstream)
)

const upstreamPattern = `^(` + urlPattern + `|echo:|discard:)$`

func endpoint(name, pattern string, parse func(string) (spec.Endpoint, error)) typ[spec.Endpoint] {
	_, err := parse("")
	var empty *spec.Error
	errors.As(err, &empty)
	of := texts(name, empty.Allowed, pattern, func(s string) (spec.Endpoint, *fault) { return parseURL(s, parse) })
	read := of.read
	of.read = func(r *reader, n node, e *spec.Endpoint) {
		if near := nearURL(n.Value, parse); n.Tag == "!!int" && near != "" {
			r.fail(n.at, fault{problem: quote(n.Value) + " is a port alone", near: near, allowed: empty.Allowed})
			return
		}
		read(r, n, e)
	}
	return of
}

func parseUpstream(s string) (spec.Endpoint, *fault) { return parseURL(s, spec.ParseUpstream) }

func parseURL(s string, parse func(string) (spec.Endpoint, error)) (spec.Endpoint, *fault) {
	e, err := parse(s)
	if bad := (*spec.Error)(nil); errors.As(err, &bad) {
		return e, &fault{problem: quote(bad.Text) + ": " + bad.Problem, near: nearURL(s, parse)}
	}
	return e, nil
}

// host is a host name or an address.
var host = texts("host", "a name or an address", `^[A-Za-z0-9_:.-]+$`, func(s string) (string, *fault) {
	inURL := s
	if strings.Contains(s, ":") {
		inURL = "[" + s + "]"
	}
	if e, err := spec.ParseUpstream("tcp://" + inURL + ":1"); err != nil || e.Host != s {
		return "", faultf("%s is neither a host name nor an address", quote(s))
	}
	return s, nil
})

// domain reports whether s is a DNS name in ASCII form.
func domain(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return false
		}
	}
	return true
}

var service = texts("service", "_NAME._tcp.DOMAIN or _NAME._udp.DOMAIN", `^_[A-Za-z0-9-]+\._(tcp|udp)\..+$`, func(s string) (string, *fault) {
	if !domain(s) {
		return "", faultf("invalid DNS name %s", quote(s))
	}
	return s, nil
})

// serverName is a name that a ClientHello may contain, or a pattern of such names that begins
// with "*.".
var serverName = texts("server name", "a name such as www.example.org, or *.example.org for all names below example.org", `^(\*\.)?[A-Za-z0-9_.-]+$`,
	func(s string) (string, *fault) {
		name := strings.TrimPrefix(s, "*.")
		f := faultf("invalid server name %s", quote(s))
		if s == "*" {
			return "", &fault{problem: "every name is no condition", allowed: "a name, or *.example.org; to of the listener takes the clients that no route matches"}
		}
		if _, err := netip.ParseAddr(name); err == nil {
			return "", faultf("%s is an address; only names match", quote(s))
		}
		if trimmed := strings.TrimSuffix(name, "."); trimmed != name && domain(trimmed) {
			f.near = strings.TrimSuffix(s, ".")
			return "", f
		}
		if !domain(name) {
			for _, r := range s {
				if r > 127 {
					return "", faultf("%s is not in ASCII form, which begins with xn--", quote(s))
				}
			}
			return "", f
		}
		return strings.ToLower(s), nil
	})
