package xds

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A cluster is a Cluster that a Listener uses.
type cluster struct {
	name   string
	o      *object
	d      *decoder
	eds    string       // what to look for; empty: not of type EDS
	static []Member     // of other types
	users  map[int]bool // listeners, by index
	groups []*groupPlan // variants, one for each way in which listeners use it
	random bool         // members are chosen at random, whatever their weights
	named  bool         // it leads to the hosts that clients name
}

// A use is how a listener uses a cluster: what belongs to a group here, and to a listener there.
type use struct {
	udp      bool
	retries  int
	original bool // connect from the client's address
	port     int  // of hosts that clients name; 0: others
}

// A groupPlan is a group of the text.
type groupPlan struct {
	name    string
	use     use
	cluster *cluster
}

// Values of Cluster.type and Cluster.lb_policy.
const (
	typeStatic     = 0
	typeStrictDNS  = 1
	typeLogicalDNS = 2
	typeEDS        = 3

	clusterProvided = 6
)

// newCluster reads a Cluster as far as is needed to know what it refers to.
func newCluster(r ads.Resource) *cluster {
	d := &decoder{}
	c := &cluster{name: r.Name, d: d, users: map[int]bool{}}
	if r.URL != clusterURL {
		d.fail("", "type "+ads.OneLine(r.URL)+"; expected "+clusterURL)
	}
	o := d.decode(&clusterTable, r.Value)
	c.o = o
	if name := o.text("name"); name != r.Name {
		o.fail("name", "%q, but the resource is named %q", ads.OneLine(name), ads.OneLine(r.Name))
	}
	if custom := o.object("cluster_type"); custom != nil {
		c.named = custom.open("typed_config", &dynamicClusterTable) != nil
		if policy, _ := o.number("lb_policy"); policy != clusterProvided {
			o.fail("lb_policy", "%d; allowed with cluster_type: CLUSTER_PROVIDED", policy)
		}
		for _, name := range []string{"health_checks", "outlier_detection", "load_assignment", "eds_cluster_config"} {
			if o.has(name) {
				o.fail(name, "not supported with cluster_type: hosts that clients name are no members")
			}
		}
		o.warn("cluster_type", "clients may name every host, as in Envoy; addresses that are private or otherwise reserved are refused, which Envoy connects to")
		return c
	}
	kind, _ := o.number("type")
	switch kind {
	case typeEDS:
		if c.eds = o.object("eds_cluster_config").text("service_name"); c.eds == "" {
			c.eds = c.name
		}
		if o.has("load_assignment") {
			o.fail("load_assignment", "a cluster of type EDS has none")
		}
	case typeStatic, typeStrictDNS, typeLogicalDNS:
		a := o.object("load_assignment")
		if a == nil {
			o.fail("load_assignment", "missing")
			break
		}
		read := (&assignmentReader{names: kind != typeStatic, strict: true}).read(a)
		for _, p := range read.LeftOut {
			d.warn(p.Path, p.Text)
		}
		c.static = read.Members
	default:
		o.fail("type", "not supported: %d; allowed: STATIC, STRICT_DNS, LOGICAL_DNS, EDS", kind)
	}
	return c
}

// group returns the group for a use of the cluster.
func (c *cluster) group(u use) *groupPlan {
	if !c.named {
		u.port = 0 // Envoy looks names up, and connects to the cluster's members nevertheless
	}
	for _, g := range c.groups {
		if g.use == u {
			return g
		}
	}
	name := c.name
	if u.udp {
		name += ".udp"
	}
	if u.retries > 0 {
		name += ".attempts-" + strconv.Itoa(u.retries+1)
	}
	if u.original {
		name += ".original-source"
	}
	if u.port > 0 {
		name += ".port-" + strconv.Itoa(u.port)
	}
	g := &groupPlan{nameOf(name), u, c}
	c.groups = append(c.groups, g)
	return g
}

