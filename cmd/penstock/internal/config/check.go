package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Checks that involve more than one value.

// defaultRoute is the name of the route for clients that match no other route.
const defaultRoute = "default"

func (r *reader) checkFile(f *file) {
	r.checkAdmin(f)
	r.checkRate(&f.Limits.Burst, f.Limits.NewFlows)
	r.checkRemoved(&f.defaults.listener.removed)
	r.checkRemoved(&f.defaults.group.Down)
	r.checkRemoved(&f.defaults.group.Up)
	for _, g := range f.Groups {
		r.checkGroup(g)
	}
	r.checkPorts(f)
	r.checkLists(f)
	inherited := map[string]string{}
	for _, l := range f.listeners {
		r.checkListener(l)
		if other, ok := inherited[l.Inherit]; ok && l.Inherit != "" {
			r.fail(r.position(&l.Inherit, l), fault{problem: "the listener " + other + " already uses this socket", allowed: "each socket once"})
		}
		inherited[l.Inherit] = l.Name
	}
	r.checkOriginal(f)
}

// checkPorts reports addresses that two listeners have, and too many ports in ranges.
func (r *reader) checkPorts(f *file) {
	seen := map[spec.Endpoint]string{}
	total, udp := 0, 0
	for _, l := range f.listeners {
		ports := l.Listen.Ports()
		total += ports
		if l.Listen.Kind == spec.UDP {
			udp += ports
		}
		if total > spec.MaxPorts || udp > spec.MaxUDPPorts {
			r.fail(r.position(&l.Listen, l), fault{problem: fmt.Sprintf("the listeners up to this one have %d ports, %d of them UDP", total, udp), allowed: fmt.Sprintf("up to %d in all listeners together, up to %d of them UDP", spec.MaxPorts, spec.MaxUDPPorts)})
			return
		}
		if l.Listen.Kind == 0 || l.Listen.Path == "" && l.Listen.Port == 0 {
			continue
		}
		for i := range ports {
			at := l.Listen.At(i)
			if other, ok := seen[at]; ok {
				problem := "the listener " + other + " already has this address"
				if ports > 1 {
					problem = fmt.Sprintf("the listener %s already has the port %d", other, at.Port)
				}
				r.fail(r.position(&l.Listen, l), fault{problem: problem, allowed: "each address once"})
				break
			}
			seen[at] = l.Name
		}
	}
}

func (r *reader) checkRate(burst *int, rate float64) {
	if *burst > 0 && rate == 0 {
		r.fail(r.position(burst), fault{problem: "has no effect without new-flows", allowed: "burst together with new-flows"})
	}
}

func (r *reader) checkRemoved(m *spec.LiveFlows) {
	if m.What != "drain" {
		if r.isSet(&m.After) || r.isSet(&m.Jitter) {
			r.fail(r.position(&m.After, &m.Jitter), fault{problem: "only drained flows have a deadline", allowed: "after and jitter together with live-flows: drain"})
		}
		return
	}
	if m.Jitter > m.After {
		r.fail(r.position(&m.Jitter, &m.After), fault{problem: fmt.Sprintf("the jitter of %s is longer than the deadline of %s", brief(m.Jitter), brief(m.After)), allowed: "a jitter up to the value of after"})
	}
}

func (r *reader) checkLife(t *spec.Timeouts) {
	switch {
	case t.LifeJitter > 0 && t.Life == 0:
		r.warnNoEffect("flows have no maximum duration", &t.LifeJitter)
	case t.LifeJitter > t.Life:
		r.fail(r.position(&t.LifeJitter, &t.Life), fault{problem: fmt.Sprintf("the jitter of %s is longer than the life of %s", brief(t.LifeJitter), brief(t.Life)), allowed: "a jitter up to the value of life"})
	}
}

