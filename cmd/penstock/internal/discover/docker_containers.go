package discover

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// Labels of containers are penstock.group, which makes them members, penstock.port, penstock.network, and those of readLabels.
const (
	dockerLabel   = "penstock."
	dockerGroup   = "group"
	dockerPort    = "port"
	dockerNetwork = "network"
)

// A container is what is read of an element of /containers/json.
type container struct {
	ID              string `json:"Id"`
	Names           []string
	Image           string
	Labels          map[string]string
	State, Status   string
	Ports           []containerPort
	HostConfig      struct{ NetworkMode string }
	NetworkSettings struct {
		Networks map[string]*struct{ IPAddress, GlobalIPv6Address string }
	}
}

type containerPort struct {
	IP                      string
	PrivatePort, PublicPort uint16
	Type                    string // tcp, udp or sctp
}

// tell tells each feed the members that containers make.
func (w *dockerWatch) tell(list []container) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = nil
	for f := range w.feeds {
		if err := f.change(true, func(e *edits) { w.edit(e, list, &f.what) }); err != nil {
			f.failed(err)
		} else {
			f.connected()
		}
	}
}

// edit sets the members that containers make for d. The caller holds w.mu.
func (w *dockerWatch) edit(e *edits, list []container, d *spec.Discover) {
	for i := range list {
		c := &list[i]
		if !c.in(d.Key) || c.State != "running" || !c.healthy() {
			continue
		}
		t, problem := c.member(d)
		if problem != "" {
			e.reject("container "+c.name(), problem)
			continue
		}
		t.Draining = t.Draining || w.stopping[c.ID]
		e.set(t.Addr.AddrPort.String(), t)
	}
}

// label returns the value of a label of ours.
func (c *container) label(name string) (value string, ok bool) {
	value, ok = c.Labels[dockerLabel+name]
	return strings.TrimSpace(value), ok
}

// in reports whether a container is of a group.
func (c *container) in(group string) bool {
	value, _ := c.label(dockerGroup)
	return slices.ContainsFunc(strings.Split(value, ","), func(s string) bool { return strings.TrimSpace(s) == group })
}

// healthy reports whether a container is healthy, or has no health check. A list says it at the end of Status only.
func (c *container) healthy() bool {
	return !strings.HasSuffix(c.Status, "(unhealthy)") && !strings.HasSuffix(c.Status, "(health: starting)")
}

func (c *container) name() string {
	if len(c.Names) == 0 {
		return text(c.ID, 12)
	}
	return text(strings.TrimPrefix(c.Names[0], "/"), 128)
}

// member returns what a container is. A problem is a phrase, empty if there is none.
func (c *container) member(d *spec.Discover) (t upstream.Target, problem string) {
	if problem := readLabels(&t, c.label); problem != "" {
		return t, problem
	}
	port, problem := c.port(d)
	if problem != "" {
		return t, problem
	}
	at := netip.AddrPort{}
	switch ip, problem := c.address(d); {
	case d.Published:
		if at, problem = c.published(d, port); problem != "" {
			return t, problem
		}
	case problem != "":
		return t, problem
	default:
		at = netip.AddrPortFrom(ip, port)
	}
	t.Addr = relay.Addr{Network: d.Network, AddrPort: at}
	t.Metadata = metadata(map[string]any{"container": c.name(), "id": text(c.ID, 12), "image": text(c.Image, 253)})
	return t, ""
}

// port returns the port that the container listens at.
func (c *container) port(d *spec.Discover) (port uint16, problem string) {
	if d.Port != 0 {
		return d.Port, ""
	}
	if value, ok := c.label(dockerPort); ok {
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil || n == 0 {
			return 0, fmt.Sprintf("%s%s %q is not a port", dockerLabel, dockerPort, text(value, 60))
		}
		return uint16(n), ""
	}
	var ports []uint16
	for _, p := range c.Ports {
		if p.Type == d.Network.String() && p.PrivatePort != 0 && !slices.Contains(ports, p.PrivatePort) {
			ports = append(ports, p.PrivatePort)
		}
	}
	if len(ports) != 1 {
		slices.Sort(ports)
		return 0, fmt.Sprintf("it exposes %d %s ports %v: the label %s%s says which one is meant", len(ports), d.Network, ports[:min(len(ports), 8)], dockerLabel, dockerPort)
	}
	return ports[0], ""
}

// address returns the address of a container in one of its networks.
func (c *container) address(d *spec.Discover) (ip netip.Addr, problem string) {
	if c.HostConfig.NetworkMode == "host" {
		return hostAddress(d)
	}
	networks := map[string]netip.Addr{}
	for name, n := range c.NetworkSettings.Networks {
		if n == nil {
			continue
		}
		for _, s := range []string{n.IPAddress, n.GlobalIPv6Address} {
			if ip, err := netip.ParseAddr(s); err == nil && ip.Zone() == "" && !ip.IsUnspecified() && !ip.IsMulticast() {
				networks[name] = ip.Unmap()
				break
			}
		}
	}
	name, ok := c.label(dockerNetwork)
	if !ok {
		name = d.DockerNetwork
	}
	if name != "" {
		if ip, ok := networks[name]; ok {
			return ip, ""
		}
		return ip, fmt.Sprintf("it has no address in the network %s", text(name, 60))
	}
	if len(networks) == 1 {
		for _, ip := range networks {
			return ip, ""
		}
	}
	return ip, fmt.Sprintf("it has addresses in %d networks: the label %s%s, or the key docker-network, says which one is meant", len(networks), dockerLabel, dockerNetwork)
}

// published returns where a port of a container is published on its host, at an IPv4 address if there is one.
func (c *container) published(d *spec.Discover, port uint16) (at netip.AddrPort, problem string) {
	if c.HostConfig.NetworkMode == "host" {
		ip, problem := hostAddress(d)
		return netip.AddrPortFrom(ip, port), problem
	}
	for _, p := range c.Ports {
		ip, err := netip.ParseAddr(p.IP)
		if err == nil && p.PrivatePort == port && p.Type == d.Network.String() && p.PublicPort != 0 && (!at.IsValid() || ip.Is4() && !at.Addr().Is4()) {
			at = netip.AddrPortFrom(ip, p.PublicPort)
		}
	}
	switch {
	case !at.IsValid():
		return at, fmt.Sprintf("its port %d is not published", port)
	case at.Addr().IsUnspecified():
		ip, problem := hostAddress(d)
		return netip.AddrPortFrom(ip, at.Port()), problem
	}
	return at, ""
}

// hostAddress returns the address of the daemon's host.
func hostAddress(d *spec.Discover) (ip netip.Addr, problem string) {
	servers := d.Registry.ServerList()
	if len(servers) > 0 && strings.HasPrefix(servers[0], "unix:") {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), ""
	}
	if len(servers) == 1 {
		if _, at, ok := strings.Cut(servers[0], "://"); ok {
			if at, err := netip.ParseAddrPort(at); err == nil {
				return at.Addr().Unmap(), ""
			}
		}
	}
	return ip, "the address of the daemon's host is not known: its URL has a name"
}