// section returns the keys of a group.
func (c *cluster) section(g *groupPlan) *section {
	s, o := &section{}, c.o
	if c.named {
		to := s.in("destination")
		to.set("port", strconv.Itoa(g.use.port), o.path("cluster_type"))
		to.set("allow", `["*"]`, o.path("cluster_type"))
	} else {
		c.balance(s)
	}
	s.set("retries", strconv.Itoa(g.use.retries), "")
	s.in("timeouts").set("connect", exact(o.duration("connect_timeout", 5*time.Second)), "connect_timeout")
	if c.named {
		c.proxy(s)
		c.source(s, g)
		keepalive(s.in("tcp"), o.object("upstream_connection_options").object("tcp_keepalive"))
		return s
	}
	c.localities(s, o.object("common_lb_config"))
	c.check(s)
	c.eject(s)
	if c.eds != "" || o.has("health_checks") || o.has("outlier_detection") { // otherwise members never go down
		s.set("panic", share(c.panicThreshold()), "common_lb_config.healthy_panic_threshold")
		if ends := "close_connections_on_host_health_failure"; o.flag(ends) {
			s.in("down").set("live-flows", "close", o.path(ends))
		}
	}
	c.proxy(s)
	c.source(s, g)
	keepalive(s.in("tcp"), o.object("upstream_connection_options").object("tcp_keepalive"))
	c.membersOf(s, g)
	return s
}

// panicThreshold returns healthy_panic_threshold, of 0 to 1.
func (c *cluster) panicThreshold() float64 {
	return c.o.object("common_lb_config").percent("healthy_panic_threshold", 0.5)
}

// localities sets what localities are used for.
func (c *cluster) localities(s *section, o *object) {
	switch {
	case o.has("zone_aware_lb_config"):
		s.set("zone", "prefer", o.path("zone_aware_lb_config"))
	case o.has("locality_weighted_lb_config") && c.eds == "":
		o.warn("locality_weighted_lb_config", "ignored: localities have no weights in a cluster of this type; allowed: type EDS")
	case o.has("locality_weighted_lb_config"):
		s.set("zone", "weighted", o.path("locality_weighted_lb_config"))
	}
}

// balance sets how members are chosen.
func (c *cluster) balance(s *section) {
	o := c.o
	policy, _ := o.number("lb_policy")
	slow := time.Duration(0)
	path := "lb_policy"
	name := ""
	if p := o.object("load_balancing_policy"); p != nil {
		path = "load_balancing_policy"
		name, slow = c.policy(s, p)
	} else {
		switch policy {
		case 0:
			name, slow = "round-robin", o.object("round_robin_lb_config").object("slow_start_config").duration("slow_start_window", 0)
		case 1:
			name, slow = "p2c", o.object("least_request_lb_config").object("slow_start_config").duration("slow_start_window", 0)
		case 2, 5:
			name = "maglev"
		case 3:
			name = "random"
		case 7:
			o.fail("load_balancing_policy", "missing")
		default:
			o.fail("lb_policy", "not supported: %d; allowed: ROUND_ROBIN, LEAST_REQUEST, RANDOM, RING_HASH, MAGLEV, LOAD_BALANCING_POLICY_CONFIG", policy)
		}
	}
	c.random = name == "random"
	if name != "" {
		s.set("balance", name, path)
	}
	if slow > 0 {
		s.set("slow-start", exact(slow), path)
	}
}

// policy reads the first policy that is known.
func (c *cluster) policy(s *section, o *object) (name string, slow time.Duration) {
	tables := []*message{&roundRobinPolicyTable, &leastRequestPolicyTable, &randomPolicyTable, &maglevPolicyTable, &ringHashPolicyTable}
	var unknown []string
	for _, p := range o.objects("policies") {
		x := p.object("typed_extension_config")
		kind := x.kind("typed_config")
		known := false
		for _, m := range tables {
			known = known || m.name == kind
		}
		if !known {
			unknown = append(unknown, ads.OneLine(kind))
			continue
		}
		v := x.open("typed_config", tables...)
		if v == nil { // its type is known, and what follows it is damaged
			return "", 0
		}
		if v.of == &maglevPolicyTable || v.of == &ringHashPolicyTable {
			c.localities(s, v)
		} else {
			c.localities(s, v.object("locality_lb_config"))
		}
		slow = v.object("slow_start_config").duration("slow_start_window", 0)
		switch v.of {
		case &leastRequestPolicyTable:
			if mode, _ := v.number("selection_method"); mode == 1 || v.flag("enable_full_scan") {
				return "least-connections", slow
			}
			return "p2c", slow
		case &randomPolicyTable:
			return "random", slow
		case &maglevPolicyTable, &ringHashPolicyTable:
			return "maglev", slow
		}
		return "round-robin", slow
	}
	o.fail("policies", "none is known: %s; allowed: round_robin, least_request, random, maglev, ring_hash", strings.Join(unknown, ", "))
	return "", 0
}

