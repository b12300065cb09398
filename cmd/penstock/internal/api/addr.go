package api

import (
	"errors"
	"net/netip"
	"strings"
)

// Addr is where one side of a flow is. Its text is the URL of the
// configuration: tcp://host:port, udp://host:port, unix:///path, unix:@name,
// unixgram:///path, unixgram:@name, echo: or discard:; empty if there is none yet.
type Addr struct {
	Network string         // tcp, udp, unix, unixgram, echo, discard, or empty
	IP      netip.AddrPort // of tcp and udp
	Path    string         // of unix and unixgram; empty: a socket without a name
}

// AppendText appends the URL to b.
func (a Addr) AppendText(b []byte) ([]byte, error) {
	if a.Network == "" {
		return b, nil
	}
	b = append(append(b, a.Network...), ':')
	switch {
	case a.IP.IsValid():
		return a.IP.AppendTo(append(b, '/', '/')), nil
	case a.Path != "" && a.Path[0] != '@':
		b = append(b, '/', '/')
	}
	return append(b, a.Path...), nil
}

// String is the URL.
func (a Addr) String() string {
	b, _ := a.AppendText(nil)
	return string(b)
}

// MarshalText gives the URL.
func (a Addr) MarshalText() ([]byte, error) { return a.AppendText(nil) }

// UnmarshalText reads a URL that AppendText wrote.
func (a *Addr) UnmarshalText(b []byte) error {
	*a = Addr{}
	if len(b) == 0 {
		return nil
	}
	network, rest, ok := strings.Cut(string(b), ":")
	switch {
	case !ok:
	case network == "tcp", network == "udp":
		ip, err := netip.ParseAddrPort(strings.TrimPrefix(rest, "//"))
		if err != nil {
			break
		}
		*a = Addr{Network: network, IP: ip}
		return nil
	case network == "unix", network == "unixgram":
		*a = Addr{Network: network, Path: strings.TrimPrefix(rest, "//")}
		return nil
	case (network == "echo" || network == "discard") && rest == "":
		*a = Addr{Network: network}
		return nil
	}
	return errors.New("no address of a flow; allowed: echo:, discard:, tcp://IP:PORT, udp://IP:PORT, unix:PATH, unixgram:PATH")
}
