package admit

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"slices"

	"github.com/pires/go-proxyproto"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// Sizes of PROXY headers. The specification, HAProxy's doc/proxy-protocol.txt,
// limits version 1 headers, but not version 2 headers beyond their length field.
const (
	maxProxy1 = 107
	MaxProxy  = 4 << 10 // including TLVs; longer headers are refused

	headerLen2 = 16  // signature, version and command, family, length
	maxSunPath = 108 // sun_path
)

// Errors of ParseProxy.
var (
	errNoProxy   = errors.New("no PROXY header: the first bytes are neither version 1 nor version 2")
	errProxy1    = errors.New("bad PROXY header: no line end within 107 bytes of version 1")
	errProxy2    = errors.New("bad PROXY header: longer than 4096 bytes")
	errProxyTLV  = errors.New("bad PROXY header: a TLV is cut short")
	errProxyCRC  = errors.New("bad PROXY header: the CRC32C is wrong")
	errProxyKind = errors.New("bad PROXY header: a datagram protocol on a stream")
	errProxyLong = errors.New("PROXY header: its TLVs are longer than 65535 bytes")
)

// A Header is a PROXY header: the client of a connection, and the address that it connected to.
// Paths beginning with @ are abstract.
type Header struct {
	Version    int  // 1 or 2
	Local      bool // the sender's own connection, or unknown: no addresses and TLVs
	Unix       bool // paths, which may be empty, instead of addresses
	Datagrams  bool // the client sends datagrams; if not, it has a connection
	Client, To netip.AddrPort
	ClientPath string
	ToPath     string

	// The rest is of version 2.
	SNI  string // the TLV PP2_TYPE_AUTHORITY
	ALPN string // PP2_TYPE_ALPN
	TLVs []spec.TLV
}

// ParseProxy parses the PROXY header at the start of b and returns its length n. If more is true,
// b is incomplete: call again with all the bytes received by then. A client that sends no header
// is detected by its first wrong byte.
//
// b is only read, and the header does not refer to it. IPv4-mapped IPv6 addresses are returned as
// IPv4. Padding (PP2_TYPE_NOOP) and a correct checksum are left out of the TLVs.
func ParseProxy(b []byte) (h Header, n int, more bool, err error) {
	switch n, err = proxySize(b); {
	case err != nil:
		return Header{}, 0, false, err
	case n == 0 || n > len(b):
		return Header{}, 0, true, nil
	}
	if b[0] != 'P' && b[12] == byte(proxyproto.LOCAL) {
		// "The receiver must accept this connection as valid and must use the real
		// connection endpoints and discard the protocol block including the family
		// which is ignored" (2.2).
		return Header{Version: 2, Local: true}, n, false, nil
	}
	// The header is complete, so the codec's reader never waits. It needs a version
	// 1 header in its buffer at once.
	got, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(b[:n]), maxProxy1))
	if err != nil {
		return Header{}, 0, false, fmt.Errorf("bad PROXY header: %w", err)
	}
	h = Header{Version: int(got.Version), Local: got.Command.IsLocal()}
	if h.Local {
		return h, n, false, nil
	}
	kind := got.TransportProtocol
	if kind.IsDatagram() {
		return Header{}, 0, false, errProxyKind
	}
	h.Unix = kind.IsUnix()
	if h.Unix {
		h.ClientPath, h.ToPath = sunPath(b[headerLen2:][:maxSunPath]), sunPath(b[headerLen2+maxSunPath:][:maxSunPath])
	} else {
		h.Client, h.To = addrPortOf(got.SourceAddr), addrPortOf(got.DestinationAddr)
	}
	if h.Version == 2 {
		at := headerLen2 + 2*maxSunPath
		switch {
		case kind.IsIPv4():
			at = headerLen2 + 2*(4+2)
		case kind.IsIPv6():
			at = headerLen2 + 2*(16+2)
		}
		if err = h.parseTLVs(b[:n], at); err != nil {
			return Header{}, 0, false, err
		}
	}
	return h, n, false, nil
}

// proxySize returns the length of the header that b begins with, 0 if it is not known yet.
func proxySize(b []byte) (int, error) {
	v1 := []byte("PROXY ")
	switch {
	case len(b) == 0:
		return 0, nil
	case b[0] == v1[0]:
		if n := min(len(b), len(v1)); !bytes.Equal(b[:n], v1[:n]) {
			return 0, errNoProxy
		}
		line := b[:min(len(b), maxProxy1)]
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			return i + 1, nil
		}
		if len(line) == maxProxy1 {
			return 0, errProxy1
		}
		return 0, nil
	}
	if n := min(len(b), len(proxyproto.SIGV2)); !bytes.Equal(b[:n], proxyproto.SIGV2[:n]) {
		return 0, errNoProxy
	}
	if len(b) < headerLen2 {
		return 0, nil
	}
	n := headerLen2 + int(binary.BigEndian.Uint16(b[headerLen2-2:]))
	if n > MaxProxy {
		return 0, errProxy2
	}
	return n, nil
}

// parseTLVs parses what follows the addresses.
func (h *Header) parseTLVs(header []byte, at int) error {
	return eachTLV(header, at, func(kind uint8, value []byte) {
		switch proxyproto.PP2Type(kind) {
		case proxyproto.PP2_TYPE_AUTHORITY:
			h.SNI = string(value)
		case proxyproto.PP2_TYPE_ALPN:
			h.ALPN = string(value)
		default:
			h.TLVs = append(h.TLVs, spec.TLV{Type: kind, Value: bytes.Clone(value)})
		}
	})
}

