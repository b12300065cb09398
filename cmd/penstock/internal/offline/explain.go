package offline

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/firstbytes"
	"github.com/penstock/penstock/cmd/penstock/internal/lists"
	"github.com/penstock/penstock/cmd/penstock/internal/route"
	"github.com/penstock/penstock/cmd/penstock/internal/rules"
	"github.com/penstock/penstock/cmd/penstock/internal/sources"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// Explain is the command explain.
type Explain struct {
	Config   []string      `short:"c" sep:"none" placeholder:"FILE" help:"The configuration: a file, a folder, or - for standard input. Several are layers: each one changes those before it (default: /etc/penstock/penstock.yaml)."`
	Listener string        `required:"" placeholder:"NAME" help:"The listener that the client connects to."`
	From     netip.Addr    `placeholder:"ADDRESS" help:"The client's address; none for a Unix client."`
	Port     uint16        `placeholder:"PORT" help:"The port that the client connects to, of a listener with a range of ports."`
	SNI      string        `name:"sni" placeholder:"NAME" help:"The server name in the client's ClientHello."`
	ALPN     []string      `name:"alpn" placeholder:"PROTOCOL" help:"The protocols that its ClientHello offers, separated by commas."`
	Protocol string        `placeholder:"PROTOCOL" help:"What the client speaks by its first bytes: tls, ssh, http or another word of protocol in a route."`
	Host     string        `placeholder:"NAME" help:"The host that it asks for by HTTP."`
	Prefix   string        `placeholder:"BYTES" help:"Its first bytes, from which the protocol and the host follow: a string, or hex: and digits."`
	Silence  time.Duration `placeholder:"TIME" help:"How long it has sent nothing."`
	Names    []string      `name:"client-name" sep:"none" placeholder:"NAME" help:"A name in the client's certificate: a URI, a DNS name, an address of mail or a common name. May be given several times."`
	CID      string        `name:"cid" placeholder:"HEX" help:"The connection ID to which a client of QUIC that has moved sends its first datagram, in hexadecimal digits."`
	QUIC     string        `name:"quic" placeholder:"FILE" help:"The first UDP payloads of a client of QUIC: the bytes of one, or hexadecimal digits, one payload in each line."`
	Lookup   bool          `help:"Look up the names of members in DNS."`
	JSON     bool          `name:"json" help:"Print JSON."`
}

// Help returns the text that penstock explain --help prints below the flags.
func (Explain) Help() string {
	return "Without --lookup the network is not used. All members are assumed to be up; penstock groups shows those of a running daemon."
}

// An explanation says what would happen to a connection.
type explanation struct {
	lists    *lists.Table
	Listener string      `json:"listener"`
	Listen   string      `json:"listen"`
	QUIC     *quicClient `json:"quic,omitempty"` // that --quic was read as
	Steps    []string    `json:"steps"`          // the questions, in order, and their answers
	Route    string      `json:"route,omitempty"`
	destination
	Parts   []destination `json:"parts,omitempty"`   // where the route leads, if chance decides
	Refused string        `json:"refused,omitempty"` // the reason, if the client is refused
}

// Run runs the command.
func (c *Explain) Run(call Call) int {
	stdout, stderr := call.Stdout, call.Stderr
	cfg, _, err := (&config.Source{Paths: pathsOrPackaged(c.Config), Remote: sources.Fetch(call.Version)}).Load(rules.Everywhere...)
	if err != nil {
		fmt.Fprintln(stderr, config.Message(explainNoPackaged(err, c.Config)))
		return cli.ExitUsage
	}
	lookup := func(spec.Endpoint, string, *spec.Destination) string { return "" }
	if c.Lookup {
		lookup = lookUpMember
	}
	m := route.Meta{Client: spec.CanonicalAddr(c.From), SNI: strings.ToLower(strings.TrimSuffix(c.SNI, ".")), ALPN: c.ALPN}
	if m.First, err = c.firstBytes(); err != nil {
		fmt.Fprintln(stderr, "penstock:", err)
		return cli.ExitUsage
	}
	if len(c.Names) > 0 {
		m.Names = certs.IdentityNamed(c.Names...).Matches
	}
	all := lists.NewTable(cfg.Lists, nil, nil)
	for _, l := range cfg.Lists {
		if l.File != "" {
			if err := all.Named(l.Name).Load(context.Background(), time.Now(), lists.Host{}); err != nil {
				fmt.Fprintf(stderr, "penstock: list %s: %v\n", l.Name, err)
				return cli.ExitFailed
			}
		} else {
			fmt.Fprintf(stderr, "penstock: list %s: not read: only the running daemon knows what it has\n", l.Name)
		}
	}
	q, err := c.quicClient()
	if err != nil {
		fmt.Fprintln(stderr, "penstock:", err)
		return cli.ExitUsage
	}
	e, err := explain(cfg, c.Listener, c.Port, lookup, m, all, q)
	if err != nil {
		fmt.Fprintln(stderr, "penstock:", err)
		return cli.ExitUsage
	}
	if c.JSON {
		err = printJSON(stdout, e)
	} else {
		e.print(stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "penstock:", err)
		return cli.ExitFailed
	}
	return cli.ExitOK
}

