package relay

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/penstock/penstock/internal/enum"
)

// Network is the kind of an address.
type Network uint8

// The networks, with their names. The zero Network is that of the zero Addr; its
// name is empty.
const (
	TCP      Network = iota + 1 // "tcp": an IP address and a port
	Unix                        // "unix": a Unix stream socket
	Echo                        // "echo": a built-in upstream that returns what the client sends
	Discard                     // "discard": a built-in upstream that drops what the client sends
	UDP                         // "udp": an IP address and a port
	Unixgram                    // "unixgram": a Unix datagram socket
)

var networkNames = []string{TCP: "tcp", Unix: "unix", Echo: "echo", Discard: "discard", UDP: "udp", Unixgram: "unixgram"}

// String returns the network's name.
func (n Network) String() string { return enum.Name(networkNames, n) }

// MarshalText returns the network's name. The error is always nil.
func (n Network) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText sets n to the network of that name.
func (n *Network) UnmarshalText(text []byte) error {
	return enum.Set(n, "network", networkNames, text)
}

// Streams reports whether the network carries streams. A built-in one carries streams and
// datagrams.
func (n Network) Streams() bool { return n == TCP || n == Unix || n.BuiltIn() }

// Datagrams reports whether the network carries datagrams. A built-in one carries streams and
// datagrams.
func (n Network) Datagrams() bool { return n == UDP || n == Unixgram || n.BuiltIn() }

// BuiltIn reports whether the network is an upstream of the engine itself: [Echo] or [Discard].
func (n Network) BuiltIn() bool { return n == Echo || n == Discard }

// Addr is an address to listen on or to connect to. It is comparable.
type Addr struct {
	Network  Network
	AddrPort netip.AddrPort // for TCP and UDP
	// Path is the path of a Unix or Unixgram socket. A leading @ stands for the
	// abstract namespace. A socket without a name has an empty path.
	Path string
}

// ParseAddr returns the address with the given URL: tcp://IP:PORT, udp://IP:PORT,
// unix:///PATH, unix:@NAME, unixgram:///PATH, unixgram:@NAME, echo: or discard:. An
// IPv6 address is in brackets. ParseAddr does not resolve names.
func ParseAddr(url string) (Addr, error) {
	var a Addr
	scheme, rest, found := strings.Cut(url, ":")
	if !found || scheme == "" || a.Network.UnmarshalText([]byte(scheme)) != nil {
		return Addr{}, fmt.Errorf("invalid address %q: want a URL with the scheme tcp, udp, unix, unixgram, echo or discard", url)
	}
	switch a.Network {
	case TCP, UDP:
		hostPort, ok := strings.CutPrefix(rest, "//")
		ap, err := netip.ParseAddrPort(hostPort)
		if !ok || err != nil {
			return Addr{}, fmt.Errorf("invalid address %q: want %s://IP:PORT", url, scheme)
		}
		a.AddrPort = ap
	case Unix, Unixgram:
		a.Path = strings.TrimPrefix(rest, "//")
	default:
		if rest != "" {
			return Addr{}, fmt.Errorf("invalid address %q: want %s: without anything after it", url, scheme)
		}
	}
	return a, nil
}

// String returns the address as a URL that [ParseAddr] accepts. A Unix socket without a name, as
// most clients have, is "unix:" or "unixgram:". The string of the zero Addr is empty.
func (a Addr) String() string {
	b, _ := a.AppendText(nil)
	return string(b)
}

// AppendText appends the text that String returns to b. The error is always nil.
func (a Addr) AppendText(b []byte) ([]byte, error) {
	if a.Network == 0 {
		return b, nil
	}
	b = append(append(b, a.Network.String()...), ':')
	switch {
	case a.Network == TCP || a.Network == UDP:
		b = a.AddrPort.AppendTo(append(b, "//"...))
	case a.Path != "" && a.Path[0] != '@':
		b = append(append(b, "//"...), a.Path...)
	default:
		b = append(b, a.Path...)
	}
	return b, nil
}

// MarshalText returns the text that String returns. The error is always nil.
func (a Addr) MarshalText() ([]byte, error) { return a.AppendText(nil) }

// UnmarshalText sets a to the address with the given URL, as [ParseAddr] does, or
// to the zero Addr if text is empty.
func (a *Addr) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*a = Addr{}
		return nil
	}
	parsed, err := ParseAddr(string(text))
	if err == nil {
		*a = parsed
	}
	return err
}
