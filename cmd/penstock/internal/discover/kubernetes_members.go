package discover

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// kubeMembers makes members from the slices of a service, which overlap at times.
type kubeMembers struct {
	query   spec.Discover
	service string
	feed    *feed

	slices map[string]*keptSlice
	found  map[netip.AddrPort][]foundEndpoint // each in all slices that have it; port 0: it has none that fits
	total  int                                // endpoints in all slices
	stack  *stack                             // nil: both families are members
	ready  int                                // addresses that are ready
	err    error                              // why the slices make no members
	right  []string                           // keys of what was wrong and is gone, or right now
}

func newKubeMembers(d spec.Discover, service string, f *feed) *kubeMembers {
	m := &kubeMembers{query: d, service: service, feed: f, slices: map[string]*keptSlice{}, found: map[netip.AddrPort][]foundEndpoint{}}
	if d.Family == "" {
		m.stack = &stack{routed: hasRoute, pods: map[string]*[2]int{}}
	}
	return m
}

// put adds a slice, or replaces it. It returns the addresses whose endpoint has changed.
func (m *kubeMembers) put(s *endpointSlice) (changed []netip.AddrPort, k *keptSlice, err error) {
	name := s.Metadata.Name
	if name == "" || len(name) > 253 {
		return nil, nil, fmt.Errorf("an EndpointSlice has the invalid name %q", text(name, 40))
	}
	if s.Metadata.Labels[serviceLabel] != m.service {
		return nil, nil, nil // it is not what was asked for
	}
	k = s.keep(m.query)
	old := m.slices[name]
	total := m.total + len(k.endpoints)
	if old != nil {
		total -= len(old.at)
	}
	if old == nil && len(m.slices) >= maxSlices || total > maxEndpoints {
		return nil, nil, fmt.Errorf("the service has more than %d EndpointSlices or %d endpoints", maxSlices, maxEndpoints)
	}
	return m.replace(name, k), k, nil
}

// change adds or replaces a slice, and returns what has changed.
func (m *kubeMembers) change(s *endpointSlice) error {
	some := m.ready > 0
	changed, k, err := m.put(s)
	if k == nil {
		return err
	}
	return m.tell(some != (m.ready > 0), changed, map[string]*keptSlice{s.Metadata.Name: k})
}

// remove removes a slice, and tells what has changed.
func (m *kubeMembers) remove(name string) error {
	some := m.ready > 0
	changed := m.replace(name, nil)
	return m.tell(some != (m.ready > 0), changed, nil)
}

// replace puts a slice in the place of another; nil: there is none any more. It returns the addresses whose endpoint has changed.
func (m *kubeMembers) replace(name string, next *keptSlice) (changed []netip.AddrPort) {
	before := map[netip.AddrPort]foundEndpoint{}
	note := func(at netip.AddrPort) {
		if _, ok := before[at]; !ok {
			before[at] = m.winner(at)
		}
	}
	if old := m.slices[name]; old != nil {
		m.total -= len(old.at)
		for i := range old.said {
			m.right = append(m.right, wrongKey(name, i))
		}
		for _, at := range old.at {
			note(at)
			rest := slices.DeleteFunc(m.found[at], func(e foundEndpoint) bool {
				if e.slice == name && m.stack != nil {
					m.stack.add(&e, -1)
				}
				return e.slice == name
			})
			if len(rest) == 0 {
				delete(m.found, at)
			} else {
				m.found[at] = rest
			}
		}
		delete(m.slices, name)
	}
	if next != nil {
		m.slices[name] = next
		m.total += len(next.endpoints)
		for _, e := range next.endpoints {
			note(e.at)
			if m.stack != nil {
				m.stack.add(&e, 1)
			}
			m.found[e.at] = append(m.found[e.at], e)
			next.at = append(next.at, e.at)
		}
		next.endpoints = nil
	}
	for at, was := range before {
		is := m.winner(at)
		if is == was {
			continue
		}
		m.ready += readyCount(is) - readyCount(was)
		changed = append(changed, at)
	}
	return changed
}

