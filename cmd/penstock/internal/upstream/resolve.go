package upstream

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A Resolver looks up names: [net.Resolver] is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Resolve returns the addresses of an endpoint, at least one.
func Resolve(ctx context.Context, r Resolver, e spec.Endpoint) ([]relay.Addr, error) {
	if e.Kind == 0 {
		return nil, fmt.Errorf("%v: not an endpoint", e)
	}
	if addr, ok := e.Literal(); ok {
		return []relay.Addr{addr}, nil
	}
	ips, err := lookupIPs(ctx, r, e.Host)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", e, err)
	}
	addrs := make([]relay.Addr, len(ips))
	for i, ip := range ips {
		addrs[i] = relay.Addr{Network: e.Kind, AddrPort: netip.AddrPortFrom(ip, e.Port)}
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