func (r *reader) checkListener(l *listener) {
	if l.Inherit == "" && r.isSet(&l.Datagrams) {
		r.fail(r.position(&l.Datagrams), fault{problem: "the URL in listen already determines this", allowed: "datagrams together with inherit"})
	}
	if known := l.Listen.Kind != 0 || l.Inherit != ""; known {
		r.checkKind(l)
	}
	r.checkTLS(l)
	r.checkRate(&l.Limits.Burst, l.Limits.NewFlows)
	r.checkRate(&l.Limits.Source.Burst, l.Limits.Source.NewFlows)
	r.checkRate(&l.Limits.Client.Burst, l.Limits.Client.NewFlows)
	r.checkRemoved(&l.removed)
	r.checkLife(&l.Timeouts)
	r.checkSplit(l, &l.To, &l.SplitBy)
	if len(l.Routes) == 0 && !r.isSet(&l.To) && (r.isSet(&l.Listen) || r.isSet(&l.Inherit)) {
		r.fail(r.position(l), fault{problem: "the listener has neither routes nor to", allowed: "routes, to, or both"})
	}
	names := map[string]bool{}
	for _, route := range l.Routes {
		r.checkRemoved(&route.Removed)
		r.checkLife(&route.Timeouts)
		r.checkSplit(l, &route.To, &route.SplitBy)
		switch {
		case len(route.To) > 1 && !r.isSet(&route.Name):
			r.fail(r.position(&route.To, route), fault{problem: "a route with several parts needs a name", allowed: "name together with to"})
		case route.Name == "":
		case names[route.Name] && !r.isSet(&route.Name):
			r.fail(r.position(&route.To, route), fault{problem: "a second route to " + plain(route.Name) + " needs a name: routes are named after their group by default", allowed: "name together with to"})
		case names[route.Name]:
			r.fail(r.position(&route.Name, route), fault{problem: "the listener already has a route named " + plain(route.Name), allowed: "a different name for each route"})
		case route.Name == defaultRoute:
			r.fail(r.position(&route.Name, route), fault{problem: "this name is reserved for the route that the listener's own to makes", allowed: "another name"})
		}
		names[route.Name] = true
	}
	r.checkHidden(l)
}

// checkKind reports keys that do not fit the kind of the listener's socket, and
// groups that do not.
func (r *reader) checkKind(l *listener) {
	only := func(values []any, what, allowed string) {
		for _, v := range values {
			if r.isSet(v) {
				r.fail(r.position(v), fault{problem: what, allowed: allowed})
			}
		}
	}
	kind := l.Listen.Kind
	if l.Datagrams {
		only([]any{&l.Backlog, &l.Timeouts.HalfClosed, &l.Timeouts.FirstByte}, "does not apply to datagrams", "on stream listeners only")
	} else {
		only([]any{&l.Replies, &l.Amplification, &l.Unreachable, &l.TOS, &l.ProxyFirst}, "does not apply to streams", "on datagram listeners only")
	}
	if kind != 0 && kind != spec.Unix && kind != spec.Unixgram {
		only([]any{&l.Mode}, "only Unix sockets have permissions", "on unix: and unixgram: listeners only")
	}
	if kind == spec.Unix || kind == spec.Unixgram {
		only([]any{&l.Transparent, &l.Interface, &l.Allow, &l.Deny}, "clients of a Unix socket have no address", "on TCP and UDP listeners only")
		if l.Datagrams {
			only([]any{&l.ProxyFrom, &l.ProxyFirst}, "senders of a Unix socket have no address", "on stream and UDP listeners only")
			only([]any{&l.TOS}, "datagrams of a Unix socket have no TOS byte", "on UDP listeners only")
			only([]any{&l.Sniff.Max, &l.Sniff.Timeout, &l.Sniff.JA4}, "nothing is read from the datagrams of a Unix socket", "on stream and UDP listeners only")
		}
		if strings.HasPrefix(l.Listen.Path, "@") {
			only([]any{&l.Mode}, "an abstract name has no permissions", "with a path only")
		}
	}
	if kind != 0 && kind != spec.TCP || l.Datagrams {
		only([]any{&l.TCP}, "the socket is not a TCP socket", "on TCP listeners only")
	}
	for _, route := range l.Routes {
		if kind == spec.Unixgram {
			only([]any{&route.SNI, &route.ALPN}, "a ClientHello is not read from the datagrams of a Unix socket", "on stream and UDP listeners only")
		}
		r.checkParts(l, &route.To, len(route.From)+len(route.SNI)+len(route.Hosts)+len(route.ClientNames) > 0)
	}
	r.checkParts(l, &l.To, false)
}

