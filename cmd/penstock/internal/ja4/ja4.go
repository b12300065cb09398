// Package ja4 calculates the JA4 fingerprint of a TLS client from its ClientHello: a pure function.
//
// The specification is FoxIO's, technical_details/JA4.md in github.com/FoxIO-LLC/ja4, which is BSD-licensed for JA4 itself, the fingerprint
// of TLS clients. The other fingerprints of that family (JA4S, JA4H and so on) have another license, and are not here.
package ja4

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// maxList is how many cipher suites, extensions or signature algorithms a ClientHello may have: real ones have less than 200, and a client
// that sends 30,000 would have an event loop sort for a millisecond.
const maxList = 512

// The length of a fingerprint, and of the part of a hash that it has.
const (
	size     = len("t13d1516h2_8daaf6152771_e5627efa2ab1")
	hashSize = 12
)

// The numbers of RFC 8446 (4, 4.2), RFC 6066 (3) and RFC 7301.
const (
	messageClientHello  = 1
	extensionServerName = 0
	extensionSignatures = 13
	extensionALPN       = 16
	extensionVersions   = 43
)

// TLS returns the fingerprint of a client of TLS over TCP. b begins with a ClientHello, which may be divided into records; other bytes may
// follow. The fingerprint is empty if b does not have a whole ClientHello, or one with more than 512 entries in a list.
func TLS(b []byte) string { return fingerprint('t', message(b)) }

// QUIC returns the fingerprint of a client of QUIC. m is a ClientHello that is not divided into records, as QUIC carries it.
func QUIC(m []byte) string { return fingerprint('q', m) }

// message returns the ClientHello at the beginning of records (RFC 8446, 5.1: type 1, version 2, length 2). It allocates only if there are
// several.
func message(b []byte) reader {
	var whole reader
	for len(b) >= 5 {
		n := min(int(b[3])<<8|int(b[4]), len(b)-5)
		if part := b[5:][:n:n]; whole == nil {
			whole = part
		} else {
			whole = append(whole, part...)
		}
		header := whole
		header.number(1)
		if size := header.number(3); header != nil && size <= len(header) {
			return whole[:4+size]
		}
		b = b[5+n:]
	}
	return nil
}

// hello is what a fingerprint is made of.
type hello struct {
	version             int
	named               bool // it has a server name
	alpn                []byte
	ciphers, extensions list // those without a meaning (GREASE) are left out
	signatures          list // of the first extension that has them
	signed              bool
}

// list is a list of numbers of 16 bits.
type list struct {
	n  int
	at [maxList]uint16
}

func (l *list) values() []uint16 { return l.at[:min(l.n, maxList)] }

// add adds a value, unless it is GREASE.
func (l *list) add(v int) {
	if grease(v) {
		return
	}
	if l.n < maxList {
		l.at[l.n] = uint16(v)
	}
	l.n++
}

func fingerprint(transport byte, m reader) string {
	var h hello
	if !h.parse(m) || max(h.ciphers.n, h.extensions.n, h.signatures.n) > maxList {
		return ""
	}
	var buf [size]byte
	b := append(buf[:0], transport)
	b = append(b, versionName(h.version)...)
	if h.named {
		b = append(b, 'd')
	} else {
		b = append(b, 'i')
	}
	b = appendCount(b, h.ciphers.n)
	b = appendCount(b, h.extensions.n)
	b = appendALPN(b, h.alpn)
	b = append(b, '_')
	b = appendHash(b, sorted(h.ciphers.values()), nil)
	b = append(b, '_')
	rest := slices.DeleteFunc(sorted(h.extensions.values()), func(v uint16) bool { return v == extensionServerName || v == extensionALPN })
	b = appendHash(b, rest, h.signatures.values())
	return string(b)
}

