package config

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// firstKeys are the conditions of a route on the client's first bytes, besides those on TLS.
var firstKeys = []key[spec.Route]{
	field("protocol", nonEmptyList(oneOf(spec.Protocols[:]...)), "", "What the client speaks by its first bytes, one of these; http is HTTP/1, http2 HTTP/2 in the clear. Where TLS ends at the listener, the first bytes are those of TLS.", func(r *spec.Route) *[]string { return &r.Protocols }),
	field("prefix", nonEmptyList(octets(spec.MaxPrefix)), "", "What the client's first bytes are: a string, or hex: and digits; one of these.", func(r *spec.Route) *[][]byte { return &r.Prefixes }),
	field("host", nonEmptyList(serverName), "", "Hosts of HTTP/1 that match: of the field Host or the address of the first request, without the port. A leading *. matches one or more labels.", func(r *spec.Route) *[]string { return &r.Hosts }),
	field("silence", duration(time.Millisecond, ""), "", "The route is for clients that send nothing for this long, as those do that wait for the server's first words: SMTP, MySQL, some of SSH.", func(r *spec.Route) *time.Duration { return &r.Silence }),
}

// checkFirst reports conditions on first bytes that do not fit the listener or each other.
func (r *reader) checkFirst(l *listener, route *spec.Route) {
	if !route.AsksFirst() {
		return
	}
	at := r.position(&route.Protocols, &route.Prefixes, &route.Hosts, &route.Silence)
	named := len(route.SNI)+len(route.ALPN) > 0
	switch {
	case l.Datagrams:
		r.fail(at, fault{problem: "does not apply to datagrams", allowed: "on stream listeners only"})
	case l.StartTLS.Protocol != "":
		r.fail(at, fault{problem: "starttls of the listener says what clients begin with", allowed: "a listener without starttls"})
	case l.TLS != nil && !route.PassTLS:
		r.fail(at, fault{problem: "TLS ends at the listener, and what is inside is not looked at; these are conditions on what the client sends before", allowed: "together with tls: pass; sni and alpn where TLS ends"})
	case named && len(route.Protocols) > 0 && !slices.Contains(route.Protocols, spec.ProtocolTLS):
		r.fail(r.position(&route.Protocols), fault{problem: "no client matches: those with sni or alpn speak tls", allowed: "protocol: tls, or none"})
	case named && len(route.Hosts) > 0:
		r.fail(r.position(&route.Hosts), fault{problem: "no client matches: sni and alpn are of TLS, and host is of HTTP in the clear", allowed: "two routes"})
	case len(route.Hosts) > 0 && len(route.Protocols) > 0 && !slices.Contains(route.Protocols, spec.ProtocolHTTP):
		r.fail(r.position(&route.Protocols), fault{problem: "no client matches: those with a host speak http", allowed: "protocol: http, or none"})
	case route.Silence > 0 && (named || len(route.Protocols)+len(route.Prefixes)+len(route.Hosts) > 0):
		r.fail(r.position(&route.Silence), fault{problem: "no client matches: one that sends nothing meets no other condition on what it sends", allowed: "two routes"})
	case route.Silence > l.Sniff.Timeout:
		r.fail(r.position(&route.Silence), fault{problem: fmt.Sprintf("clients are routed after the %s of sniff.timeout at the latest", brief(l.Sniff.Timeout)), allowed: "up to " + brief(l.Sniff.Timeout) + ", or a longer sniff.timeout"})
	}
	for _, p := range route.Prefixes {
		if len(p) > l.Sniff.Max {
			r.fail(r.position(&route.Prefixes), fault{problem: fmt.Sprintf("longer than sniff.max, %d bytes", l.Sniff.Max)})
		}
	}
}

// speaks returns the protocols of a route's clients; nil: any.
func speaks(route *spec.Route) []string {
	switch {
	case len(route.Protocols) > 0:
		return route.Protocols
	case len(route.SNI)+len(route.ALPN) > 0:
		return []string{spec.ProtocolTLS}
	case len(route.Hosts) > 0:
		return []string{spec.ProtocolHTTP}
	}
	return nil
}

// hidesFirst reports whether the conditions of a on first bytes hold for all clients for which those of b hold.
func hidesFirst(a, b *spec.Route) bool {
	if of := speaks(b); len(a.Protocols) > 0 && (len(of) == 0 || !allMatch(of, func(p string) bool { return slices.Contains(a.Protocols, p) })) {
		return false
	}
	if len(a.Prefixes) > 0 && (len(b.Prefixes) == 0 || !allMatch(b.Prefixes, func(p []byte) bool {
		return slices.ContainsFunc(a.Prefixes, func(shorter []byte) bool { return bytes.HasPrefix(p, shorter) })
	})) {
		return false
	}
	if len(a.Hosts) > 0 && (len(b.Hosts) == 0 || !allMatch(b.Hosts, func(name string) bool {
		return slices.ContainsFunc(a.Hosts, func(pattern string) bool { return takes(pattern, name) })
	})) {
		return false
	}
	return a.Silence == 0 || b.Silence >= a.Silence
}

// firstKeysOf returns the index keys of a route's conditions on first bytes, for routes that it may hide.
func firstKeysOf(route *spec.Route) (keys []string) {
	switch {
	case len(route.Hosts) > 0:
		for _, name := range route.Hosts {
			keys = append(keys, "host "+name)
		}
	case len(route.Protocols) > 0:
		for _, p := range route.Protocols {
			keys = append(keys, "protocol "+p)
		}
	case len(route.Prefixes) > 0:
		keys = append(keys, "prefix")
	case route.Silence > 0:
		keys = append(keys, "silence")
	}
	return keys
}

// widerFirst returns the index keys of routes with conditions on first bytes that may hide this one.
func widerFirst(route *spec.Route) (keys []string) {
	if len(route.Hosts) > 0 {
		keys = append(keys, "host "+route.Hosts[0])
		for rest := strings.TrimPrefix(route.Hosts[0], "*."); ; {
			_, after, ok := strings.Cut(rest, ".")
			if !ok {
				break
			}
			keys = append(keys, "host *."+after)
			rest = after
		}
	}
	if of := speaks(route); len(of) > 0 {
		keys = append(keys, "protocol "+of[0])
	}
	if len(route.Prefixes) > 0 {
		keys = append(keys, "prefix")
	}
	if route.Silence > 0 {
		keys = append(keys, "silence")
	}
	return keys
}

// checkLater reports earlier routes for clients that send nothing for longer than those of this one: these are routed by then.
func (r *reader) checkLater(l *listener, route *spec.Route, earlier []*spec.Route) {
	for _, longer := range earlier {
		if longer.Silence > route.Silence && l.hides(route, longer) {
			r.fail(r.position(&longer.Silence), fault{problem: fmt.Sprintf("unreachable: the route %s takes the same clients after %s", plain(route.Name), brief(route.Silence)), allowed: "one of the two"})
		}
	}
}
