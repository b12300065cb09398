package spec

import (
	"net/netip"
	"strconv"
)

// Kind is what an endpoint is.
type Kind uint8

// The kinds.
const (
	TCP Kind = iota + 1
	UDP
	Unix
	Unixgram
	Echo
	Discard
)

// Datagrams reports whether an endpoint of the kind carries datagrams, and Streams whether it
// carries streams. What is built in carries both.
func (k Kind) Datagrams() bool { return k == UDP || k == Unixgram || k == Echo || k == Discard }

// Streams is the other half of Datagrams.
func (k Kind) Streams() bool { return k != UDP && k != Unixgram }

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

// String returns the URL. Parsing it gives the same endpoint again.
func (e Endpoint) String() string {
	switch e.Kind {
	case TCP:
		return "tcp://" + e.hostPort()
	case UDP:
		return "udp://" + e.hostPort()
	case Unix:
		return pathURL("unix:", e.Path)
	case Unixgram:
		return pathURL("unixgram:", e.Path)
	case Echo:
		return "echo:"
	case Discard:
		return "discard:"
	}
	return ""
}

func (e Endpoint) hostPort() string {
	host := e.Host
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		host = "[" + host + "]"
	}
	text := host + ":" + strconv.Itoa(int(e.Port))
	if e.LastPort != 0 {
		text += "-" + strconv.Itoa(int(e.LastPort))
	}
	return text
}

func pathURL(scheme, path string) string {
	if path != "" && path[0] == '@' {
		return scheme + path
	}
	return scheme + "//" + path
}
