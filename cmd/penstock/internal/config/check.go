package config

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Rules that take more than one value to see.

// defaultRoute is the name of the route of clients that no other matches.
const defaultRoute = "default"

func (r *reader) checkFile(f *file) {
	r.checkAdmin(f)
	r.checkRate(&f.Limits.Burst, f.Limits.NewFlows)
	r.checkRemoved(&f.defaults.listener.removed)
	for _, g := range f.Groups {
		r.checkGroup(g)
	}
	seen := map[spec.Endpoint]string{}
	inherited := map[string]string{}
	for _, l := range f.listeners {
		r.checkListener(l)
		if other, ok := seen[l.Listen]; ok && l.Listen.Kind != 0 && (l.Listen.Path != "" || l.Listen.Port != 0) {
			r.fail(r.at(&l.Listen, l), fault{problem: "the listener " + other + " is there already", allowed: "each address once"})
		}
		seen[l.Listen] = l.Name
		if other, ok := inherited[l.Inherit]; ok && l.Inherit != "" {
			r.fail(r.at(&l.Inherit, l), fault{problem: "the listener " + other + " has this socket already", allowed: "each socket once"})
		}
		inherited[l.Inherit] = l.Name
	}
}

func (r *reader) checkRate(burst *int, rate float64) {
	if *burst > 0 && rate == 0 {
		r.fail(r.at(burst), fault{problem: "there is no rate that this is the burst of", allowed: "burst beside new-flows"})
	}
}

func (r *reader) checkRemoved(m *spec.Removed) {
	if m.What != "drain" {
		if r.said(&m.After) || r.said(&m.Jitter) {
			r.fail(r.at(&m.After, &m.Jitter), fault{problem: "only drained flows have a deadline", allowed: "after and jitter beside live-flows: drain"})
		}
		return
	}
	if m.Jitter > m.After {
		r.fail(r.at(&m.Jitter, &m.After), fault{problem: fmt.Sprintf("the jitter of %v is longer than the %v that it is a part of", m.Jitter, m.After), allowed: "up to after"})
	}
}

func (r *reader) checkListener(l *listener) {
	if l.Inherit == "" && r.said(&l.Datagrams) {
		r.fail(r.at(&l.Datagrams), fault{problem: "the URL in listen says this already", allowed: "datagrams beside inherit"})
	}
	if known := l.Listen.Kind != 0 || l.Inherit != ""; known {
		r.checkKind(l)
	}
	r.checkRate(&l.Limits.Burst, l.Limits.NewFlows)
	r.checkRate(&l.Limits.Source.Burst, l.Limits.Source.NewFlows)
	r.checkRemoved(&l.removed)
	if len(l.Routes) == 0 && !r.said(&l.To) && (r.said(&l.Listen) || r.said(&l.Inherit)) {
		r.fail(r.at(l), fault{problem: "the listener has neither routes nor to", allowed: "to, routes, or both"})
	}
	names := map[string]bool{}
	for _, route := range l.Routes {
		r.checkRemoved(&route.Removed)
		switch {
		case route.Name == "":
		case names[route.Name] && !r.said(&route.Name):
			r.fail(r.at(&route.To, route), fault{problem: "a second route to " + plain(route.Name) + " needs a name, for a route is named after its group", allowed: "name beside to"})
		case names[route.Name]:
			r.fail(r.at(&route.Name, route), fault{problem: "the listener has a route " + plain(route.Name) + " already", allowed: "a name for each route"})
		case route.Name == defaultRoute:
			r.fail(r.at(&route.Name, route), fault{problem: "the route of the listener's own to has this name", allowed: "another name"})
		}
		names[route.Name] = true
	}
	r.checkHidden(l)
}

// checkKind finds what does not go with the kind of the listener's socket, and
// groups of the other kind.
func (r *reader) checkKind(l *listener) {
	only := func(values []any, what, allowed string) {
		for _, v := range values {
			if r.said(v) {
				r.fail(r.at(v), fault{problem: what, allowed: allowed})
			}
		}
	}
	kind := l.Listen.Kind
	if l.Datagrams {
		only([]any{&l.Backlog, &l.ProxyFrom, &l.Sniff.Max, &l.Sniff.Timeout, &l.Timeouts.HalfClosed, &l.Timeouts.FirstByte},
			"datagrams have no use for it", "a stream listener for it")
	} else {
		only([]any{&l.Replies, &l.Unreachable}, "streams have no use for it", "a datagram listener for it")
	}
	if kind != 0 && kind != spec.Unix && kind != spec.Unixgram {
		only([]any{&l.Mode}, "only a Unix socket has permissions", "a listener at unix: or unixgram: for it")
	}
	if kind == spec.Unix || kind == spec.Unixgram {
		only([]any{&l.Transparent, &l.Interface, &l.Allow, &l.Deny}, "clients of a Unix socket have no address", "a TCP or UDP listener for it")
		if strings.HasPrefix(l.Listen.Path, "@") {
			only([]any{&l.Mode}, "an abstract name has no permissions", "a path for it")
		}
	}
	if kind != 0 && kind != spec.TCP || l.Datagrams {
		only([]any{&l.TCP}, "the socket is not TCP's", "a TCP listener for it")
	}
	for _, route := range l.Routes {
		if l.Datagrams {
			only([]any{&route.SNI, &route.ALPN}, "datagrams have no ClientHello here", "sni and alpn on a stream listener")
		}
		r.checkMatches(l, &route.To, route.To)
	}
	r.checkMatches(l, &l.To, l.To)
}

