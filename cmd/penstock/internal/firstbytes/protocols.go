package firstbytes

import (
	"encoding/binary"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/starttls"
)

// A Protocol is one whose clients can be told by their first bytes.
type Protocol uint8

// The protocols, in the order of spec.Protocols.
const (
	TLS Protocol = iota
	SSH
	HTTP
	HTTP2
	Postgres
	RDP
	MQTT
	AMQP
	SOCKS5
	XMPP
	OpenVPN
	NumProtocols = Protocol(spec.NumProtocols)
)

// Set is a set of protocols.
type Set uint16

const all Set = 1<<NumProtocols - 1

// Has reports whether the set has a protocol.
func (s Set) Has(p Protocol) bool { return s>>p&1 != 0 }

// SetOf returns the set of protocols with these names.
func SetOf(names []string) (s Set) {
	for _, name := range names {
		if p, ok := ByName(name); ok {
			s |= 1 << p
		}
	}
	return s
}

// ByName returns the protocol with a name in a configuration.
func ByName(name string) (Protocol, bool) {
	for p := range NumProtocols {
		if p.String() == name {
			return p, true
		}
	}
	return 0, false
}

// String returns the protocol's name in a configuration.
func (p Protocol) String() string { return spec.Protocols[p] }

// protocols are the parsers, all but that of HTTP, which remembers how far it has read. No two of them say Yes to the same bytes. Each
// looks at a bounded number of bytes.
var protocols = [NumProtocols]struct{ looks func(b []byte) Verdict }{
	TLS:      {looksTLS},
	SSH:      {func(b []byte) Verdict { return literal(b, "SSH-") }},
	HTTP2:    {func(b []byte) Verdict { return literal(b, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") }},
	Postgres: {looksPostgres},
	RDP:      {looksRDP},
	MQTT:     {looksMQTT},
	AMQP:     {looksAMQP},
	SOCKS5:   {looksSOCKS5},
	XMPP:     {looksXMPP},
	OpenVPN:  {looksOpenVPN},
}

// literal tells whether b begins with want.
func literal(b []byte, want string) Verdict {
	n := min(len(b), len(want))
	switch {
	case string(b[:n]) != want[:n]:
		return No
	case n < len(want):
		return Maybe
	}
	return Yes
}

// check tells whether each of the first bytes of b is as the function with its index says.
func check(b []byte, each ...func(c byte) bool) Verdict {
	for i, ok := range each {
		if i == len(b) {
			return Maybe
		}
		if !ok(b[i]) {
			return No
		}
	}
	return Yes
}

func is(want byte) func(byte) bool     { return func(c byte) bool { return c == want } }
func upTo(most byte) func(byte) bool   { return func(c byte) bool { return c <= most } }
func anything(byte) bool               { return true }
func among(set string) func(byte) bool { return func(c byte) bool { return containsByte(set, c) } }

func containsByte(set string, c byte) bool {
	for i := range len(set) {
		if set[i] == c {
			return true
		}
	}
	return false
}

// A record of TLS with a handshake message, which begins with a ClientHello (RFC 8446, 5.1 and 4). The minor version says nothing.
var recordTLS = []func(byte) bool{is(22), is(3), anything, upTo(0x40), anything, is(1)}

func looksTLS(b []byte) Verdict {
	v := check(b, recordTLS...)
	if n := 5; v != No && len(b) >= n {
		if size := binary.BigEndian.Uint16(b[3:]); size == 0 || size > 1<<14 {
			return No
		}
	}
	return v
}

// headPostgres is the length and the code of a first message of PostgreSQL.
const headPostgres = 8

// looksPostgres: the length and the code of a first message suffice. A client that begins with TLS (sslnegotiation=direct) speaks TLS.
func looksPostgres(b []byte) Verdict {
	switch kind, _, err := (starttls.PostgreSQL{}).Parse(b); {
	case err == starttls.ErrUnknown, kind == starttls.KindTLS:
		return No
	case len(b) < headPostgres:
		return Maybe
	}
	return Yes
}

// An X.224 Connection Request within a TPKT (MS-RDPBCGR, 2.2.1.1; RFC 1006). S7 and others, which begin alike, have parameters behind it,
// and RDP a cookie, a request of its own, or nothing.
var requestX224 = []func(byte) bool{is(3), is(0), upTo(1), anything, anything, is(0xe0), is(0), is(0), anything, anything, is(0)}

func looksRDP(b []byte) Verdict {
	v := check(b, requestX224...)
	if v == No || len(b) < 5 {
		return v
	}
	switch size := int(binary.BigEndian.Uint16(b[2:])); {
	case size < len(requestX224), size != int(b[4])+5:
		return No
	case size == len(requestX224), v == Maybe:
		return v
	}
	rest := b[len(requestX224):]
	return max(literal(rest, "Cookie: "), check(rest, is(1), anything, is(8), is(0)))
}

// A CONNECT packet (MQTT 3.1.1 and 5.0, 3.1; 3.1 has another name).
func looksMQTT(b []byte) Verdict {
	if v := literal(b, "\x10"); v != Yes {
		return v
	}
	for i, c := range b[1:] {
		switch {
		case i == 4:
			return No // the length has at most four bytes
		case c >= 0x80:
			continue
		}
		rest := b[i+2:]
		return max(literal(rest, "\x00\x04MQTT"), literal(rest, "\x00\x06MQIsdp"))
	}
	if len(b) > 4 {
		return No
	}
	return Maybe
}

// A protocol header (AMQP 0-9-1, 4.2.2; AMQP 1.0, 2.2, with 2 for TLS and 3 for SASL).
func looksAMQP(b []byte) Verdict {
	return literal(b, "AMQP").and(check(b, anything, anything, anything, anything, upTo(3), upTo(1)))
}

// The methods of a client (RFC 1928, 3), each once: those that IANA has assigned, and private ones.
func looksSOCKS5(b []byte) Verdict {
	if v := check(b, is(5), func(n byte) bool { return n > 0 && n <= 16 }); v != Yes {
		return v
	}
	n := 2 + int(b[1])
	methods := string(b[2:min(n, len(b))])
	for i := range len(methods) {
		if c := methods[i]; c > 9 && c < 0x80 || c == 0xff || containsByte(methods[:i], c) {
			return No
		}
	}
	if len(b) < n {
		return Maybe
	}
	return Yes
}

// maxDeclaration is the length of a declaration of XML and of the white space behind it, of which clients send about 21 bytes.
const maxDeclaration = 128

// The beginning of a stream, with or without a declaration of XML before it (RFC 6120, 4.2 and 11.5).
func looksXMPP(b []byte) Verdict {
	const declaration, stream = "<?xml", "<stream:stream"
	if v := literal(b, declaration); v != Yes {
		return max(v, xmlName(b, stream))
	}
	for i := len(declaration); i < min(len(b), maxDeclaration); i++ {
		switch c := b[i]; {
		case c == '>' && b[i-1] == '?':
			for i++; i < min(len(b), maxDeclaration) && among(" \t\r\n")(b[i]); i++ {
			}
			if i == maxDeclaration {
				return No
			}
			return xmlName(b[i:], stream)
		case c < ' ' && !among("\t\r\n")(c), c == '<':
			return No
		}
	}
	if len(b) >= maxDeclaration {
		return No
	}
	return Maybe
}

// xmlName tells whether b begins with a tag and what ends its name.
func xmlName(b []byte, tag string) Verdict {
	v := literal(b, tag)
	if v != Yes {
		return v
	}
	return check(b[len(tag):], among(" \t\r\n>"))
}

// Opcodes of OpenVPN's first packets, with key 0 (ssl_pkt.h).
const (
	resetV2 = 7 << 3
	resetV3 = 10 << 3 // with tls-crypt-v2
)

// looksOpenVPN: a packet on TCP has its length first. The first one of a client ends, where it is not encrypted, with an empty list of
// acknowledgements and the number 0 of the packet, and where it is, begins with an identifier and the number 1 of the packet.
func looksOpenVPN(b []byte) Verdict {
	v := check(b, upTo(5), anything, among(string([]byte{resetV2, resetV3})))
	if v == No || len(b) < 3 {
		return v
	}
	const number1, plain, wrapped, longest = 1 + 8, 14, 54, 1400
	size := int(binary.BigEndian.Uint16(b))
	packet := b[2:]
	number := check(packet[min(number1, len(packet)):], among("\x00\x0f"), is(0), is(0), is(1)) // 0x0f: it asks for cookies
	switch {
	case b[2] == resetV3 && size > wrapped && size <= longest:
		return number
	case b[2] == resetV3, size < plain, size > 22+64:
		return No
	case size == wrapped && number != No:
		return number
	case len(packet) < size:
		return Maybe
	case string(packet[size-5:size]) == "\x00\x00\x00\x00\x00":
		return Yes
	}
	return No
}
