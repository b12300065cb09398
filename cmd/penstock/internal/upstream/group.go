// Package upstream says where a client is to be connected.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// Group is a list of upstreams that take clients in turn. It never changes once
// it is made; all its methods are safe for concurrent use, and none blocks.
type Group struct {
	members []member
	turn    atomic.Uint32
}

type member struct {
	addr  relay.Addr
	index int
}

var networks = map[spec.Kind]relay.Network{
	spec.TCP:      relay.TCP,
	spec.UDP:      relay.UDP,
	spec.Unix:     relay.Unix,
	spec.Unixgram: relay.Unixgram,
	spec.Echo:     relay.Echo,
	spec.Discard:  relay.Discard,
}

// Resolver looks names up: [net.Resolver] is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// NewGroup makes a group of endpoints, in their order. A name that has several
// addresses stands for as many upstreams. Names are looked up here, once, and
// not again.
func NewGroup(ctx context.Context, r Resolver, endpoints []spec.Endpoint) (*Group, error) {
	g := &Group{}
	for _, e := range endpoints {
		addrs, err := Resolve(ctx, r, e)
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			g.members = append(g.members, member{a, len(g.members)})
		}
	}
	if len(g.members) == 0 {
		return nil, errors.New("no upstream")
	}
	return g, nil
}

// Len is the number of upstreams.
func (g *Group) Len() int { return len(g.members) }

// Pick is the hook relay.Hooks.Upstream: it gives each new flow the next
// upstream in turn, and after a failure the one behind it, until all were tried
// once. It keeps the flow's first choice as its value.
func (g *Group) Pick(f *relay.Flow, attempt int) *relay.Addr {
	if attempt == 0 {
		f.SetValue(&g.members[(g.turn.Add(1)-1)%uint32(len(g.members))])
	}
	first, ok := f.Value().(*member)
	if !ok || attempt >= len(g.members) {
		return nil
	}
	return &g.members[(first.index+attempt)%len(g.members)].addr
}

// Resolve gives the addresses that an endpoint stands for, at least one. A TCP
// or UDP endpoint with no host is the unspecified IPv6 address.
func Resolve(ctx context.Context, r Resolver, e spec.Endpoint) ([]relay.Addr, error) {
	network, ok := networks[e.Kind]
	if !ok {
		return nil, fmt.Errorf("%v: no endpoint", e)
	}
	if network != relay.TCP && network != relay.UDP {
		return []relay.Addr{{Network: network, Path: e.Path}}, nil
	}
	if e.Host == "" {
		return []relay.Addr{{Network: network, IP: netip.AddrPortFrom(netip.IPv6Unspecified(), e.Port)}}, nil
	}
	if ip := e.Addr(); ip.IsValid() {
		return []relay.Addr{{Network: network, IP: ip}}, nil
	}
	ips, err := r.LookupNetIP(ctx, "ip", e.Host)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", e, err)
	}
	if len(ips) == 0 {
		return nil, fmt.Errorf("%v: the name has no address", e)
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	// IPv4 first, as net.Dial has it when it must choose one.
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	var addrs []relay.Addr
	for _, ip := range slices.Compact(ips) {
		addrs = append(addrs, relay.Addr{Network: network, IP: netip.AddrPortFrom(ip, e.Port)})
	}
	return addrs, nil
}