// checkMatches wants streams to go to streams and datagrams to datagrams.
func (r *reader) checkMatches(l *listener, ref any, g *spec.Group) {
	if g == nil {
		return
	}
	bad := func(what, member string) {
		f := fault{problem: fmt.Sprintf("%s %s behind the stream listener %s", what, member, l.Name), allowed: "tcp:, unix:, echo: and discard: there"}
		if l.Datagrams {
			f = fault{problem: fmt.Sprintf("%s %s behind the datagram listener %s", what, member, l.Name), allowed: "udp:, unixgram:, echo: and discard: there"}
		}
		r.fail(r.at(ref), f)
	}
	fits := spec.Kind.Streams
	if l.Datagrams {
		fits = spec.Kind.Datagrams
	}
	for _, m := range g.Members {
		if m.To.Kind != 0 && !fits(m.To.Kind) {
			bad("the member", plain(m.Name))
			return
		}
	}
	for _, d := range g.Discover {
		if !fits(d.Network) {
			bad("what is discovered of", plain(d.Host+d.Service))
			return
		}
	}
	if l.Datagrams && g.Queue.Size > 0 {
		r.warn(r.at(ref), fault{problem: "the group " + plain(g.Name) + " has a queue, and datagrams cannot wait in it"})
	}
	if l.Datagrams && g.Dial.Proxy != 0 {
		r.fail(r.at(ref), fault{problem: "the group " + plain(g.Name) + " sends PROXY headers, and datagrams have none here", allowed: "a group without proxy-protocol"})
	}
}

func (r *reader) checkGroup(g *spec.Group) {
	if len(g.Members)+len(g.Discover) == 0 && r.said(g) {
		// A list that could not be read is nil, and has been reported.
		if !(r.said(&g.Members) && g.Members == nil) && !(r.said(&g.Discover) && g.Discover == nil) {
			r.fail(r.at(g), fault{problem: "the group has no members", allowed: "members, discover, or both"})
		}
		return
	}
	names := map[string]bool{}
	usable := len(g.Discover) > 0
	for i := range g.Members {
		m := &g.Members[i]
		if names[m.Name] && m.Name != "" {
			r.fail(r.at(&m.Name, m), fault{problem: "the group has a member " + plain(m.Name) + " already", allowed: "a name for each member"})
		}
		names[m.Name] = true
		usable = usable || !m.Drained
	}
	if !usable {
		r.warn(r.at(g), fault{problem: "every member is drained, so that every flow is refused"})
	}
	for i := range g.Discover {
		r.checkDiscover(&g.Discover[i])
	}
	if g.Balance == "first" {
		const problem = "it has no effect: first fills one member after the other"
		for i := range g.Members {
			if r.said(&g.Members[i].Weight) {
				r.warn(r.at(&g.Members[i].Weight), fault{problem: problem})
			}
		}
		if r.said(&g.SlowStart) {
			r.warn(r.at(&g.SlowStart), fault{problem: problem})
		}
	}
	if r.said(&g.Lookups) && len(g.Discover) == 0 && !slices.ContainsFunc(g.Members, func(m spec.Member) bool {
		return (m.To.Kind == spec.TCP || m.To.Kind == spec.UDP) && !m.To.Addr().IsValid()
	}) {
		r.warn(r.at(&g.Lookups), fault{problem: "it has no effect: the group has no names to look up"})
	}
	if g.Hash != "" && g.Balance != "maglev" {
		r.fail(r.at(&g.Hash, g), fault{problem: "only maglev goes by a hash", allowed: "hash beside balance: maglev"})
	}
	if g.Dial.Proxy == 1 && (len(g.Dial.ProxyTLVs) > 0 || g.Dial.ProxySNI) {
		r.fail(r.at(&g.Dial.ProxyTLVs, &g.Dial.ProxySNI), fault{problem: "version 1 has no TLVs", allowed: "tlvs and names beside version: 2"})
	}
	if g.Timeouts.Retries != 0 && g.Timeouts.Retries < g.Timeouts.Connect && r.said(&g.Timeouts.Retries) {
		r.warn(r.at(&g.Timeouts.Retries), fault{problem: fmt.Sprintf("it ends before the first attempt to connect does, which may take %v", g.Timeouts.Connect)})
	}
	r.checkCheck(g)
	if e := g.Eject; e != nil && e.Max < e.For {
		r.fail(r.at(&e.Max, &e.For, g), fault{problem: fmt.Sprintf("max is %v and shorter than for, which is %v", e.Max, e.For), allowed: "max of for or longer"})
	}
}