// winner returns the endpoint of an address, which has no slice if there is none.
func (m *kubeMembers) winner(at netip.AddrPort) (e foundEndpoint) {
	for i, other := range m.found[at] {
		if other.slice = ""; i == 0 || cmp.Or(cmp.Compare(other.state, e.state), cmp.Compare(other.metadata, e.metadata), cmp.Compare(other.zone, e.zone)) < 0 {
			e = other
		}
	}
	return e
}

func readyCount(e foundEndpoint) int {
	if e.at.Port() != 0 && e.state == ready {
		return 1
	}
	return 0
}

// tell tells the feed of a change: of all addresses, or of some.
func (m *kubeMembers) tell(all bool, changed []netip.AddrPort, said map[string]*keptSlice) error {
	had := m.err
	if m.err = m.checkPorts(); m.err != nil {
		m.feed.failed(m.err)
		return nil
	}
	all = all || had != nil
	if m.stack != nil && m.stack.choose(m.found) {
		all = true
	}
	err := m.feed.change(all, func(e *edits) {
		if all {
			for at := range m.found {
				m.tellOne(e, at)
			}
		} else {
			for _, at := range changed {
				m.tellOne(e, at)
			}
		}
		for _, key := range m.right {
			if !all {
				e.remove(key)
			}
		}
		m.right = nil
		for name, k := range said {
			for i, problem := range k.wrong {
				e.reject(wrongKey(name, i), problem)
			}
			k.said, k.wrong = len(k.wrong), nil
		}
	})
	if err == nil {
		m.feed.connected()
	}
	return err
}

// wrongKey is the feed's key of what is wrong with a slice.
func wrongKey(slice string, i int) string { return fmt.Sprintf("%s #%d", slice, i) }

func (m *kubeMembers) tellOne(e *edits, at netip.AddrPort) {
	w := m.winner(at)
	switch {
	case at.Port() == 0:
	case m.stack != nil && w.at.IsValid() && m.stack.hides(&w):
		e.remove(at.String())
	case !w.at.IsValid():
		e.remove(at.String())
	default:
		e.set(at.String(), upstream.Target{
			Addr:     relay.Addr{Network: m.query.Network, AddrPort: at},
			Weight:   1,
			Zone:     w.zone,
			Draining: w.state == terminating || w.state == terminatingServing && m.ready > 0,
			Metadata: w.metadata,
		})
	}
}

// checkPorts returns an error if no slice has the port, or several ports fit.
func (m *kubeMembers) checkPorts() error {
	d := m.query
	var has []string
	fits, endpoints, foreign := 0, 0, 0
	for _, k := range m.slices {
		if k.foreign {
			foreign++
		}
		if len(k.at) == 0 {
			continue
		}
		endpoints += len(k.at)
		if k.at[0].Port() != 0 {
			fits++
		}
		for _, p := range k.ports {
			name := fmt.Sprintf("%q", p.name)
			if d.PortName != "" || d.Port != 0 { // otherwise the number may differ between the endpoints of a named port
				name += fmt.Sprintf(" (%d)", p.port)
			}
			if len(has) < 20 && !slices.Contains(has, name) {
				has = append(has, name)
			}
		}
	}
	if foreign > 0 && foreign == len(m.slices) {
		return fmt.Errorf("the service %s has no %s addresses; allowed: another family, or none", d.Key, map[string]string{"ipv4": "IPv4", "ipv6": "IPv6"}[d.Family])
	}
	several := d.PortName == "" && d.Port == 0 && len(has) > 1
	if endpoints == 0 || fits > 0 && !several {
		return nil
	}
	slices.Sort(has)
	list, protocol := strings.Join(has, ", "), protocolOf(d.Network)
	switch {
	case several:
		return fmt.Errorf("the service %s has several %s ports, and port or port-name must say which: %s", d.Key, protocol, list)
	case len(has) == 0:
		return fmt.Errorf("the service %s has no %s port; port can give a number", d.Key, protocol)
	}
	return fmt.Errorf("no %s port of the service %s fits; it has %s", protocol, d.Key, list)
}