// membersOf sets the members of a group, or where they are found.
func (c *cluster) membersOf(s *section, g *groupPlan) {
	flows := c.maxFlows("per_host_thresholds")
	if c.eds != "" {
		entry := "{xds: " + quote(c.eds) + ", registry: " + registryName
		if g.use.udp {
			entry += ", network: udp"
		}
		if flows > 0 {
			entry += ", max-flows: " + strconv.Itoa(flows)
		}
		if c.random {
			entry += ", weight: 1"
		}
		s.set("discover", "["+entry+"}]", "eds_cluster_config")
		return
	}
	if len(c.static) == 1 && flows == 0 && len(c.users) != 1 {
		flows = c.maxFlows("thresholds")
	}
	var list section
	usable := c.usable()
	for i, m := range c.static {
		if g.use.udp && m.To.Kind == spec.TCP {
			m.To.Kind = spec.UDP
		}
		if g.use.udp && m.To.Kind == spec.Unix {
			m.To.Kind = spec.Unixgram
		}
		text := "{to: " + quote(m.To.String())
		if m.Weight != 1 && !c.random {
			text += ", weight: " + strconv.Itoa(m.Weight)
		}
		if m.Health == Degraded || m.Priority > 0 {
			text += ", backup: true"
		}
		if m.Priority > 1 {
			m.at.up.fail("priority", "not supported: %d in a cluster of this type; allowed: 0 and 1, or type EDS", m.Priority)
		}
		if m.Health >= Unhealthy && usable {
			text += ", drained: true"
		}
		if flows > 0 {
			text += ", max-flows: " + strconv.Itoa(flows)
		}
		list.set(strconv.Itoa(i), text+"}", m.at.path(""))
	}
	// One line for each member.
	inner := s.in("members")
	inner.keys, inner.list = list.keys, true
}

// usable reports whether the statuses of static endpoints leave enough of them; if not, Envoy would use all.
func (c *cluster) usable() bool {
	good, counted := 0, 0
	for _, m := range c.static {
		if m.Health <= Degraded {
			good++
		}
		if m.Health != Draining {
			counted++
		}
	}
	return float64(good) >= c.panicThreshold()*float64(counted) && (good > 0 || c.panicThreshold() == 0)
}

// maxFlows returns max_connections of the thresholds of default priority; 0: none.
func (c *cluster) maxFlows(name string) int {
	for _, t := range c.o.object("circuit_breakers").objects(name) {
		if p, _ := t.number("priority"); p == 0 {
			if n, ok := t.number("max_connections"); ok {
				if n == 0 || n > 1<<30 {
					if n == 0 {
						t.fail("max_connections", "not supported: 0 would refuse everybody")
					}
					return 0
				}
				return int(n)
			}
		}
	}
	return 0
}

