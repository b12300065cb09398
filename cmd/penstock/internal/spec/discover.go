package spec

import "time"

// Discover describes members that are found by DNS, or in a registry. It is comparable.
type Discover struct {
	Network  Kind   // TCP or UDP
	Host     string // for A and AAAA
	Port     uint16 // for A and AAAA, Kubernetes and Docker; 0: not set
	Service  string // for SRV: _name._proto.domain; Host and Port are then unused
	Every    time.Duration
	Lookups  Lookups // the group's
	Weight   int     // of each member; 0: 1, or the source's
	MaxFlows int

	Registry   Registry // Kind is empty for DNS
	Key        string   // etcd: a prefix; Consul: a service; Nomad: a service; Kubernetes: NAMESPACE/SERVICE; Docker: the value of a label; HTTP: a path with a query; xDS: a ClusterLoadAssignment
	PortName   string   // Kubernetes
	Tags       string   // Consul: which a member must have, separated by commas
	Datacenter string   // Consul; empty: the agent's
	Stale      bool     // Consul: any server may answer
	Namespace  string   // Consul; empty: the token's
	Partition  string   // Consul; empty: the agent's
	Peer       string   // Consul: the cluster that the service is imported from; empty: it is not imported
	Family     string   // Kubernetes: ipv4, ipv6 or any; empty: one for each pod

	DockerNetwork string // Docker: the network whose addresses are used; empty: the only one
	Published     bool   // Docker: members are where ports are published on the host
}

// String returns what is looked for, for messages.
func (d Discover) String() string {
	switch {
	case d.Registry.Kind != "":
		return d.Registry.Kind + " " + d.Key
	case d.Service != "":
		return d.Service
	}
	return Endpoint{Kind: d.Network, Host: d.Host, Port: d.Port}.String()
}

// Lookups configures DNS lookups of a group, including those of its members' names.
type Lookups struct {
	// Keep is how long members stay after DNS has answered that their name does not exist or has
	// no address; 0: for ever. They stay in any case while lookups fail.
	Keep       time.Duration
	MaxMembers int // of one name or source; 0: no limit but that of package upstream
	// Vanish is the share of the members that one answer may remove. If it removes more, or all,
	// they stay, unless the answer is the same for Keep. One of several may always go. 0: any number.
	Vanish float64
}
