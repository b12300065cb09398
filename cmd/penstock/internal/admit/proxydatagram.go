package admit

import (
	"encoding/binary"
	"net/netip"

	"github.com/pires/go-proxyproto"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay/origin"
)

// Cloudflare's Simple Proxy Protocol, developers.cloudflare.com/spectrum/reference/simple-proxy-protocol-header: the
// magic number, the client's address and the proxy's, 16 bytes each, and their ports. An IPv4 address is written as an
// IPv6 one. The same header is in front of each reply.
const (
	sppMagic = 0x56EC
	sppLen   = 2 + 16 + 16 + 2 + 2
)

// ReadDatagram reads the header at the beginning of a datagram: of the PROXY protocol, version 2, or of SPP. It reports
// false if there is none, or one that is cut short, wrong, or longer than MaxProxy. It accepts each header of version 2 that
// ParseProxy does, and those of datagrams, and allocates nothing.
//
// A header that names paths, or no protocol, names no client: the proxy is taken for it.
func ReadDatagram(b []byte) (origin.Header, bool) {
	if len(b) >= sppLen && binary.BigEndian.Uint16(b) == sppMagic {
		at := func(i int) netip.AddrPort {
			ip := netip.AddrFrom16([16]byte(b[2+16*i:])).Unmap()
			return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[2+32+2*i:]))
		}
		return origin.Header{Len: sppLen, Client: at(0), To: at(1), Replies: true}, true
	}
	return ReadProxy2(b)
}

// ReadProxy2 is ReadDatagram for the PROXY protocol only.
func ReadProxy2(b []byte) (origin.Header, bool) {
	if len(b) < headerLen2 || string(b[:len(proxyproto.SIGV2)]) != string(proxyproto.SIGV2) {
		return origin.Header{}, false
	}
	n := headerLen2 + int(binary.BigEndian.Uint16(b[headerLen2-2:]))
	if n > min(len(b), MaxProxy) {
		return origin.Header{}, false
	}
	h, header := origin.Header{Len: n}, b[:n]
	switch proxyproto.ProtocolVersionAndCommand(b[12]) {
	case proxyproto.LOCAL:
		return h, true
	case proxyproto.PROXY:
	default:
		return origin.Header{}, false
	}
	at, ok := addressEnd(b[13])
	if !ok || at > n || eachTLV(header, at, nil) != nil {
		return origin.Header{}, false
	}
	switch b[13] >> 4 {
	case 1:
		h.Client = proxyAddr(netip.AddrFrom4([4]byte(header[16:])), header[24:])
		h.To = proxyAddr(netip.AddrFrom4([4]byte(header[20:])), header[26:])
	case 2:
		h.Client = proxyAddr(netip.AddrFrom16([16]byte(header[16:])), header[48:])
		h.To = proxyAddr(netip.AddrFrom16([16]byte(header[32:])), header[50:])
	}
	return h, true
}

func proxyAddr(ip netip.Addr, port []byte) netip.AddrPort {
	return netip.AddrPortFrom(spec.CanonicalAddr(ip), binary.BigEndian.Uint16(port))
}

// addressEnd returns where the addresses of a header end, by its byte with the family and the transport.
func addressEnd(family byte) (int, bool) {
	switch {
	case family == byte(proxyproto.UNSPEC):
		return headerLen2, true
	case family&0x0F != 1 && family&0x0F != 2:
		return 0, false
	}
	switch family >> 4 {
	case 1:
		return headerLen2 + 2*(4+2), true
	case 2:
		return headerLen2 + 2*(16+2), true
	case 3:
		return headerLen2 + 2*maxSunPath, true
	}
	return 0, false
}

// ParseDatagram returns what a header says that ReadDatagram has read.
func ParseDatagram(header []byte) *Header {
	read, ok := ReadDatagram(header)
	h := &Header{Version: 2, Datagrams: true, Client: read.Client, To: read.To, Local: !read.Client.IsValid()}
	if !ok || read.Replies || h.Local {
		return h
	}
	if at, _ := addressEnd(header[13]); h.parseTLVs(header, at) != nil {
		h.TLVs = nil // it was read, so that this cannot be
	}
	return h
}
