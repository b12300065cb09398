package xds

import (
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Member is an endpoint of a ClusterLoadAssignment.
type Member struct {
	To       spec.Endpoint // its Kind is TCP for an address with a port, whatever the group needs
	Weight   int           // 1 to 256
	Zone     string
	Locality Locality
	Priority int
	Health   Health
	Metadata string // a JSON object; empty: none

	at *object
}

// A Locality is a region, a zone and a sub-zone, and what its members weigh together.
type Locality struct {
	Name   string // all three, with slashes, or a hash of them; empty: it has none
	Weight uint32 // 0: none
}

// Health is what a control plane says of the health of an endpoint.
type Health uint8

// The kinds of health. UNHEALTHY and TIMEOUT are the same.
const (
	Healthy Health = iota
	Degraded
	Unhealthy
	Draining
)

// Bounds of members.
const (
	maxMembers  = 1 << 16
	maxWeight   = 256
	maxPriority = 127 // Envoy's is 128 priorities
	maxMetadata = 1 << 10
)

// entry reads an LbEndpoint, and reports whether it is a member.
func (o *object) entry(names bool) (e endpointEntry, ok bool) {
	endpoint := o.object("endpoint")
	if endpoint == nil {
		o.fail("endpoint", "missing")
		return e, false
	}
	if e.member.To, ok = endpoint.endpoint("address", names); !ok {
		return e, false
	}
	switch status, _ := o.number("health_status"); status {
	case 0, 1: // UNKNOWN, HEALTHY
	case 2, 4: // UNHEALTHY, TIMEOUT
		e.member.Health = Unhealthy
	case 3: // DRAINING
		e.member.Health = Draining
	case 5: // DEGRADED
		e.member.Health = Degraded
	default:
		o.fail("health_status", "unknown value %d", status)
	}
	e.member.Metadata = o.metadata()
	w, set := o.number("load_balancing_weight")
	if set && w == 0 {
		o.fail("load_balancing_weight", "0 is not a weight; allowed: 1 to 4294967295")
	}
	e.weight = w & (1<<32 - 1)
	return e, true
}

// metadata returns the metadata of an endpoint as a canonical JSON object.
func (o *object) metadata() string {
	m := o.object("metadata")
	if m == nil {
		return ""
	}
	all := map[string]any{}
	for _, v := range m.values {
		if v.f.name != "filter_metadata" {
			continue
		}
		key, value, err := parseEntry(v.b)
		if err != nil {
			m.fail("filter_metadata", "%v", err)
			return ""
		}
		fields, err := parseStruct(value)
		if err != nil {
			m.fail("filter_metadata", "%s: %v", ads.OneLine(key), err)
			return ""
		}
		all[key] = fields
	}
	if len(all) == 0 {
		return ""
	}
	text, err := json.Marshal(all)
	if err != nil || len(text) > maxMetadata {
		m.warn("filter_metadata", "left out: its JSON has more than %d bytes", maxMetadata)
		return ""
	}
	return string(text)
}

// endpoint reads an Address as an endpoint of streams. It reports an error otherwise.
func (o *object) endpoint(name string, names bool) (e spec.Endpoint, ok bool) {
	a := o.object(name)
	if a == nil {
		o.fail(name, "missing")
		return e, false
	}
	switch s, p := a.object("socket_address"), a.object("pipe"); {
	case s != nil:
		if e, ok = s.socket(); !ok {
			return e, false
		}
		if _, err := netip.ParseAddr(e.Host); err != nil && !names {
			s.fail("address", "%s is not an address", ads.OneLine(e.Host))
			return e, false
		}
		if e.Port == 0 {
			s.fail("port_value", "an endpoint needs a port from 1 to 65535")
			return e, false
		}
		return e, true
	case p != nil:
		return p.pipe()
	}
	a.fail("", "neither a socket_address nor a pipe")
	return e, false
}

// socket reads a SocketAddress. Any host that can be one is accepted.
func (o *object) socket() (e spec.Endpoint, ok bool) {
	port, _ := o.number("port_value")
	if port > 65535 {
		o.fail("port_value", "%d is not a port", port)
		return e, false
	}
	if protocol, _ := o.number("protocol"); protocol > 1 {
		o.fail("protocol", "unknown value %d", protocol)
		return e, false
	}
	host := o.text("address")
	if host == "" {
		o.fail("address", "missing")
		return e, false
	}
	e = spec.Endpoint{Kind: spec.TCP, Host: host, Port: uint16(port)}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			o.fail("address", "%s has a zone, which addresses here have not", ads.OneLine(host))
			return e, false
		}
		e.Host = a.Unmap().String()
	}
	if parsed, err := spec.ParseListener(e.String()); err != nil || parsed != e {
		o.fail("address", "%s is neither a name nor an address", ads.OneLine(host))
		return e, false
	}
	return e, true
}

// pipe reads a Pipe.
func (o *object) pipe() (e spec.Endpoint, ok bool) {
	path := o.text("path")
	e = spec.Endpoint{Kind: spec.Unix, Path: path}
	if !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "@") {
		o.fail("path", "%q is not an absolute path", ads.OneLine(path))
		return e, false
	}
	if parsed, err := spec.ParseUpstream(e.String()); err != nil || parsed != e {
		o.fail("path", "%q cannot be a Unix socket", ads.OneLine(path))
		return e, false
	}
	return e, true
}
