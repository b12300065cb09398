package discover

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// An endpointSlice is what is read of discovery.k8s.io/v1 EndpointSlice. In all these types a pointer is nil
// where the field is absent, which is not the same as its zero value.
type endpointSlice struct {
	Metadata    objectMeta      `json:"metadata"`
	AddressType string          `json:"addressType"`
	Endpoints   []sliceEndpoint `json:"endpoints"`
	Ports       []slicePort     `json:"ports"`
}

type objectMeta struct {
	Name              string            `json:"name"`
	ResourceVersion   string            `json:"resourceVersion"`
	Labels            map[string]string `json:"labels"`
	DeletionTimestamp *string           `json:"deletionTimestamp"`
}

type sliceEndpoint struct {
	Addresses  []string `json:"addresses"`
	Conditions struct {
		Ready       *bool `json:"ready"`
		Serving     *bool `json:"serving"`
		Terminating *bool `json:"terminating"`
	} `json:"conditions"`
	NodeName  string `json:"nodeName"`
	Zone      string `json:"zone"`
	TargetRef *struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"targetRef"`
}

type slicePort struct {
	Name     string  `json:"name"`
	Protocol *string `json:"protocol"` // nil: TCP
	Port     *uint16 `json:"port"`     // nil: any
}

// serviceLabel is the label of an EndpointSlice that names its service.
const serviceLabel = "kubernetes.io/service-name"

// An endpointState is the state of an endpoint. The lowest counts when an endpoint is in several slices: one that is not up to
// date may still say that an endpoint which terminates is ready, but never the other way round.
type endpointState uint8

const (
	terminating        endpointState = iota // gets no new flows
	terminatingServing                      // gets new flows only if no endpoint is ready, as with kube-proxy
	ready
)

// state returns an endpoint's state, and reports whether it is a member at all. What the absence of a
// condition means is documented in EndpointConditions.
func (e *sliceEndpoint) state() (endpointState, bool) {
	c := e.Conditions
	isReady := c.Ready == nil || *c.Ready
	serving := isReady
	if c.Serving != nil {
		serving = *c.Serving
	}
	switch {
	case c.Terminating != nil && *c.Terminating && serving:
		return terminatingServing, true
	case c.Terminating != nil && *c.Terminating:
		return terminating, true
	}
	return ready, isReady
}

// A keptSlice is what is kept of an EndpointSlice.
type keptSlice struct {
	endpoints []foundEndpoint // only until they are in kubeMembers
	at        []netip.AddrPort
	ports     []keptPort // that fit the protocol
	anyPort   bool       // it has no ports, or one without a number
	wrong     []string   // what is wrong with endpoints that are left out, only until it has been said
	said      int        // how many of those have been
	foreign   bool       // its endpoints are of the family that is not wanted
}

// A foundEndpoint is an endpoint of a slice.
type foundEndpoint struct {
	at       netip.AddrPort
	slice    string // the slice's name
	pod      string // UID; empty: it is of no pod
	state    endpointState
	zone     string
	metadata string
}

type keptPort struct {
	name string
	port uint16
}

// maxWrong bounds what is said of one slice.
const maxWrong = 10

func (k *keptSlice) reject(problem string) {
	if len(k.wrong) < maxWrong {
		k.wrong = append(k.wrong, problem)
	}
}

// keep returns what the query needs of a slice.
func (s *endpointSlice) keep(d spec.Discover) *keptSlice {
	k := &keptSlice{anyPort: len(s.Ports) == 0}
	if s.AddressType == "FQDN" {
		k.reject("its endpoints are names (addressType FQDN), which are not resolved: use discover with dns")
		return k
	}
	if d.Family == "ipv4" && s.AddressType == "IPv6" || d.Family == "ipv6" && s.AddressType == "IPv4" {
		k.foreign = true
		return k
	}
	for _, p := range s.Ports {
		protocol := "TCP"
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		switch {
		case protocol != protocolOf(d.Network) || len(k.ports) >= maxPorts:
		case p.Port == nil:
			k.anyPort = true
		case *p.Port != 0:
			k.ports = append(k.ports, keptPort{strings.Clone(text(p.Name, 63)), *p.Port})
		}
	}
	port := k.choosePort(d)
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		state, ok := e.state()
		if !ok {
			continue
		}
		// The addresses of an endpoint are fungible: the first is used, as by kube-proxy.
		first := ""
		if len(e.Addresses) > 0 {
			first = e.Addresses[0]
		}
		ip, err := netip.ParseAddr(first)
		if err != nil || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() || ip.Is4() != (s.AddressType == "IPv4") {
			k.reject(fmt.Sprintf("%q is no address of type %s", text(first, 60), text(s.AddressType, 10)))
			continue
		}
		k.endpoints = append(k.endpoints, foundEndpoint{netip.AddrPortFrom(ip, port), s.Metadata.Name, e.pod(), state, zone(e.Zone), e.metadata()})
	}
	return k
}

// maxPorts bounds the ports of a slice, as the API does.
const maxPorts = 100

func protocolOf(network spec.Kind) string {
	if network == spec.UDP {
		return "UDP"
	}
	return "TCP"
}

// metadata returns the names of the node and the pod as JSON. Every change of a slice calls it for all endpoints, which is why
// names that need no escaping, as all of Kubernetes, are put together by hand.
func (e *sliceEndpoint) metadata() string {
	node, pod := text(e.NodeName, 253), ""
	if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
		pod = text(e.TargetRef.Name, 253)
	}
	if spec.ValidNode(node) && spec.ValidNode(pod) {
		return `{"node":"` + node + `","pod":"` + pod + `"}`
	}
	m := map[string]any{}
	if node != "" {
		m["node"] = node
	}
	if pod != "" {
		m["pod"] = pod
	}
	return metadata(m)
}

// pod returns the UID of the pod; empty: the endpoint is of none.
func (e *sliceEndpoint) pod() string {
	if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
		return ""
	}
	return strings.Clone(text(e.TargetRef.UID, 64))
}

// choosePort returns the number of the port of a slice's endpoints; 0: it has none that fits.
func (k *keptSlice) choosePort(d spec.Discover) uint16 {
	for _, p := range k.ports {
		if (d.PortName == "" || p.name == d.PortName) && (d.Port == 0 || p.port == d.Port) {
			return p.port
		}
	}
	if k.anyPort && d.PortName == "" {
		return d.Port
	}
	return 0
}