func (r *reader) checkDiscover(d *spec.Discover) {
	if d.Service != "" {
		if r.said(&d.Port) || r.said(&d.Network) {
			r.fail(r.at(&d.Port, &d.Network), fault{problem: "SRV records say it themselves", allowed: "port and network beside dns"})
		}
	} else if d.Host != "" && !r.said(&d.Port) {
		r.fail(r.at(d), fault{problem: "the key port is missing", allowed: "a port beside dns"})
	}
}

func (r *reader) checkCheck(g *spec.Group) {
	c := g.Check
	if c == nil {
		return
	}
	if c.Timeout > c.Every && r.said(&c.Timeout) {
		r.warn(r.at(&c.Timeout), fault{problem: fmt.Sprintf("an answer may take longer than the %v from one check to the next", c.Every)})
	}
	if bad := misfit(g); bad != nil {
		at := r.at(&c.Kind, g)
		if c.Port != 0 {
			at = r.at(&c.Port, g)
		}
		r.fail(at, *bad)
	}
}

// misfit says why a group's check cannot be made of one of its members.
func misfit(g *spec.Group) *fault {
	c := g.Check
	if c == nil {
		return nil
	}
	for _, m := range g.Members {
		switch k := m.To.Kind; {
		case c.Port != 0 && (k == spec.Unix || k == spec.Unixgram):
			return &fault{problem: "the member " + plain(m.Name) + " is a Unix socket and has no port", allowed: "a group of TCP or UDP members for it"}
		case c.Port != 0 || k == 0:
		case c.Kind == "udp" && !k.Datagrams():
			return &fault{problem: "the member " + plain(m.Name) + " takes no datagrams", allowed: "tcp, send-expect or http, or udp with a port of its own"}
		case c.Kind != "udp" && !k.Streams():
			return &fault{problem: "the member " + plain(m.Name) + " takes no streams", allowed: "udp, or " + c.Kind + " with a port of its own"}
		}
	}
	for _, d := range g.Discover {
		if c.Port == 0 && (c.Kind == "udp") != (d.Network == spec.UDP) {
			return &fault{problem: "what is discovered of " + plain(d.Host+d.Service) + " is not asked that way", allowed: "udp for datagrams, the others for streams, or a port of its own"}
		}
	}
	return nil
}

// Tokens.

// maxToken bounds a token, in bytes; minToken is what a person can hardly guess.
const (
	minToken = 16
	maxToken = 4096
)

func (r *reader) checkAdmin(f *file) {
	a := &f.Admin
	switch {
	case a.Listen.Kind == 0:
		return
	case a.Listen.Kind.Datagrams():
		r.fail(r.at(&a.Listen), fault{problem: "requests do not come as datagrams", allowed: "tcp://HOST:PORT, unix:///PATH, unix:@NAME"})
		return
	}
	if a.Listen.Kind == spec.TCP {
		if !r.said(&f.tokens.all) {
			r.fail(r.at(&a.Listen), fault{problem: "everybody on this host could ask over TCP", allowed: "token-file beside a TCP address, or a Unix socket"})
		}
		if ip := a.Listen.Addr().Addr(); !ip.IsLoopback() && a.Listen.Host != "localhost" {
			r.warn(r.at(&a.Listen), fault{problem: "tokens go over the network in the clear", allowed: "a loopback address, or a Unix socket"})
		}
		if r.said(&a.Mode) {
			r.fail(r.at(&a.Mode), fault{problem: "only a Unix socket has permissions", allowed: "mode beside a Unix socket"})
		}
	}
	a.Token = r.token(&f.tokens.all)
	a.ReadToken = r.token(&f.tokens.read)
	if a.Token != "" && a.Token == a.ReadToken {
		r.fail(r.at(&f.tokens.read), fault{problem: "the token for reading allows everything: it is that of token-file", allowed: "another token"})
	}
}

// token reads the file that path names, if it names one and files are read.
func (r *reader) token(path *string) string {
	if *path == "" || r.secrets == nil {
		return ""
	}
	text, err := r.secrets(*path)
	if err != nil {
		if os.IsNotExist(err) {
			err = fmt.Errorf("there is no such file")
		}
		r.fail(r.at(path), fault{problem: plain(*path) + ": " + oneLine(err.Error()), allowed: "a file with a token"})
		return ""
	}
	token := strings.TrimSpace(string(text))
	printable := strings.IndexFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
	if !printable || len(token) < minToken || len(token) > maxToken {
		r.fail(r.at(path), fault{problem: plain(*path) + ": there is no token in it", allowed: fmt.Sprintf("one line of %d to %d letters, digits and signs", minToken, maxToken)})
		return ""
	}
	return token
}

// covers tells whether every address of b is in one of the ranges a.
func covers(a, b []netip.Prefix) bool {
	for _, p := range b {
		in := false
		for _, q := range a {
			if q.Bits() <= p.Bits() && q.Contains(p.Addr()) {
				in = true
				break
			}
		}
		if !in {
			return false
		}
	}
	return true
}