// firstBytes returns what the flags say of the client's first bytes. One that has a server name, or offers protocols, speaks TLS.
func (c *Explain) firstBytes() (*firstbytes.Seen, error) {
	protocol := c.Protocol
	if _, ok := firstbytes.ByName(protocol); !ok && protocol != "" {
		return nil, fmt.Errorf("--protocol: unknown protocol %q; allowed: %s", protocol, strings.Join(spec.Protocols[:], ", "))
	}
	if protocol == "" && (c.SNI != "" || len(c.ALPN) > 0) {
		protocol = firstbytes.TLS.String()
	}
	prefix := []byte(c.Prefix)
	if digits, ok := strings.CutPrefix(c.Prefix, "hex:"); ok {
		b, err := hex.DecodeString(digits)
		if err != nil {
			return nil, fmt.Errorf("--prefix: %s does not consist of pairs of hexadecimal digits", digits)
		}
		prefix = b
	}
	return firstbytes.Given(protocol, strings.ToLower(strings.TrimSuffix(c.Host, ".")), prefix, c.Silence), nil
}

// explain explains what becomes of a client at a port of a listener; 0 is any of its ports. q is what it
// sends of QUIC; nil: nothing is known of that.
func explain(cfg *spec.Config, listener string, port uint16, lookup lookupFunc, m route.Meta, all *lists.Table, q *quicClient) (*explanation, error) {
	var names []string
	var l *spec.Listener
	for _, x := range cfg.Listeners {
		names = append(names, x.Name)
		if x.Name == listener {
			l = x
		}
	}
	if l == nil {
		return nil, fmt.Errorf("no listener %q; allowed: %s", listener, strings.Join(names, ", "))
	}
	offset := -1 // of the client's port in the range
	if port > 0 {
		if offset = int(port) - int(l.Listen.Port); l.Inherit != "" || l.Listen.Port == 0 || offset < 0 || offset >= l.Listen.Ports() {
			allowed := "none, as it has no ports"
			if l.Listen.Port > 0 {
				allowed = "a port of " + l.Listen.String()
			}
			return nil, fmt.Errorf("--port: the listener %s does not have port %d; allowed: %s", l.Name, port, allowed)
		}
	}
	e := &explanation{lists: all, Listener: l.Name, Listen: l.Listen.String()}
	if l.Inherit != "" {
		e.Listen = "inherited: " + l.Inherit
	}
	e.addDatagrams(l, q, &m)
	e.addSource(l, m)
	if e.Refused != "" {
		return e, nil
	}
	routes := route.New(l, e.lists)
	if q != nil && e.addQUIC(cfg, l, routes, m, q) {
		return e, nil
	}
	if e.addTLS(l, routes, &m); e.Refused != "" {
		return e, nil
	}
	e.addSilence(routes, &m)
	found := routes.Explain(m)
	for i, s := range found.Steps {
		if found.LeftOut > 0 && i == route.MaxSteps/2 {
			e.addStep("%d more routes: no", found.LeftOut)
		}
		verb := "no"
		if s.Matched {
			verb = "yes"
		}
		e.addStep("route %s: %s: %s", s.Route.Name, verb, s.Why)
	}
	if found.Route == nil {
		e.Refused = spec.ReasonNoRoute.String() + ": " + found.Outcome
		return e, nil
	}
	e.Route = found.Route.Name
	parts := e.addSplit(found.Route, m)
	for i := range parts {
		g := parts[i].Group
		if g == nil {
			continue
		}
		d := destination{Group: g.Name}
		e.addOffer(l, found.Route, g, m.Protocol)
		e.addFirstID(g, q)
		if g.Destination != nil {
			d = e.addNamed(g.Destination, l.Datagrams, m, lookup)
			if d.Group = g.Name; e.Refused != "" {
				return e, nil
			}
		} else {
			d.addGroup(g, offset, lookup)
		}
		d.addPath(cfg, l, found.Route, g)
		if len(parts) == 1 {
			e.destination = d
			break
		}
		d.Share = api.Share(parts[i].Weight, totalOf(parts))
		e.Parts = append(e.Parts, d)
	}
	return e, nil
}

