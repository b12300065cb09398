package spec

import "net/netip"

// CanonicalAddr returns an address in the form in which addresses are compared: an IPv4-mapped
// IPv6 address (RFC 4291, 2.5.5.2) as IPv4, and without a zone.
func CanonicalAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// CanonicalPrefix returns a prefix for comparison with canonical addresses: host bits are zero,
// and a prefix of IPv4-mapped addresses is a prefix of IPv4.
func CanonicalPrefix(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p.Masked()
}
