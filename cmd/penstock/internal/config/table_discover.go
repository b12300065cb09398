package config

import (
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

var discoverKeys = keysOf("discover",
	field("dns", host, "", "A host name whose addresses become members.", func(d *spec.Discover) *string { return &d.Host }),
	field("srv", service, "", "A service whose SRV records become members.", func(d *spec.Discover) *string { return &d.Service }),
	registryKey("etcd", "A prefix of keys in etcd. Each key below it is a member: its value is an address, or JSON.", `^/[^\x00-\x1f\x7f]+$`, "a prefix that begins with /"),
	registryKey("consul", "A service in Consul. Its healthy instances become members.", `^[A-Za-z0-9_.-]{1,253}$`, "the name of a service"),
	registryKey("nomad", "A service in Nomad. Its instances become members.", `^[A-Za-z0-9_.-]{1,253}$`, "the name of a service"),
	registryKey("kubernetes", "A service in Kubernetes, NAMESPACE/SERVICE. The endpoints of its EndpointSlices become members.", `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`, "NAMESPACE/SERVICE"),
	registryKey("docker", "Containers become members whose label penstock.group has this value, and which are healthy or have no health check.", `^[^\x00-\x1f\x7f,]{1,253}$`, "a value without commas"),
	registryKey("http", "The path, with a query if need be, of a list of members in the format of Prometheus' http_sd.", `^/[!-"$-~]{0,500}$`, "a path that begins with /"),
	registryKey("xds", "A ClusterLoadAssignment of an xDS control plane (EDS).", `^[^\x00-\x1f\x7f]+$`, "a name"),
	field("registry", nameType, "", "Which of registries to use. Default: the only one of this kind.", func(d *spec.Discover) *string { return &d.Registry.Name }),
	field("port", whole[uint16](1, 65535), "", "With dns: the members' port. With kubernetes and docker: the port to use, where there are several.", func(d *spec.Discover) *uint16 { return &d.Port }),
	field("port-name", texts("port name", "the name of a port", `^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$`, keepText), "", "With kubernetes: the name of the port to use.", func(d *spec.Discover) *string { return &d.PortName }),
	field("tags", tagList, "", "With consul and nomad: tags that an instance must have.", func(d *spec.Discover) *string { return &d.Tags }),
	field("datacenter", consulName("datacenter"), "", "With consul: where to look. Default: the datacenter of the agent.", func(d *spec.Discover) *string { return &d.Datacenter }),
	field("namespace", consulName("namespace"), "", "With consul and nomad: the namespace of the service. Default: that of the token (Consul Enterprise), or default (Nomad).", func(d *spec.Discover) *string { return &d.Namespace }),
	field("partition", consulName("partition"), "", "With consul: the admin partition of the service (Consul Enterprise). Default: that of the agent.", func(d *spec.Discover) *string { return &d.Partition }),
	field("peer", consulName("peer"), "", "With consul: the peer from which the service is imported (cluster peering).", func(d *spec.Discover) *string { return &d.Peer }),
	field("docker-network", text("docker-network", 256), "", "With docker: the network whose addresses the members have. Default: the container's only network. The container's label penstock.network comes first.", func(d *spec.Discover) *string { return &d.DockerNetwork }),
	field("published", boolean(true), "false", "With docker: members are where containers' ports are published on the daemon's host.", func(d *spec.Discover) *bool { return &d.Published }),
	field("family", oneOf("ipv4", "ipv6", "any"), "", "With kubernetes: which addresses of a service with two stacks are members. any: both. Default: one of each pod, IPv4 unless this host has a route to the IPv6 address only.", func(d *spec.Discover) *string { return &d.Family }),
	field("stale", boolean(true), "false", "With consul and nomad: any server may answer, not only the leader.", func(d *spec.Discover) *bool { return &d.Stale }),
	field("network", choice(networkOf, "tcp", "udp").shown(wordOf), "tcp", "The members' protocol. srv names its own.", func(d *spec.Discover) *spec.Kind { return &d.Network }),
	field("every", duration(time.Second, ""), "30s", "Time between look-ups in DNS, and between requests for lists by http.", func(d *spec.Discover) *time.Duration { return &d.Every }),
	field("weight", count(256), "0", "Weight of each member. 0: what the source says, or 1.", func(d *spec.Discover) *int { return &d.Weight }),
	field("max-flows", count(maxCount), "0", "Maximum number of open flows per member. 0: no limit.", func(d *spec.Discover) *int { return &d.MaxFlows }),
).oneOf(append([]string{"dns", "srv"}, spec.RegistryKinds...)...)

// registryKey returns the key of discover that looks in a registry of one kind.
func registryKey(kind, doc, pattern, allowed string) key[spec.Discover] {
	of := texts(kind, allowed, pattern, keepText)
	return compositeField(kind, typ[spec.Discover]{of.shape, func(r *reader, n node, d *spec.Discover) {
		d.Registry.Kind = kind
		of.read(r, n, &d.Key)
	}, func(d spec.Discover) string {
		if d.Registry.Kind != kind {
			return ""
		}
		return of.show(d.Key)
	}}, doc, func(d *spec.Discover) *string { return &d.Key })
}

// consulName is the name of something in Consul.
func consulName(what string) typ[string] {
	return texts(what, "the name of a "+what, `^[A-Za-z0-9_-]{1,128}$`, keepText)
}

// tagList is a list of tags, which is kept as one string so that a Discover can be compared.
var tagList = func() typ[string] {
	of := list(texts("tag", "a tag without commas", `^[^,\x00-\x1f\x7f]{1,255}$`, keepText))
	return typ[string]{of.shape, func(r *reader, n node, to *string) {
		var tags []string
		of.read(r, n, &tags)
		slices.Sort(tags)
		*to = strings.Join(slices.Compact(tags), ",")
	}, func(s string) string {
		if s == "" {
			return "[]"
		}
		return "[" + strings.ReplaceAll(s, ",", ", ") + "]"
	}}
}()

func networkOf(word string) spec.Kind {
	if word == "udp" {
		return spec.UDP
	}
	return spec.TCP
}

func wordOf(k spec.Kind) string {
	if k == spec.UDP {
		return "udp"
	}
	return "tcp"
}

var lookupKeys = keysOf("lookups",
	field("keep", duration(time.Second, "forever"), "30s", "How long members stay after DNS has said that their name does not exist or has no address. As long as the resolver fails or does not answer, they stay.", func(l *spec.Lookups) *time.Duration { return &l.Keep }),
	field("max-members", whole[int](1, 65536), "10000", "Maximum number of members per name or source. Further ones are left out, and the log says so.", func(l *spec.Lookups) *int { return &l.MaxMembers }),
	field("vanish", someShare, "0.5", "If an answer has so few members that more than this share of them is gone, or none at all, they stay until the answers have been so for keep. One of several may always go.", func(l *spec.Lookups) *float64 { return &l.Vanish }),
)