// checkParts reports groups to which a listener may not lead.
func (r *reader) checkParts(l *listener, to *[]spec.Part, restricted bool) {
	for i := range *to {
		if p := &(*to)[i]; p.Group != nil {
			r.checkMatches(l, r.position(&p.Group, to), p.Group)
			r.checkNamed(l, r.position(&p.Group, to), restricted, p.Group)
		}
	}
}

// checkMatches reports a stream listener that leads to datagram members, and the reverse.
func (r *reader) checkMatches(l *listener, at *place, g *spec.Group) {
	bad := func(what, member string) {
		f := fault{problem: fmt.Sprintf("%s %s takes datagrams, and the listener %s carries streams", what, member, l.Name), allowed: "tcp:, unix:, echo: and discard: behind a stream listener"}
		if l.Datagrams {
			f = fault{problem: fmt.Sprintf("%s %s takes streams, and the listener %s carries datagrams", what, member, l.Name), allowed: "udp:, unixgram:, echo: and discard: behind a datagram listener"}
		}
		r.fail(at, f)
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
	for _, m := range g.Members {
		if n := m.To.Ports(); n > 1 && n != l.Listen.Ports() {
			listens := "one port"
			if ports := l.Listen.Ports(); ports > 1 {
				listens = fmt.Sprintf("%d ports", ports)
			}
			r.fail(at, fault{problem: fmt.Sprintf("the member %s has %d ports, and the listener %s has %s", plain(m.Name), n, l.Name, listens), allowed: "as many ports as the listener, or one port"})
			return
		}
	}
	for _, d := range g.Discover {
		if !fits(d.Network) {
			bad("the discovered members of", plain(d.String()))
			return
		}
	}
	if _, ok := spec.HashTLV(g.Hash); ok && len(l.ProxyFrom) == 0 {
		r.warn(at, fault{problem: "the group " + plain(g.Name) + " hashes a TLV, and the listener " + l.Name + " accepts no PROXY headers: it hashes the client's address"})
	}
	if g.Hash == "sni" && l.Listen.Kind == spec.Unixgram {
		r.warn(at, fault{problem: "the group " + plain(g.Name) + " hashes the server name, which the datagrams of a Unix socket do not have: it hashes the client's address"})
	}
	if (g.Dial.ForwardAllTLVs || len(g.Dial.ForwardTLVs) > 0) && len(l.ProxyFrom) == 0 {
		r.warn(at, fault{problem: "the group " + plain(g.Name) + " forwards TLVs, and the listener " + l.Name + " accepts no PROXY headers"})
	}
	if l.Datagrams && g.Queue.Size > 0 {
		r.warn(at, fault{problem: "the group " + plain(g.Name) + " has a queue, which has no effect for datagrams"})
	}
	if l.Datagrams && g.Dial.Proxy == 1 {
		r.fail(at, fault{problem: "the group " + plain(g.Name) + " sends PROXY headers of version 1, which is for streams", allowed: "proxy-protocol: v2"})
	}
	if !l.Datagrams && g.Dial.ProxyFirst {
		r.warn(at, fault{problem: "datagrams of proxy-protocol of the group " + plain(g.Name) + " has no effect: the listener " + l.Name + " has streams"})
	}
}

func (r *reader) checkGroup(g *spec.Group) {
	if g.Destination != nil {
		r.checkDestination(g)
	} else if len(g.Members)+len(g.Discover) == 0 && r.isSet(g) {
		// A list that could not be read is nil, and has been reported.
		if !(r.isSet(&g.Members) && g.Members == nil) && !(r.isSet(&g.Discover) && g.Discover == nil) && !r.isSet(&g.Destination) {
			r.fail(r.position(g), fault{problem: "the group has no members", allowed: "members, discover, or both; or destination"})
		}
		return
	}
	names := map[string]bool{}
	usable := len(g.Discover) > 0 || g.Destination != nil
	for i := range g.Members {
		m := &g.Members[i]
		if names[m.Name] && m.Name != "" {
			r.fail(r.position(&m.Name, m), fault{problem: "the group already has a member named " + plain(m.Name), allowed: "a different name for each member"})
		}
		names[m.Name] = true
		usable = usable || !m.Drained
	}
	if !usable {
		r.warn(r.position(g), fault{problem: "every member is drained: all flows are refused"})
	}
	for i := range g.Discover {
		r.checkDiscover(&g.Discover[i])
	}
	if b := spec.BalancerNamed(g.Balance); b.NoWeights {
		problem := "has no effect: balance: " + b.Name + " ignores weights"
		for i := range g.Members {
			if r.isSet(&g.Members[i].Weight) {
				r.warn(r.position(&g.Members[i].Weight), fault{problem: problem})
			}
		}
		if r.isSet(&g.SlowStart) {
			r.warn(r.position(&g.SlowStart), fault{problem: problem})
		}
		if g.Zone == spec.ZoneWeighted && g.DiscoversIn("xds") {
			r.warn(r.position(&g.Zone), fault{problem: problem})
		}
	}
	if r.isSet(&g.Lookups) && len(g.Discover) == 0 && !slices.ContainsFunc(g.Members, func(m spec.Member) bool { return isName(m.To) }) {
		r.warn(r.position(&g.Lookups), fault{problem: "has no effect: the group has no host names to look up"})
	}
	if g.Hash != "" && !spec.BalancerNamed(g.Balance).Hash {
		r.fail(r.position(&g.Hash, g), fault{problem: "has no effect: balance: " + g.Balance + " uses no hash", allowed: "hash together with balance: maglev"})
	}
	if g.Dial.ProxyCertificate && !g.Dial.ProxyTLS {
		r.fail(r.position(&g.Dial.ProxyCertificate, g), fault{problem: "has no effect without tls", allowed: "certificate together with tls"})
	}
	if g.Dial.Proxy == 1 && (len(g.Dial.ProxyTLVs) > 0 || g.Dial.ProxySNI || g.Dial.ProxyTLS || g.Dial.ForwardAllTLVs || len(g.Dial.ForwardTLVs) > 0) {
		r.fail(r.position(&g.Dial.ProxyTLVs, &g.Dial.ProxySNI, &g.Dial.ForwardTLVs, &g.Dial.ProxyTLS), fault{problem: "version 1 has no TLVs", allowed: "tlvs, forward, names and tls together with version: 2"})
	}
	if g.Timeouts.Retries != 0 && g.Timeouts.Retries < g.Timeouts.Connect && r.isSet(&g.Timeouts.Retries) {
		r.warn(r.position(&g.Timeouts.Retries), fault{problem: fmt.Sprintf("shorter than connect: the first attempt to connect alone may take %s", brief(g.Timeouts.Connect))})
	}
	r.checkCheck(g)
	r.checkAgent(g)
	r.checkRemoved(&g.Down)
	r.checkRemoved(&g.Up)
	r.checkGroupTLS(g)
	r.checkQUIC(g)
	if e := g.Eject; e != nil && e.Max < e.For {
		r.fail(r.position(&e.Max, &e.For, g), fault{problem: fmt.Sprintf("max (%s) is shorter than for (%s)", brief(e.Max), brief(e.For)), allowed: "max of at least for"})
	}
}

func (r *reader) checkDiscover(d *spec.Discover) {
	only := func(kinds string, values ...any) {
		for _, v := range values {
			if r.isSet(v) && !slices.Contains(strings.Split(kinds, " or "), d.Registry.Kind) {
				r.fail(r.position(v), fault{problem: "has no effect without " + kinds, allowed: "together with " + kinds})
			}
		}
	}
	only("kubernetes", &d.PortName, &d.Family)
	only("consul", &d.Datacenter, &d.Partition, &d.Peer)
	only("consul or nomad", &d.Tags, &d.Stale, &d.Namespace)
	only("docker", &d.DockerNetwork, &d.Published)
	if d.Registry.Kind != "" {
		if r.isSet(&d.Port) && d.Registry.Kind != "kubernetes" && d.Registry.Kind != "docker" {
			r.fail(r.position(&d.Port), fault{problem: "members found in " + d.Registry.Kind + " have their own ports", allowed: "port together with dns, kubernetes or docker"})
		}
		if r.isSet(&d.Port) && r.isSet(&d.PortName) {
			r.fail(r.position(&d.PortName), fault{problem: "cannot be combined with port", allowed: "port or port-name"})
		}
		if r.isSet(&d.Every) && d.Registry.Kind != "http" {
			r.warn(r.position(&d.Every), fault{problem: "has no effect: " + d.Registry.Kind + " tells changes at once"})
		}
		return
	}
	if d.Service != "" {
		if r.isSet(&d.Port) || r.isSet(&d.Network) {
			r.fail(r.position(&d.Port, &d.Network), fault{problem: "SRV records determine port and network", allowed: "port and network together with dns"})
		}
	} else if d.Host != "" && !r.isSet(&d.Port) {
		r.fail(r.position(d), fault{problem: "the key port is missing", allowed: "dns together with port"})
	}
}

func (r *reader) checkCheck(g *spec.Group) {
	c := g.Check
	if c == nil {
		return
	}
	if c.Timeout > c.Every && r.isSet(&c.Timeout) {
		r.warn(r.position(&c.Timeout), fault{problem: fmt.Sprintf("longer than every, the %s from one check to the next", brief(c.Every))})
	}
	if c.Method == "HEAD" && c.Body+c.BodyRE != "" {
		r.fail(r.position(&c.BodyRE, &c.Body, g), fault{problem: "an answer to HEAD has no body", allowed: "body and body-matches together with another method"})
	}
	if c.Kind == "send-expect" && len(c.Send)+len(c.Expect)+len(c.Then) == 0 {
		r.fail(r.position(&c.Kind, g), fault{problem: "nothing is sent and nothing is expected", allowed: "send, expect or then, or tcp in place of send-expect"})
	}
	if bad := misfit(g); bad != nil {
		at := r.position(&c.Kind, g)
		if c.Port != 0 {
			at = r.position(&c.Port, g)
		}
		r.fail(at, *bad)
	}
}

func (r *reader) checkAgent(g *spec.Group) {
	a := g.Agent
	if a == nil {
		return
	}
	if a.Timeout > a.Every && r.isSet(&a.Timeout) {
		r.warn(r.position(&a.Timeout), fault{problem: fmt.Sprintf("longer than every, the %s from one question to the next", brief(a.Every))})
	}
	for i := range g.Members {
		m := &g.Members[i]
		if (m.To.Kind == spec.Unix || m.To.Kind == spec.Unixgram) && !m.AgentAddress.IsValid() {
			r.fail(r.position(&m.To, g), fault{problem: "the member " + plain(m.Name) + " is a Unix socket, which has no address at which its agent could be asked", allowed: "agent-address of the member"})
		}
	}
}

// misfit returns why a group's check does not fit one of its members, or nil.
func misfit(g *spec.Group) *fault {
	c := g.Check
	if c == nil {
		return nil
	}
	for _, m := range g.Members {
		port := cmp.Or(m.CheckPort, c.Port)
		switch k := m.To.Kind; {
		case port != 0 && (k == spec.Unix || k == spec.Unixgram):
			return &fault{problem: "the member " + plain(m.Name) + " is a Unix socket, which has no port", allowed: "port in groups of TCP or UDP members"}
		case port != 0 || k == 0:
		case c.Datagrams() && !k.Datagrams():
			return &fault{problem: "the member " + plain(m.Name) + " takes no datagrams", allowed: "tcp, send-expect or http, or " + c.Kind + " with a port of its own"}
		case !c.Datagrams() && !k.Streams():
			return &fault{problem: "the member " + plain(m.Name) + " takes no streams", allowed: "udp, quic, or " + c.Kind + " with a port of its own"}
		}
	}
	for _, d := range g.Discover {
		if c.Port == 0 && c.Datagrams() != (d.Network == spec.UDP) {
			return &fault{problem: "the check does not fit the discovered members of " + plain(d.String()), allowed: "udp and quic for datagrams, the others for streams, or a port of its own"}
		}
	}
	return nil
}

// Tokens.

// Bounds of a token's length in bytes. A token of minToken bytes is hard to guess.
const (
	minToken = 16
	maxToken = 4096
)

func (r *reader) checkAdmin(f *file) {
	a := &f.Admin
	if len(a.Listen) == 0 {
		return
	}
	for i := range a.Listen {
		r.checkAdminAddress(f, i)
	}
	if r.isSet(&a.Mode) && !slices.ContainsFunc(a.Listen, func(e spec.Endpoint) bool { return e.Kind == spec.Unix }) {
		r.fail(r.position(&a.Mode), fault{problem: "only Unix sockets have permissions", allowed: "mode together with a Unix socket"})
	}
	a.Token = r.token(&f.tokens.all)
	a.ReadToken = r.token(&f.tokens.read)
	for i, path := range []*string{&f.tokens.all, &f.tokens.read} {
		if *path != "" {
			a.TokenFiles[i] = *path
		}
	}
	if a.Token != "" && a.Token == a.ReadToken {
		r.fail(r.position(&f.tokens.read), fault{problem: "the read-only token grants full access: it is the same as in token-file", allowed: "another token"})
	}
}

// checkAdminAddress checks one of the addresses of the admin listener.
func (r *reader) checkAdminAddress(f *file, i int) {
	const allowed = "unix:///PATH, or tcp://HOST:PORT with a loopback address"
	e := &f.Admin.Listen[i]
	problem := ""
	switch {
	case e.Kind.Datagrams():
		problem = "the admin listener does not take datagrams"
	case e.Ports() > 1:
		problem = "an address of the admin listener has one port"
	case slices.Contains(f.Admin.Listen[:i], *e):
		problem = "the address is listed twice"
	case strings.HasPrefix(e.Path, "@"):
		problem = "a name has no permissions: any local user could send requests"
	case e.Kind == spec.TCP && !e.Addr().Addr().IsLoopback() && e.Host != "localhost":
		problem = "tokens would be sent over the network unencrypted"
	case e.Kind == spec.TCP && !r.isSet(&f.tokens.all):
		r.fail(r.position(e), fault{problem: "any local user could send requests over TCP", allowed: "a TCP address together with token-file, or a Unix socket"})
		return
	default:
		return
	}
	r.fail(r.position(e), fault{problem: problem, allowed: allowed})
}

// token reads the token in the file at path. It returns "" if path is empty or files are not
// read.
func (r *reader) token(path *string) string {
	if *path == "" || r.secrets == nil {
		return ""
	}
	text, err := r.secrets(*path)
	if err != nil {
		if os.IsNotExist(err) {
			err = errors.New("no such file")
		}
		r.fail(r.position(path), fault{problem: plainPath(*path) + ": " + oneLine(err.Error()), allowed: "a file with a token"})
		return ""
	}
	token := strings.TrimSpace(string(text))
	printable := strings.IndexFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) < 0
	if !printable || len(token) < minToken || len(token) > maxToken {
		r.fail(r.position(path), fault{problem: plainPath(*path) + ": the file does not contain a token", allowed: fmt.Sprintf("one line of %d to %d printable ASCII characters without spaces", minToken, maxToken)})
		return ""
	}
	return token
}

// covers reports whether every address of b is in one of the ranges a.
func covers(a, b []spec.Network) bool {
	for _, p := range b {
		in := false
		for _, q := range a {
			if q == p || q.List == "" && p.List == "" && q.Bits() <= p.Bits() && q.Contains(p.Addr()) {
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
