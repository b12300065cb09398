package relay

import (
	"encoding/binary"
	"net/netip"
	"strconv"
)

// Of version 2 of the PROXY protocol: haproxy, doc/proxy-protocol.txt, 2.2.
const (
	proxySignature = "\r\n\r\n\x00\r\nQUIT\n"
	proxyLocal     = 0x20 // version and command
	proxyProxy     = 0x21
	proxyIPv4      = 0x10 // family
	proxyIPv6      = 0x20
	proxyUnix      = 0x30
	proxyStream    = 0x01 // transport
	proxyDatagram  = 0x02
	proxySunPath   = 108
)

// AppendProxyHeader appends a header of the PROXY protocol (haproxy, doc/proxy-protocol.txt)
// to dst, by which an upstream learns who its client is: f.Client() and f.Local(), as in
//
//	f.Preface(relay.AppendProxyHeader(nil, 2, f.Client(), f.Local()))
//
// in Hooks.Connected of a stream, and in Hooks.Upstream of datagrams. Version 1 is a line of text, and any other number stands for version
// 2. If one address is IPv4 and the other IPv6, both are written as IPv6; zones are left
// out. Version 1 says UNKNOWN of what is not TCP. If the two are not of one network, or an
// address is missing, the header says that the connection is the relay's own.
//
// To add TLVs to a header of version 2, append them, and add their length to its bytes 14
// and 15, which are big-endian.
func AppendProxyHeader(dst []byte, version int, client, local Addr) []byte {
	a, b := client.AddrPort.Addr().Unmap().WithZone(""), local.AddrPort.Addr().Unmap().WithZone("")
	ip := client.Network == TCP || client.Network == UDP
	known := client.Network == local.Network && (client.Network == Unix || client.Network == Unixgram || ip && a.IsValid() && b.IsValid())
	if a.Is4() != b.Is4() && known && ip {
		a, b = netip.AddrFrom16(a.As16()), netip.AddrFrom16(b.As16())
	}
	if version == 1 {
		if !known || client.Network != TCP {
			return append(dst, "PROXY UNKNOWN\r\n"...)
		}
		family := "PROXY TCP4 "
		if a.Is6() {
			family = "PROXY TCP6 "
		}
		dst = append(a.AppendTo(append(dst, family...)), ' ')
		dst = append(b.AppendTo(dst), ' ')
		dst = append(strconv.AppendUint(dst, uint64(client.AddrPort.Port()), 10), ' ')
		return append(strconv.AppendUint(dst, uint64(local.AddrPort.Port()), 10), "\r\n"...)
	}
	dst = append(dst, proxySignature...)
	if !known {
		return append(dst, proxyLocal, 0, 0, 0)
	}
	transport := byte(proxyStream)
	if client.Network.Datagrams() {
		transport = proxyDatagram
	}
	switch {
	case !ip:
		dst = append(dst, proxyProxy, proxyUnix|transport, 0, 2*proxySunPath)
		return appendSunPath(appendSunPath(dst, client.Path), local.Path)
	case a.Is4():
		dst = append(dst, proxyProxy, proxyIPv4|transport, 0, 2*(4+2))
		from, to := a.As4(), b.As4()
		dst = append(append(dst, from[:]...), to[:]...)
	default:
		dst = append(dst, proxyProxy, proxyIPv6|transport, 0, 2*(16+2))
		from, to := a.As16(), b.As16()
		dst = append(append(dst, from[:]...), to[:]...)
	}
	dst = binary.BigEndian.AppendUint16(dst, client.AddrPort.Port())
	return binary.BigEndian.AppendUint16(dst, local.AddrPort.Port())
}

// appendSunPath appends a sun_path (unix(7)), truncated if it is too long.
func appendSunPath(dst []byte, path string) []byte {
	var b [proxySunPath]byte
	copy(b[:], path)
	if b[0] == '@' && b[1] != 0 {
		b[0] = 0
	}
	return append(dst, b[:]...)
}
