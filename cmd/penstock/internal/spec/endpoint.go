package spec

import (
	"net/netip"
	"strconv"

	"github.com/penstock/penstock/relay"
)

// Kind is what an endpoint is: a network of the engine.
type Kind = relay.Network

// The kinds that a configuration treats by name.
const (
	TCP      = relay.TCP
	UDP      = relay.UDP
	Unix     = relay.Unix
	Unixgram = relay.Unixgram
	Echo     = relay.Echo
	Discard  = relay.Discard
)

// Endpoint is one parsed URL. It is comparable.
type Endpoint struct {
	Kind Kind
	Host string // of TCP and UDP: a name or an address without brackets; empty: all addresses
	Port uint16 // of TCP and UDP; 0: any free one
	// LastPort is the last port of a range that begins at Port; 0: Port is the only one.
	LastPort uint16
	Path     string // of Unix and Unixgram: absolute, or a name with a leading @
}

// MaxPorts is the maximum number of ports of a range, and of all ranges that one configuration
// listens on. MaxUDPPorts is that of UDP ports to listen on, which cost more memory.
const (
	MaxPorts    = 16384
	MaxUDPPorts = 4096
)

// Ports returns the number of ports, which is 1 if it is not a range.
func (e Endpoint) Ports() int {
	if e.LastPort == 0 {
		return 1
	}
	return int(e.LastPort) - int(e.Port) + 1
}

// At returns the endpoint with the i-th port of its range alone.
func (e Endpoint) At(i int) Endpoint {
	e.Port, e.LastPort = e.Port+uint16(i), 0
	return e
}

// Addr returns the host as an address, if it is one, and all zeros if it is a
// name or empty.
func (e Endpoint) Addr() netip.AddrPort {
	ip, err := netip.ParseAddr(e.Host)
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, e.Port)
}

// Literal returns the address of an endpoint that needs no lookup, and reports whether it is one.
// For a TCP or UDP endpoint with no host it is the unspecified IPv6 address.
func (e Endpoint) Literal() (relay.Addr, bool) {
	a := relay.Addr{Network: e.Kind, Path: e.Path}
	if e.Kind != TCP && e.Kind != UDP {
		return a, true
	}
	if a.AddrPort = e.Addr(); e.Host == "" {
		a.AddrPort = netip.AddrPortFrom(netip.IPv6Unspecified(), e.Port)
	}
	return a, a.AddrPort.IsValid()
}

// URL returns an address, which may be the first one of a range of ports, as a URL.
func URL(a relay.Addr, ports int) string {
	text := a.String()
	if ports > 1 {
		text += "-" + strconv.Itoa(int(a.AddrPort.Port())+ports-1)
	}
	return text
}

// String returns the URL. Parsing it gives the same endpoint again.
func (e Endpoint) String() string {
	if e.Kind != TCP && e.Kind != UDP {
		a, _ := e.Literal()
		return a.String()
	}
	host := e.Host
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		host = "[" + host + "]"
	}
	text := e.Kind.String() + "://" + host + ":" + strconv.Itoa(int(e.Port))
	if e.LastPort != 0 {
		text += "-" + strconv.Itoa(int(e.LastPort))
	}
	return text
}
