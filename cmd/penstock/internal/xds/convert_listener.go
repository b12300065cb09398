package xds

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A listenerPlan is what becomes of a Listener: one listener of the text for each of its addresses.
type listenerPlan struct {
	name    string // of the resource
	o       *object
	d       *decoder
	urls    []string // with the paths of their fields
	paths   []string
	udp     bool
	keys    section
	chains  []*chain // with conditions
	to      *chain   // default route; nil: none
	sniffed bool     // something is read before a client is routed
	http    bool     // the protocols of connections without TLS are those of HTTP
}

// A chain is a FilterChain.
type chain struct {
	o      *object
	name   string // of the route
	to     []destination
	use    use
	life   time.Duration
	idle   time.Duration
	hashed bool

	sni, alpn []string
	transport string   // tls, raw_buffer; empty: any
	http      []string // protocols of connections without TLS, as those of a route
	from      []netip.Prefix
	at        *object // the conditions; nil: none
}

// A destination is a cluster to which a chain leads, or one of several.
type destination struct {
	cluster string
	path    string // of the cluster's name
	weight  uint64
}

// destinations reads where a proxy leads: to a cluster, or to several by weight.
func (c *chain) destinations(o *object) {
	weighted := o.object("weighted_clusters")
	if weighted == nil {
		if c.to = []destination{{o.text("cluster"), o.path("cluster"), 1}}; c.to[0].cluster == "" {
			o.fail("cluster", "missing")
		}
		return
	}
	most, total := uint64(1), uint64(0)
	for _, w := range weighted.objects("clusters") {
		name := w.text("name")
		n, _ := w.number("weight")
		switch i := slices.IndexFunc(c.to, func(d destination) bool { return d.cluster == name }); {
		case name == "":
			w.fail("name", "missing")
		case n == 0:
			w.fail("weight", "0; allowed: 1 or more")
		case i >= 0:
			c.to[i].weight += n
		default:
			c.to = append(c.to, destination{name, w.path("name"), n})
		}
		if total += n; total > math.MaxUint32 {
			w.fail("weight", "the sum of all weights is more than %d", uint32(math.MaxUint32)) // as Envoy does
		}
	}
	for _, d := range c.to {
		most = max(most, d.weight)
	}
	if most > spec.MaxPartWeight {
		for i := range c.to {
			c.to[i].weight = max(1, c.to[i].weight*spec.MaxPartWeight/most)
		}
	}
	if len(weighted.objects("clusters")) == 0 {
		weighted.fail("clusters", "missing")
	}
}

// path returns the path of where a chain leads.
func (c *chain) path() string {
	if len(c.to) == 0 {
		return c.o.path("")
	}
	return c.to[0].path
}

// newListener reads a Listener.
func newListener(r ads.Resource) *listenerPlan {
	d := &decoder{}
	l := &listenerPlan{name: r.Name, d: d}
	if r.URL != listenerURL {
		d.fail("", "type "+ads.OneLine(r.URL)+"; expected "+listenerURL)
	}
	o := d.decode(&listenerTable, r.Value)
	l.o = o
	if name := o.text("name"); name != r.Name {
		o.fail("name", "%q, but the resource is named %q", ads.OneLine(name), ads.OneLine(r.Name))
	}
	if n, ok := o.number("bind_to_port"); ok && n == 0 {
		o.fail("bind_to_port", "not supported: a listener has a socket")
	}
	l.address(o, "address")
	for _, a := range o.objects("additional_addresses") {
		l.address(a, "address")
	}
	if n, ok := o.number("tcp_backlog_size"); ok && n > 0 {
		l.keys.set("backlog", strconv.FormatUint(n, 10), o.path("tcp_backlog_size"))
	}
	if o.flag("transparent") {
		l.keys.set("transparent", "true", o.path("transparent"))
	}
	tcp := l.keys.in("tcp")
	if n, _ := o.number("tcp_fast_open_queue_length"); n > 0 {
		tcp.set("fast-open", strconv.FormatUint(n, 10), o.path("tcp_fast_open_queue_length"))
	}
	if o.flag("enable_mptcp") {
		tcp.set("mptcp", "true", o.path("enable_mptcp"))
	}
	keepalive(tcp, o.object("tcp_keepalive"))
	l.filters()
	if l.udp {
		if o.has("filter_chains") || o.has("default_filter_chain") {
			o.fail("filter_chains", "a listener of datagrams has none: use the listener filter udp_proxy")
		}
		if l.to == nil {
			o.fail("listener_filters", "a listener of datagrams needs udp_proxy")
		}
		return l
	}
	l.readChains()
	return l
}