func (c *cluster) check(s *section) {
	checks := c.o.objects("health_checks")
	if len(checks) == 0 {
		return
	}
	o := checks[0]
	if len(checks) > 1 {
		checks[1].fail("", "not supported: a second check")
	}
	kind, k := "tcp", &section{}
	interval := o.duration("interval", 0)
	if interval == 0 {
		o.fail("interval", "missing")
	}
	if !o.has("timeout") {
		o.fail("timeout", "missing")
	}
	k.set("every", exact(max(interval, 100*time.Millisecond)), o.path("interval"))
	k.set("timeout", exact(o.duration("timeout", 0)), o.path("timeout"))
	k.set("fall", strconv.FormatUint(o.numberOr("unhealthy_threshold", 3), 10), o.path("unhealthy_threshold"))
	k.set("rise", strconv.FormatUint(o.numberOr("healthy_threshold", 2), 10), o.path("healthy_threshold"))
	jitter := 0.0
	if n, _ := o.number("interval_jitter_percent"); n > 0 {
		jitter = min(1, float64(n)/100)
	} else if d := o.duration("interval_jitter", 0); d > 0 && interval > 0 {
		jitter = min(1, float64(d)/float64(interval))
	}
	if jitter > 0 {
		k.set("jitter", share(jitter), o.path("interval_jitter"))
	}
	if down := o.duration("unhealthy_interval", 0); down > 0 {
		k.set("every-down", exact(max(down, 100*time.Millisecond)), o.path("unhealthy_interval"))
	}
	if port, ok := o.number("alt_port"); ok {
		k.set("port", strconv.FormatUint(port, 10), o.path("alt_port"))
	}
	tcp, http := o.object("tcp_health_check"), o.object("http_health_check")
	switch {
	case http != nil:
		kind = "http"
		httpCheck(k, http)
	case tcp != nil:
		send, receive := tcp.object("send").payload(), tcp.objects("receive")
		if len(send)+len(receive) > 0 {
			kind = "send-expect"
		}
		if len(send) > 0 {
			k.set("send", octets(send), tcp.path("send"))
		}
		var then []string // each is looked for behind the one before
		for i, r := range receive {
			if i == 0 {
				k.set("expect", octets(r.payload()), r.path(""))
			} else {
				then = append(then, "{expect: "+octets(r.payload())+"}")
			}
		}
		if len(then) > 0 {
			k.set("then", "["+strings.Join(then, ", ")+"]", receive[1].path(""))
		}
	default:
		o.fail("", "neither tcp_health_check nor http_health_check")
	}
	s.in("check").in(kind).keys = k.keys
}

// payload returns the bytes of a Payload: a text of hexadecimal digits, or bytes.
func (o *object) payload() []byte {
	if o == nil {
		return nil
	}
	if b := o.bytes("binary"); b != nil {
		return b
	}
	b, err := hex.DecodeString(o.text("text"))
	if err != nil {
		o.fail("text", "not hexadecimal digits")
	}
	return b
}

// octets writes bytes.
func octets(b []byte) string { return "hex:" + hex.EncodeToString(b) }

var methods = [...]string{"", "GET", "HEAD", "POST", "PUT", "DELETE", "", "OPTIONS", "TRACE"}

func httpCheck(k *section, o *object) {
	k.set("path", quote(o.text("path")), o.path("path"))
	if host := o.text("host"); host != "" {
		k.set("host", quote(host), o.path("host"))
	}
	if n, _ := o.number("method"); n > 0 {
		if n >= uint64(len(methods)) || methods[n] == "" {
			o.fail("method", "not supported: %d", n)
		} else {
			k.set("method", methods[n], o.path("method"))
		}
	}
	statuses := []string{"200"}
	if ranges := o.objects("expected_statuses"); len(ranges) > 0 {
		statuses = statuses[:0]
		for _, r := range ranges {
			from, _ := r.number("start")
			to, _ := r.number("end")
			if from < 100 || to <= from || to > 600 {
				r.fail("", "not a range of statuses from 100 to 599: [%d, %d)", int64(from), int64(to))
				continue
			}
			statuses = append(statuses, fmt.Sprintf("%d-%d", from, to-1))
		}
	}
	k.set("statuses", quoteList(statuses), o.path("expected_statuses"))
}

