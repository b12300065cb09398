package upstream

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

var networks = map[spec.Kind]relay.Network{
	spec.TCP:      relay.TCP,
	spec.UDP:      relay.UDP,
	spec.Unix:     relay.Unix,
	spec.Unixgram: relay.Unixgram,
	spec.Echo:     relay.Echo,
	spec.Discard:  relay.Discard,
}

// Literal returns the address of an endpoint that needs no lookup, and reports whether it is one.
// For a TCP or UDP endpoint with no host it is the unspecified IPv6 address.
func Literal(e spec.Endpoint) (relay.Addr, bool) {
	network := networks[e.Kind]
	if network != relay.TCP && network != relay.UDP {
		return relay.Addr{Network: network, Path: e.Path}, true
	}
	if e.Host == "" {
		return relay.Addr{Network: network, AddrPort: netip.AddrPortFrom(netip.IPv6Unspecified(), e.Port)}, true
	}
	ip := e.Addr()
	return relay.Addr{Network: network, AddrPort: ip}, ip.IsValid()
}

// A Resolver looks up names: [net.Resolver] is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Resolve returns the addresses of an endpoint, at least one.
func Resolve(ctx context.Context, r Resolver, e spec.Endpoint) ([]relay.Addr, error) {
	if networks[e.Kind] == 0 {
		return nil, fmt.Errorf("%v: not an endpoint", e)
	}
	if addr, ok := Literal(e); ok {
		return []relay.Addr{addr}, nil
	}
	ips, err := lookupIPs(ctx, r, e.Host)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", e, err)
	}
	addrs := make([]relay.Addr, len(ips))
	for i, ip := range ips {
		addrs[i] = relay.Addr{Network: networks[e.Kind], AddrPort: netip.AddrPortFrom(ip, e.Port)}
	}
	return addrs, nil
}

// lookupIPs returns the addresses of a name, each once, IPv4 first, like net.Dial.
func lookupIPs(ctx context.Context, r Resolver, host string) ([]netip.Addr, error) {
	ips, err := r.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	if len(ips) == 0 {
		return nil, errNoAddress
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	slices.SortFunc(ips, netip.Addr.Compare) // which has IPv4 first
	return slices.Compact(ips), nil
}
