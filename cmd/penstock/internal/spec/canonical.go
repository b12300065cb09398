package spec

import "net/netip"

// Plain is an address as stations compare it: an IPv4 address that is mapped into
// IPv6 (RFC 4291, 2.5.5.2) as IPv4, and without a zone.
func CanonicalAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// PlainPrefix is a prefix to compare plain addresses with: host bits are zero,
// and one of mapped IPv4 addresses is a prefix of IPv4.
func CanonicalPrefix(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p.Masked()
}
