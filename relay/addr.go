package relay

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/penstock/penstock/internal/enum"
)

// Network is a kind of address.
type Network uint8

// The networks, with their names. The zero Network is that of the zero Addr, and has an empty name.
const (
	TCP      Network = iota + 1 // "tcp": a host and port
	Unix                        // "unix": a Unix stream socket's path; a leading @ names the abstract namespace
	Echo                        // "echo": as an upstream: what the client sends comes back
	Discard                     // "discard": as an upstream: what the client sends is dropped
	UDP                         // "udp": a host and port
	Unixgram                    // "unixgram": a Unix datagram socket's path; a leading @ names the abstract namespace
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

// LogValue returns the network's name. It implements [slog.LogValuer].
func (n Network) LogValue() slog.Value { return slog.StringValue(n.String()) }

// datagrams tells whether the network carries datagrams; Echo and Discard do, too.
func (n Network) datagrams() bool { return n == UDP || n == Unixgram }

// Addr is where to listen or to connect. It is comparable.
type Addr struct {
	Network  Network
	AddrPort netip.AddrPort // of TCP and UDP
	Path     string         // of Unix and Unixgram; empty: a socket without a name
}

// String returns the address as a URL: tcp://host:port, udp://host:port,
// unix:///path, unix:@name, unixgram:///path, unixgram:@name, echo: or discard:.
// That of the zero Addr is empty.
func (a Addr) String() string {
	b, _ := a.AppendText(nil)
	return string(b)
}

// AppendText appends the URL that String returns to b. The error is always nil.
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

// MarshalText returns the URL that String returns. The error is always nil.
func (a Addr) MarshalText() ([]byte, error) { return a.AppendText(nil) }

// UnmarshalText reads a URL that String returned. It resolves no names: the
// host of a URL is an IP address.
func (a *Addr) UnmarshalText(text []byte) error {
	var parsed Addr
	if len(text) > 0 {
		name, rest, found := strings.Cut(string(text), ":")
		if !found || name == "" || parsed.Network.UnmarshalText([]byte(name)) != nil {
			return fmt.Errorf("address %q: want a URL of scheme tcp, udp, unix, unixgram, echo or discard", text)
		}
		switch parsed.Network {
		case TCP, UDP:
			ip, err := netip.ParseAddrPort(strings.TrimPrefix(rest, "//"))
			if err != nil {
				return fmt.Errorf("address %q: want %s://IP:PORT", text, name)
			}
			parsed.AddrPort = ip
		case Unix, Unixgram:
			parsed.Path = strings.TrimPrefix(rest, "//")
		default:
			if rest != "" {
				return fmt.Errorf("address %q: want %s: and nothing behind it", text, name)
			}
		}
	}
	*a = parsed
	return nil
}

// LogValue returns the URL that String returns. It implements [slog.LogValuer].
func (a Addr) LogValue() slog.Value { return slog.StringValue(a.String()) }