// addSplit explains which part of its route a client gets, and returns it, or all parts if chance decides.
func (e *explanation) addSplit(r *spec.Route, m route.Meta) []spec.Part {
	parts := r.To
	if len(parts) > 1 {
		c := upstream.Client{Addr: netip.AddrPortFrom(m.Client, 0)}
		what := "the client's address"
		switch _, tlv := spec.HashTLV(r.SplitBy); {
		case r.SplitBy == "sni" && m.SNI != "":
			c.Key, what = m.SNI, "the client's server name"
		case tlv:
			what += " if its PROXY header does not have " + r.SplitBy
		}
		if r.SplitBy == spec.SplitRandom || c.Key == "" && !m.Client.IsValid() {
			e.addStep("split: at random: %s", sharesOf(parts))
			return parts
		}
		i := route.NewSplit(parts).ByHash(upstream.Hash(r.SplitBy, c))
		e.addStep("split: by a hash of %s: %s, of %s", what, parts[i].Name(), sharesOf(parts))
		parts = parts[i : i+1]
	}
	if len(parts) == 1 && parts[0].Refuse {
		e.Refused = spec.ReasonSplit.String() + ": the part of the route refuses its clients"
	}
	return parts
}

// sharesOf returns the shares of parts: blue 95%, green 5%.
func sharesOf(parts []spec.Part) string {
	var list []string
	for i := range parts {
		list = append(list, parts[i].Name()+" "+api.Share(parts[i].Weight, totalOf(parts)))
	}
	return strings.Join(list, ", ")
}

func totalOf(parts []spec.Part) (n int) {
	for i := range parts {
		n += parts[i].Weight
	}
	return n
}

// lookupTimeout bounds the lookup of one name.
const lookupTimeout = 10 * time.Second

// A lookupFunc returns what DNS has for an endpoint, or for a service if that is not empty, as
// text to append to a line; of a destination's name also which addresses are refused.
type lookupFunc func(to spec.Endpoint, service string, of *spec.Destination) string

func lookUpMember(to spec.Endpoint, service string, of *spec.Destination) string {
	if of != nil {
		return lookUpNamed(to.Host, of)
	}
	if _, ok := to.Literal(); ok && service == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	var list []string
	var err error
	if service != "" {
		var records []*net.SRV
		_, records, err = net.DefaultResolver.LookupSRV(ctx, "", "", service)
		for _, r := range records {
			list = append(list, fmt.Sprintf("%s:%d", r.Target, r.Port))
		}
	} else {
		var addrs []relay.Addr
		addrs, err = upstream.Resolve(ctx, net.DefaultResolver, to)
		for _, a := range addrs {
			list = append(list, a.String())
		}
	}
	if err != nil {
		return ": lookup failed: " + err.Error()
	}
	return ": currently " + strings.Join(list, ", ")
}

func (e *explanation) addStep(format string, args ...any) {
	e.Steps = append(e.Steps, fmt.Sprintf(format, args...))
}

// addSource explains the checks of the client's address.
func (e *explanation) addSource(l *spec.Listener, m route.Meta) {
	holds := func(networks []spec.Network) (string, bool) { return e.lists.Find(networks, m.Client) }
	if p, ok := holds(l.ProxyFrom); ok {
		what := "a PROXY header must come first"
		switch {
		case l.Datagrams && l.ProxyFirst:
			what = "the first datagram must begin with a PROXY header"
		case l.Datagrams:
			what = "each datagram must begin with a PROXY header, or with one of SPP"
		}
		e.addStep("proxy-protocol: %v is in %v: %s, and names another client; what follows is for %v as that client", m.Client, p, what, m.Client)
	}
	switch p, denied := holds(l.Deny); {
	case denied:
		e.Refused = spec.ReasonDenied.String() + ": " + m.Client.String() + " is in " + p + " of deny"
		return
	case len(l.Deny) > 0:
		e.addStep("deny: no: the client is in none of %s", config.Counted(len(l.Deny), "prefix"))
	}
	if len(l.Allow) > 0 {
		p, ok := holds(l.Allow)
		if !ok {
			e.Refused = spec.ReasonDenied.String() + ": the client is in no prefix of allow"
			return
		}
		e.addStep("allow: yes: %v is in %v", m.Client, p)
	}
	if t := l.StartTLS; t.Protocol != "" {
		clear := map[string]string{"refuse": "is refused", "cancel": "is refused, but for requests to cancel", "allow": "goes on without a server name"}[t.Clear]
		e.addStep("starttls: %s: the client asks for TLS, and gets a yes, or begins it at once; what is in the clear %s", t.Protocol, clear)
	}
	if l.Sniff.First {
		switch protocol := m.First.Protocol(); {
		case m.First.Host() != "":
			e.addStep("first bytes: %s, for the host %s", protocol, m.First.Host())
		case protocol != "":
			e.addStep("first bytes: of %s", protocol)
		default:
			e.addStep("first bytes: of no known protocol; what they may still become after %v counts as not so", l.Sniff.Timeout)
		}
	}
	if l.Sniff.TLS {
		switch {
		case m.SNI != "":
			e.addStep("sniff: a ClientHello for %s, ALPN %s", m.SNI, cmp.Or(strings.Join(m.ALPN, ", "), "none"))
		case l.StartTLS.Protocol != "":
			e.addStep("sniff: a ClientHello without a server name")
		case l.Datagrams:
			e.addStep("sniff: no server name; a client that speaks no QUIC, or an unknown version of it, has none")
		default:
			e.addStep("sniff: no server name; a client that sends nothing for %v, or no TLS, has none", l.Sniff.Timeout)
		}
	}
}