// address reads one address to listen on.
func (l *listenerPlan) address(o *object, name string) {
	a := o.object(name)
	if a == nil {
		o.fail(name, "missing")
		return
	}
	var e spec.Endpoint
	var ok bool
	switch s, p := a.object("socket_address"), a.object("pipe"); {
	case s != nil:
		if e, ok = s.socket(); !ok {
			return
		}
		if _, err := netip.ParseAddr(e.Host); err != nil {
			s.fail("address", "%s is not an address", ads.OneLine(e.Host))
			return
		}
		if protocol, _ := s.number("protocol"); protocol == 1 {
			e.Kind, l.udp = spec.UDP, true
		} else if l.udp {
			s.fail("protocol", "the listener has another address of UDP")
		}
	case p != nil:
		if e, ok = p.pipe(); !ok {
			return
		}
		if mode, _ := p.number("mode"); mode > 0 {
			l.keys.set("mode", fmt.Sprintf(`"%04o"`, mode), p.path("mode"))
		}
	default:
		a.fail("", "neither a socket_address nor a pipe")
		return
	}
	if l.udp && e.Kind != spec.UDP {
		o.fail(name, "the listener has another address of UDP")
	}
	l.urls = append(l.urls, e.String())
	l.paths = append(l.paths, o.path(name))
}

// filters reads the listener filters.
func (l *listenerPlan) filters() {
	o := l.o
	timeout := o.duration("listener_filters_timeout", 15*time.Second)
	if timeout == 0 {
		timeout = time.Hour
	}
	l.keys.in("sniff").set("timeout", exact(timeout), o.path("listener_filters_timeout"))
	for _, f := range o.objects("listener_filters") {
		v := f.open("typed_config", &tlsInspectorTable, &httpInspectorTable, &proxyFilterTable, &udpProxyTable)
		if v == nil {
			continue
		}
		if (v.of == &udpProxyTable) != l.udp {
			f.fail("typed_config", "%s does not fit the protocol of the address", v.of.name)
			continue
		}
		switch v.of {
		case &tlsInspectorTable:
			if n, _ := v.number("max_client_hello_size"); n > 0 {
				l.keys.in("sniff").set("max", strconv.FormatUint(n, 10), v.path("max_client_hello_size"))
			}
		case &httpInspectorTable:
			l.http = true
		case &proxyFilterTable:
			l.proxy(v.path(""))
		case &udpProxyTable:
			if l.to != nil {
				f.fail("", "a second udp_proxy")
				continue
			}
			l.udpProxy(v)
		}
	}
}

// proxy makes a PROXY header a duty of every client.
func (l *listenerPlan) proxy(path string) {
	l.sniffed = true
	l.keys.in("proxy-protocol").set("from", `["0.0.0.0/0", "::/0"]`, path)
}

func (l *listenerPlan) udpProxy(o *object) {
	c := &chain{o: o, idle: o.duration("idle_timeout", time.Minute)}
	from := o
	if m := o.object("matcher"); m != nil {
		if action := m.object("on_no_match").object("action"); action == nil {
			m.fail("on_no_match", "missing")
		} else if route := action.open("typed_config", &udpRouteTable); route != nil {
			from = route
		}
	}
	c.destinations(from)
	c.use = use{udp: true, original: o.flag("use_original_src_ip")}
	c.hashed = len(o.objects("hash_policies")) > 0
	l.to = c
}