func (c *cluster) eject(s *section) {
	o := c.o.object("outlier_detection")
	if o == nil {
		return
	}
	failures, enforcing := "consecutive_5xx", "enforcing_consecutive_5xx"
	if o.flag("split_external_local_origin_errors") {
		failures, enforcing = "consecutive_local_origin_failure", "enforcing_consecutive_local_origin_failure"
	}
	switch n := o.numberOr(enforcing, 100); {
	case n == 0:
		return
	case n < 100:
		o.warn(enforcing, "ignored: members are ejected whenever they have failed often enough")
	}
	e := s.in("eject")
	e.set("failures", strconv.FormatUint(max(1, o.numberOr(failures, 5)), 10), o.path(failures))
	base := o.duration("base_ejection_time", 30*time.Second)
	e.set("for", exact(max(base, 100*time.Millisecond)), o.path("base_ejection_time"))
	e.set("max", exact(max(o.duration("max_ejection_time", 300*time.Second), base, 100*time.Millisecond)), o.path("max_ejection_time"))
	e.set("share", share(float64(min(100, o.numberOr("max_ejection_percent", 10)))/100), o.path("max_ejection_percent"))
}

// proxy sets the PROXY header to upstreams.
func (c *cluster) proxy(s *section) {
	t := c.o.object("transport_socket")
	if t == nil {
		return
	}
	p := t.open("typed_config", &rawBufferTable, &upstreamProxyTable)
	if p == nil || p.of == &rawBufferTable {
		return
	}
	if inner := p.object("transport_socket"); inner != nil {
		inner.open("typed_config", &rawBufferTable)
	}
	o := p.object("config")
	if o == nil {
		o = &object{d: p.d, of: &proxyConfigTable, up: p, as: p.of.field(1)}
	}
	version, _ := o.number("version")
	if version > 1 {
		o.fail("version", "unknown value %d", version)
	}
	h := s.in("proxy-protocol")
	h.set("version", strconv.FormatUint(version+1, 10), o.path("version"))
	if pass := o.object("pass_through_tlvs"); pass != nil && version == 1 {
		if mode, _ := pass.number("match_type"); mode == 0 {
			h.set("forward", "all", pass.path("match_type"))
		} else if types := pass.numbers("tlv_type"); len(types) > 0 {
			list := make([]string, len(types))
			for i, n := range types {
				list[i] = fmt.Sprintf("0x%02X", n)
			}
			h.set("forward", "["+strings.Join(list, ", ")+"]", pass.path("tlv_type"))
		}
	}
	if added := o.objects("added_tlvs"); len(added) > 0 && version == 1 {
		var list []string
		for _, e := range added {
			kind, _ := e.number("type")
			list = append(list, fmt.Sprintf("0x%02X: %s", kind, octets(e.bytes("value"))))
		}
		h.set("tlvs", "{"+strings.Join(list, ", ")+"}", o.path("added_tlvs"))
	}
}

func (c *cluster) source(s *section, g *groupPlan) {
	if g.use.original {
		s.set("source", "client", "")
		return
	}
	o := c.o.object("upstream_bind_config")
	if o == nil {
		return
	}
	a := o.object("source_address")
	if a == nil {
		return
	}
	if e, ok := a.socket(); ok {
		if e.Port != 0 {
			a.fail("port_value", "not supported: the kernel chooses the port")
		}
		if !e.Addr().IsValid() || e.Addr().Addr().IsUnspecified() {
			return // any address
		}
		s.set("source", "["+quote(e.Host)+"]", a.path("address"))
	}
}

// keepalive sets the options of probes.
func keepalive(s *section, o *object) {
	for _, k := range []struct{ name, key, unit string }{{"keepalive_time", "keepalive", "s"}, {"keepalive_interval", "keepalive-interval", "s"}, {"keepalive_probes", "keepalive-count", ""}} {
		if n, ok := o.number(k.name); ok && n > 0 {
			s.set(k.key, strconv.FormatUint(n, 10)+k.unit, o.path(k.name))
		}
	}
}

// kind returns the type of the message in an Any, without what precedes the last slash.
func (o *object) kind(name string) string {
	if o == nil {
		return ""
	}
	url, _, _ := ads.ParseAny(o.bytes(name))
	return url[strings.LastIndexByte(url, '/')+1:]
}