// addSilence explains when a client that sends nothing is routed: a route with a shorter silence takes it before one with a longer one.
func (e *explanation) addSilence(routes *route.Table, m *route.Meta) {
	for _, d := range routes.Silences() {
		if d >= m.First.Silent() {
			return
		}
		then := *m
		then.First = firstbytes.Given("", "", nil, d)
		if r, ok := routes.Find(then); ok && r.Silence > 0 {
			e.addStep("silence: the client is routed after %v", d)
			*m = then
			return
		}
	}
}

// addTLS explains whether the client's TLS is terminated, and whether its certificate suffices.
func (e *explanation) addTLS(l *spec.Listener, routes *route.Table, m *route.Meta) {
	if l.TLS == nil {
		return
	}
	var agree bool
	m.Protocol, agree = l.TLS.Agree(m.ALPN)
	if r, ok := routes.Find(*m); ok && r.PassTLS {
		e.addStep("tls: passes through: the first route that may match, %s, says so", r.Name)
		return
	}
	if p := m.First.Protocol(); p != "" && p != spec.ProtocolTLS && l.StartTLS.Protocol == "" {
		e.Refused = fmt.Sprintf("%v: the client speaks %s, and TLS ends at the listener", relay.CauseClientTLS, p)
		return
	}
	if !agree {
		e.Refused = fmt.Sprintf("%v: the client offers %s, and alpn of the listener has none of these: %s", relay.CauseClientTLS, strings.Join(m.ALPN, ", "), strings.Join(l.TLS.ALPN, ", "))
		return
	}
	m.Secured = true
	switch clients := l.TLS.Clients; {
	case clients == nil:
		e.addStep("tls: is terminated; the client is not asked for a certificate")
		m.Names = nil
	case m.Names == nil && !clients.Optional:
		e.Refused = relay.CauseClientTLS.String() + ": the client has no certificate, and tls.clients requires one"
	case m.Names == nil:
		e.addStep("tls: is terminated; the client has no certificate, which tls.clients allows")
	default:
		e.addStep("tls: is terminated; the client has a certificate, if it is signed as tls.clients says")
	}
}

// addOffer explains which protocols a member is offered.
func (e *explanation) addOffer(l *spec.Listener, r *spec.Route, g *spec.Group, agreed string) {
	to := g.TLS
	if to == nil || l.Datagrams {
		return
	}
	if l.TLS == nil || r.PassTLS {
		agreed = ""
	}
	switch offer := to.ALPN.For(agreed); {
	case offer == "":
		e.addStep("tls of the group: the member is offered no protocol")
	case offer != agreed && agreed != "":
		e.addStep("tls of the group: the member is offered %s, and if it chooses one, the client is refused, which has agreed on another", offer)
	default:
		e.addStep("tls of the group: the member is offered %s", offer)
	}
}

func (e *explanation) print(w io.Writer) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "listener  %s, %s\n", e.Listener, e.Listen)
	for _, s := range e.Steps {
		fmt.Fprintf(&b, "          %s\n", s)
	}
	if e.Refused != "" {
		fmt.Fprintf(&b, "refused   %s\n", e.Refused)
		w.Write(b.Bytes())
		return
	}
	fmt.Fprintf(&b, "route     %s\n", e.Route)
	if e.Group != "" {
		e.destination.print(&b)
	}
	for i := range e.Parts {
		e.Parts[i].print(&b)
	}
	w.Write(b.Bytes())
}