// eachTLV calls do, if it is not nil, with each TLV from at on, but for padding and checksums, which it checks. A TLV
// is: type 1 byte, length 2 bytes, value.
func eachTLV(header []byte, at int, do func(kind uint8, value []byte)) error {
	for at < len(header) {
		rest := header[at:]
		if len(rest) < 3 || len(rest) < 3+int(binary.BigEndian.Uint16(rest[1:])) {
			return errProxyTLV
		}
		value := rest[3:][:binary.BigEndian.Uint16(rest[1:])]
		switch kind := proxyproto.PP2Type(rest[0]); kind {
		case proxyproto.PP2_TYPE_NOOP:
		case proxyproto.PP2_TYPE_CRC32C:
			if len(value) != 4 || binary.BigEndian.Uint32(value) != checksum(header, at+3) {
				return errProxyCRC
			}
		default:
			if do != nil {
				do(rest[0], value)
			}
		}
		at += 3 + len(value)
	}
	return nil
}

// TLV returns the value of the first TLV of a type; empty: there is none.
func (h *Header) TLV(kind uint8) string {
	switch proxyproto.PP2Type(kind) {
	case proxyproto.PP2_TYPE_AUTHORITY:
		return h.SNI
	case proxyproto.PP2_TYPE_ALPN:
		return h.ALPN
	}
	for _, t := range h.TLVs {
		if t.Type == kind {
			return string(t.Value)
		}
	}
	return ""
}

// Forward adds the TLVs of a received header that d passes on. A TLV that h has already, because the
// configuration sets it, is not replaced. What ParseProxy accepts bounds their size.
func (h *Header) Forward(received *Header, d *spec.Dial) {
	passes := func(kind uint8) bool { return d.ForwardAllTLVs || slices.Contains(d.ForwardTLVs, kind) }
	if passes(uint8(proxyproto.PP2_TYPE_AUTHORITY)) {
		h.SNI = received.SNI
	}
	if passes(uint8(proxyproto.PP2_TYPE_ALPN)) {
		h.ALPN = received.ALPN
	}
	own := h.TLVs
	h.TLVs = slices.Clip(own) // the configuration's list stays as it is
	for _, t := range received.TLVs {
		if passes(t.Type) && !slices.ContainsFunc(own, func(o spec.TLV) bool { return o.Type == t.Type }) {
			h.TLVs = append(h.TLVs, t)
		}
	}
}

var zeros [4]byte

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the CRC of a header whose four checksum bytes are zero.
func checksum(header []byte, at int) uint32 {
	sum := crc32.Update(0, castagnoli, header[:at])
	sum = crc32.Update(sum, castagnoli, zeros[:])
	return crc32.Update(sum, castagnoli, header[at+4:])
}

func addrPortOf(a net.Addr) netip.AddrPort {
	var at netip.AddrPort
	if a, ok := a.(*net.TCPAddr); ok {
		at = a.AddrPort()
	}
	return netip.AddrPortFrom(spec.CanonicalAddr(at.Addr()), at.Port())
}

// sunPath parses a sun_path (unix(7)): an abstract name begins with a zero byte, and a path ends
// with one.
func sunPath(b []byte) string {
	abstract := b[0] == 0
	if abstract {
		b = b[1:]
	}
	name, _, _ := bytes.Cut(b, []byte{0})
	if abstract && len(name) > 0 {
		return "@" + string(name)
	}
	return string(name)
}

// Append appends the header to dst, as [relay.AppendProxyHeader] does, with the TLVs of version 2. A
// header with an address missing is written as a local one. The error says that the TLVs are too long;
// then nothing is appended.
func (h *Header) Append(dst []byte) ([]byte, error) {
	begin := len(dst)
	var client, to relay.Addr
	unix, ip := relay.Unix, relay.TCP
	if h.Datagrams {
		unix, ip = relay.Unixgram, relay.UDP
	}
	switch {
	case h.Local:
	case h.Unix:
		client, to = relay.Addr{Network: unix, Path: h.ClientPath}, relay.Addr{Network: unix, Path: h.ToPath}
	default:
		client, to = relay.Addr{Network: ip, AddrPort: h.Client}, relay.Addr{Network: ip, AddrPort: h.To}
	}
	dst = relay.AppendProxyHeader(dst, h.Version, client, to)
	if h.Version == 1 || proxyproto.ProtocolVersionAndCommand(dst[begin+12]) == proxyproto.LOCAL {
		return dst, nil
	}
	if h.ALPN != "" {
		dst = appendTLV(dst, byte(proxyproto.PP2_TYPE_ALPN), h.ALPN)
	}
	if h.SNI != "" {
		dst = appendTLV(dst, byte(proxyproto.PP2_TYPE_AUTHORITY), h.SNI)
	}
	for _, t := range h.TLVs {
		dst = appendTLV(dst, t.Type, t.Value)
	}
	size := len(dst) - begin - headerLen2
	if size > 1<<16-1 {
		return dst[:begin], errProxyLong
	}
	binary.BigEndian.PutUint16(dst[begin+headerLen2-2:], uint16(size))
	return dst, nil
}

func appendTLV[T string | []byte](dst []byte, kind byte, value T) []byte {
	dst = append(dst, kind)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(value)))
	return append(dst, value...)
}