// readChains reads the filter chains.
func (l *listenerPlan) readChains() {
	o := l.o
	proxies, all := 0, 0
	names := map[string]bool{}
	for _, f := range append(o.objects("filter_chains"), o.object("default_filter_chain")) {
		if f == nil {
			continue
		}
		all++
		if f.flag("use_proxy_proto") {
			proxies++
		}
		c := l.chain(f)
		if c == nil {
			continue
		}
		conditions := len(c.sni)+len(c.alpn)+len(c.from) > 0 || c.transport != ""
		if f.as.name == "default_filter_chain" {
			c.sni, c.alpn, c.from, c.http, c.transport = nil, nil, nil, nil, "" // they do not matter
			if l.to != nil {
				// A chain without conditions takes everybody before the default does.
				continue
			}
			l.to = c
			continue
		}
		if !conditions {
			if l.to != nil {
				f.fail("filter_chain_match", "a second chain without conditions")
				continue
			}
			l.to = c
			continue
		}
		if c.name == "" {
			if c.name = "split"; len(c.to) == 1 {
				c.name = c.to[0].cluster
			}
		}
		c.name = nameOf(c.name)
		for n, base := 2, c.name; names[c.name] || c.name == "default"; n++ {
			c.name = fmt.Sprintf("%.58s-%d", base, n)
		}
		names[c.name] = true
		if len(c.sni)+len(c.alpn) > 0 || c.transport != "" {
			l.sniffed = true
		}
		l.chains = append(l.chains, c)
	}
	if all == 0 {
		o.fail("filter_chains", "missing")
	}
	l.withoutTLS()
	if proxies > 0 {
		if proxies != all {
			o.fail("filter_chains", "use_proxy_proto must be the same in all chains")
		}
		l.proxy("filter_chains")
	}
}

// withoutTLS looks at the chains for all connections that are not TLS. Their routes have no condition that says so, but come behind those
// that take what is TLS.
func (l *listenerPlan) withoutTLS() {
	l.chains = slices.DeleteFunc(l.chains, func(c *chain) bool {
		if c.transport != rawBuffer || len(c.http) > 0 {
			return false
		}
		if !slices.ContainsFunc(l.chains, func(t *chain) bool {
			return t.transport == "tls" && len(t.sni)+len(t.alpn) == 0 && (len(t.from) == 0 || slices.Equal(t.from, c.from))
		}) {
			c.at.fail("transport_protocol", "not supported: raw_buffer without a chain that takes all of tls from the same addresses; add one, which may lead to a cluster without endpoints")
		}
		if len(c.from) > 0 {
			return false
		}
		if l.to != nil && l.to.at != nil && l.to.transport == rawBuffer {
			c.o.fail("filter_chain_match", "a second chain without other conditions")
		}
		l.to = c // a chain for everybody gets nobody
		return true
	})
	if l.to == nil || l.to.transport != rawBuffer {
		return
	}
	l.chains = slices.DeleteFunc(l.chains, func(c *chain) bool {
		if c.transport != "" || len(c.sni) > 0 {
			return false
		}
		c.at.warn("", "no client gets to this chain: chains with a transport_protocol take all of them before, as in Envoy")
		return true
	})
}

