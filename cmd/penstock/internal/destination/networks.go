package destination

import (
	"fmt"
	"net/netip"
	"slices"
)

// A network that no flow is sent to unless the configuration names it.
type network struct {
	prefix netip.Prefix
	what   string
}

func networks(what string, prefixes ...string) (list []network) {
	for _, p := range prefixes {
		list = append(list, network{netip.MustParsePrefix(p), what})
	}
	return list
}

// metadata are the servers by which clouds give a machine its credentials. Only a network of this one address lets one of them in: a
// wider one was written for something else.
var metadata = networks("cloud metadata",
	"169.254.169.254/32", // AWS, Google, Azure, DigitalOcean, OpenStack and others
	"169.254.170.2/32",   // AWS: credentials of containers
	"169.254.170.23/32",  // AWS: credentials of pods
	"169.254.0.23/32",    // Tencent
	"100.100.100.200/32", // Alibaba
	"168.63.129.16/32",   // Azure: a public address
	"192.0.0.192/32",     // Oracle
	"fd00:ec2::254/128",  // AWS
	"fd00:ec2::23/128",   // AWS: credentials of pods
	"fd20:ce::254/128",   // Google
	"fd00:42::42/128",    // Scaleway
)

// reserved are the networks that are not of the public Internet: the registries of special-purpose addresses of IANA (RFC 6890), read on
// 2026-11-27. Of IPv6, whatever is not in 2000::/3 is reserved, too.
var reserved = slices.Concat(
	networks("unspecified", "0.0.0.0/8", "::/128"),
	networks("loopback", "127.0.0.0/8", "::1/128"),
	networks("private", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
	networks("link-local", "169.254.0.0/16", "fe80::/10"),
	networks("shared by carriers (CGNAT)", "100.64.0.0/10"),
	networks("documentation", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
	networks("benchmarks", "198.18.0.0/15"),
	networks("multicast", "224.0.0.0/4", "ff00::/8"),
	networks("reserved", "192.0.0.0/24", "192.88.99.0/24", "240.0.0.0/4", "2001::/23", "fec0::/10"),
)

// Prefixes of IPv6 addresses that stand for IPv4 addresses.
var (
	global     = netip.MustParsePrefix("2000::/3")
	nat64      = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
	sixToFour  = netip.MustParsePrefix("2002::/16")    // RFC 3056
	compatible = netip.MustParsePrefix("::/96")        // RFC 4291, 2.5.5.1
	translated = netip.MustParsePrefix("::ffff:0:0:0/96")
)

// embedded returns the IPv4 address that an IPv6 address stands for.
func embedded(a netip.Addr) (netip.Addr, bool) {
	b := a.As16()
	switch {
	case !a.Is6():
	case a.Is4In6():
		return a.Unmap(), true
	case nat64.Contains(a), translated.Contains(a), compatible.Contains(a) && !a.IsUnspecified() && !a.IsLoopback(),
		global.Contains(a) && [4]byte(b[8:12]) == [4]byte{0, 0, 0x5e, 0xfe}, global.Contains(a) && [4]byte(b[8:12]) == [4]byte{2, 0, 0x5e, 0xfe}: // ISATAP, RFC 5214
		return netip.AddrFrom4([4]byte(b[12:])), true
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}

// Refuses returns why no flow is sent to an address; empty: flows are. let are the networks that the configuration lets in.
func Refuses(a netip.Addr, let []netip.Prefix) string {
	a = a.WithZone("")
	inner, has := embedded(a)
	if a.Is4In6() {
		a, has = inner, false
	}
	why := isMetadata(a, let)
	switch {
	case why != "":
	case has && isMetadata(inner, let) != "":
		return ofInner(inner, isMetadata(inner, let))
	case contains(let, a):
	default:
		if why = isReserved(a); why == "" && a.Is6() && !has && !global.Contains(a) {
			why = "reserved"
		}
		if why == "" && has && !contains(let, inner) {
			if why = isReserved(inner); why != "" {
				why = ofInner(inner, why)
			}
		}
	}
	return why
}

func ofInner(inner netip.Addr, why string) string {
	return fmt.Sprintf("it stands for %v, which is %s", inner, why)
}

// isMetadata returns what an address is that gives away credentials; empty: it is another one, or let has it, and nothing else in the
// same network.
func isMetadata(a netip.Addr, let []netip.Prefix) string {
	for _, n := range metadata {
		if n.prefix.Contains(a) && !slices.Contains(let, n.prefix) {
			return n.what
		}
	}
	return ""
}

// isReserved returns what an address is that is not of the public Internet; empty: it may be.
func isReserved(a netip.Addr) string {
	if !a.IsValid() {
		return "invalid"
	}
	for _, n := range reserved {
		if n.prefix.Contains(a) {
			return n.what
		}
	}
	return ""
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}
