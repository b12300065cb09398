package relay

import "net/netip"

// Network is a kind of address.
type Network uint8

// The networks.
const (
	TCP      Network = iota + 1 // a host and port
	Unix                        // a Unix stream socket's path; a leading @ names the abstract namespace
	Echo                        // as an upstream: what the client sends comes back
	Discard                     // as an upstream: what the client sends is dropped
	UDP                         // a host and port
	Unixgram                    // a Unix datagram socket's path; a leading @ names the abstract namespace
)

// datagrams tells whether the network carries datagrams; Echo and Discard do, too.
func (n Network) datagrams() bool { return n == UDP || n == Unixgram }

// Addr is where to listen or to connect. It is comparable.
type Addr struct {
	Network Network
	IP      netip.AddrPort // of TCP and UDP
	Path    string         // of Unix and Unixgram
}

// String gives the address as a URL: tcp://host:port, udp://host:port,
// unix:///path, unix:@name, unixgram:///path, unixgram:@name, echo: or discard:.
func (a Addr) String() string {
	switch a.Network {
	case TCP:
		return "tcp://" + a.IP.String()
	case UDP:
		return "udp://" + a.IP.String()
	case Unix:
		return pathURL("unix:", a.Path)
	case Unixgram:
		return pathURL("unixgram:", a.Path)
	case Echo:
		return "echo:"
	case Discard:
		return "discard:"
	}
	return ""
}

func pathURL(scheme, path string) string {
	if path == "" || path[0] == '@' {
		return scheme + path
	}
	return scheme + "//" + path
}