// chain reads one filter chain.
func (l *listenerPlan) chain(o *object) *chain {
	c := &chain{o: o, name: o.text("name")}
	if t := o.object("transport_socket"); t != nil {
		t.open("typed_config", &rawBufferTable)
	}
	if m := o.object("filter_chain_match"); m != nil {
		l.conditions(c, m)
	}
	filters := o.objects("filters")
	if len(filters) == 2 && filters[0].kind("typed_config") == sniForwardTable.name {
		if f := filters[0].open("typed_config", &sniForwardTable); f != nil {
			port, _ := f.number("port_value")
			if port < 1 || port > 65535 {
				f.fail("port_value", "%d; allowed: 1 to 65535", port)
				port = 1 // some
			}
			c.use.port, l.sniffed = int(port), true
		}
		filters = filters[1:]
	}
	if len(filters) != 1 {
		o.fail("filters", "%d of them; allowed: tcp_proxy, alone or behind sni_dynamic_forward_proxy", len(filters))
		return nil
	}
	p := filters[0].open("typed_config", &tcpProxyTable)
	if p == nil {
		return nil
	}
	c.destinations(p)
	c.idle = p.duration("idle_timeout", time.Hour)
	c.life = p.duration("max_downstream_connection_duration", 0)
	c.hashed = len(p.objects("hash_policy")) > 0
	attempts := p.numberOr("max_connect_attempts", 1)
	if attempts == 0 || attempts > 101 {
		p.fail("max_connect_attempts", "%d; allowed: 1 to 101", attempts)
		attempts = 1
	}
	c.use.retries = int(attempts) - 1
	return c
}

// conditions reads the conditions of a chain.
func (l *listenerPlan) conditions(c *chain, m *object) {
	c.at = m
	if port, ok := m.number("destination_port"); ok && port != 0 {
		own := len(l.urls) > 0
		for _, url := range l.urls {
			e, err := spec.ParseListener(url)
			own = own && err == nil && uint64(e.Port) == port
		}
		if !own {
			m.fail("destination_port", "not supported: %d is not the port of the listener", port)
		}
	}
	for _, name := range m.texts("server_names") {
		c.sni = append(c.sni, strings.ToLower(name))
	}
	c.alpn = m.texts("application_protocols")
	switch c.transport = m.text("transport_protocol"); {
	case c.transport == rawBuffer && len(c.sni) > 0:
		m.fail("transport_protocol", "no client matches: those with a server name speak tls")
	case c.transport != "" && c.transport != "tls" && c.transport != rawBuffer:
		m.fail("transport_protocol", "unknown value %q; allowed: tls, raw_buffer", ads.OneLine(c.transport))
	}
	if len(c.alpn) > 0 && c.transport != "tls" && len(c.sni) == 0 {
		l.spoken(c, m)
	}
	for _, r := range m.objects("source_prefix_ranges") {
		a, err := netip.ParseAddr(r.text("address_prefix"))
		n, _ := r.number("prefix_len")
		if err != nil || a.Zone() != "" || n > uint64(a.BitLen()) {
			r.fail("", "not a range of addresses")
			continue
		}
		p, err := a.Unmap().Prefix(int(n))
		if err != nil {
			r.fail("", "not a range of addresses")
			continue
		}
		c.from = append(c.from, p)
	}
}

// rawBuffer is the transport protocol of connections without TLS.
const rawBuffer = "raw_buffer"

// spoken finds those of the protocols of a chain that connections without TLS may have. In Envoy they are those that http_inspector sees.
func (l *listenerPlan) spoken(c *chain, m *object) {
	const path = "application_protocols"
	for _, name := range c.alpn {
		switch {
		case !l.http:
		case name == "http/1.0", name == "http/1.1":
			if !slices.Contains(c.http, spec.ProtocolHTTP) {
				c.http = append(c.http, spec.ProtocolHTTP)
			}
		case name == "h2c":
			c.http = append(c.http, "http2")
		}
	}
	if slices.Contains(c.alpn, "http/1.0") != slices.Contains(c.alpn, "http/1.1") && len(c.http) > 0 {
		m.warn(path, "without TLS, http/1.0 and http/1.1 are one protocol here")
	}
	if c.transport != rawBuffer {
		return
	}
	switch c.alpn = nil; {
	case !l.http:
		m.fail(path, "no client matches: without TLS and the listener filter http_inspector a connection has none")
	case len(c.http) == 0:
		m.fail(path, "no client matches: without TLS a connection has http/1.0, http/1.1 or h2c")
	}
}
