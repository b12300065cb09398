package discover

import (
	"net"
	"net/netip"
	"time"
)

// A pod of a service with two stacks has an endpoint in a slice of each family. It is one member, at one of the
// addresses: kube-proxy and gateways also use one family for a client, and a host may have a route to one only.

// A stack is what is known of the families of a service.
type stack struct {
	routed func(netip.Addr) bool
	pods   map[string]*[2]int // by UID: endpoints that are IPv4, and IPv6
	both   int                // pods that have both
	dual   bool               // there was such a pod
	ipv6   bool               // which family is used then
	looked time.Time          // when routes were looked at
}

// hasRoute reports whether this host has a route to an address. Nothing is sent: connect(2) of a socket of UDP looks
// the route up.
func hasRoute(a netip.Addr) bool {
	c, err := net.Dial("udp", netip.AddrPortFrom(a, 9).String())
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// add adds an endpoint, or with -1 takes it away.
func (s *stack) add(e *foundEndpoint, n int) {
	if e.pod == "" {
		return
	}
	has := s.pods[e.pod]
	if has == nil {
		has = &[2]int{}
		s.pods[e.pod] = has
	}
	was := has[0] > 0 && has[1] > 0
	if e.at.Addr().Is6() {
		has[1] += n
	} else {
		has[0] += n
	}
	is := has[0] > 0 && has[1] > 0
	switch {
	case is && !was:
		s.both++
	case was && !is:
		s.both--
	case *has == [2]int{}:
		delete(s.pods, e.pod)
	}
}

// routesFor is how long what was found of routes holds, as long as the slices change.
const routesFor = 30 * time.Second

// choose chooses the family of a service with two stacks, and reports whether that changes the members: IPv4, unless
// there is a route to the IPv6 address of a pod, and none to its IPv4 address.
func (s *stack) choose(found map[netip.AddrPort][]foundEndpoint) (changed bool) {
	if s.both == 0 || s.dual && time.Since(s.looked) < routesFor {
		return false
	}
	first, ipv6 := !s.dual, s.ipv6
	s.dual, s.looked = true, time.Now()
	var at [2]netip.Addr // the addresses of one pod
	pod := ""
	for _, list := range found {
		e := &list[0]
		if has := s.pods[e.pod]; e.pod == "" || has[0] == 0 || has[1] == 0 || pod != "" && pod != e.pod {
			continue
		}
		pod = e.pod
		if e.at.Addr().Is6() {
			at[1] = e.at.Addr()
		} else {
			at[0] = e.at.Addr()
		}
	}
	s.ipv6 = at[0].IsValid() && at[1].IsValid() && !s.routed(at[0]) && s.routed(at[1])
	return first || ipv6 != s.ipv6
}

// hides reports whether an endpoint is no member, because its pod is one at the address of the other family. Once a pod
// had both, that holds for all pods: the slices of both families do not change at the same moment.
func (s *stack) hides(e *foundEndpoint) bool {
	return s.dual && e.pod != "" && e.at.Addr().Is6() != s.ipv6
}