// parse reads a ClientHello (RFC 8446, 4.1.2) and reports whether its lengths are right.
func (h *hello) parse(m reader) bool {
	kind, size := m.number(1), m.number(3)
	if kind != messageClientHello || size != len(m) {
		return false
	}
	h.version = m.number(2)
	m.take(32)          // random
	m.take(m.number(1)) // session
	for suites := m.take(m.number(2)); len(suites) >= 2; {
		h.ciphers.add(suites.number(2))
	}
	m.take(m.number(1)) // compression
	if m == nil {
		return false
	}
	if len(m) == 0 {
		return true // without extensions
	}
	rest := m.take(m.number(2))
	for len(rest) > 0 {
		kind := rest.number(2)
		body := rest.take(rest.number(2))
		if rest == nil {
			return false
		}
		h.extensions.add(kind)
		switch kind {
		case extensionServerName:
			h.named = true
		case extensionALPN:
			names := body.take(body.number(2))
			h.alpn = names.take(names.number(1))
		case extensionVersions:
			h.version = highest(body.take(body.number(1)))
		case extensionSignatures:
			for all := body.take(body.number(2)); len(all) >= 2 && !h.signed; {
				h.signatures.add(all.number(2))
			}
			h.signed = true
		}
	}
	return rest != nil && m != nil
}

// grease reports whether a value stands for none (RFC 8701).
func grease(v int) bool { return v&0x0f0f == 0x0a0a && v>>8 == v&0xff }

// highest returns the highest of the versions that a client offers.
func highest(b reader) (v int) {
	for len(b) >= 2 {
		if offered := b.number(2); !grease(offered) {
			v = max(v, offered)
		}
	}
	return v
}

// versionName returns a version as fingerprints have it.
func versionName(v int) string {
	switch v {
	case 0x0304:
		return "13"
	case 0x0303:
		return "12"
	case 0x0302:
		return "11"
	case 0x0301:
		return "10"
	case 0x0300:
		return "s3"
	case 0x0002:
		return "s2"
	}
	return "00"
}

// appendCount appends a number of two digits.
func appendCount(b []byte, n int) []byte {
	n = min(n, 99)
	return append(b, '0'+byte(n/10), '0'+byte(n%10))
}

// appendALPN appends the first and the last character of a protocol, those of its hexadecimal digits if one of them is no letter and no digit.
func appendALPN(b, name []byte) []byte {
	if len(name) == 0 {
		return append(b, "00"...)
	}
	first, last := name[0], name[len(name)-1]
	if alphanumeric(first) && alphanumeric(last) {
		return append(b, first, last)
	}
	const digits = "0123456789abcdef"
	return append(b, digits[first>>4], digits[last&0xf])
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

func sorted(l []uint16) []uint16 {
	slices.Sort(l)
	return l
}

// appendHash appends the beginning of the hash of a list, and of one that follows it if that has anything.
func appendHash(b []byte, all, more []uint16) []byte {
	if len(all) == 0 {
		return append(b, "000000000000"...)
	}
	var text [1 << 10]byte // enough for 200 numbers
	t := appendList(text[:0], all)
	if len(more) > 0 {
		t = appendList(append(t, '_'), more)
	}
	sum := sha256.Sum256(t)
	return hex.AppendEncode(b, sum[:hashSize/2])
}

// appendList appends numbers in hexadecimal digits, separated by commas.
func appendList(b []byte, all []uint16) []byte {
	for i, v := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = hex.AppendEncode(b, []byte{byte(v >> 8), byte(v)})
	}
	return b
}

// reader reads big-endian numbers and parts of a message. After one that does not have as many bytes it is nil.
type reader []byte

func (r *reader) take(n int) reader {
	if n > len(*r) {
		*r = nil
		return nil
	}
	part := (*r)[:n:n]
	*r = (*r)[n:]
	return part
}

func (r *reader) number(bytes int) (v int) {
	for _, c := range r.take(bytes) {
		v = v<<8 | int(c)
	}
	return v
}
