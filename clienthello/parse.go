package clienthello

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// MaxSize is the maximum size of a ClientHello in bytes, record headers included. One
// with post-quantum key shares has about 2,000 bytes.
const MaxSize = 64 << 10

// maxProtocols bounds the protocols that a client offers by ALPN.
const maxProtocols = 64

// Errors of Parse and Peek, for use with [errors.Is].
var (
	// ErrIncomplete is returned by Parse if the bytes are the beginning of a ClientHello.
	ErrIncomplete = errors.New("incomplete ClientHello")
	// ErrNotTLS is returned if the bytes are not the beginning of a ClientHello.
	ErrNotTLS = errors.New("not a TLS ClientHello")
	// ErrMalformed is returned, wrapped in an error with details, for a ClientHello that
	// violates the rules of TLS or is longer than MaxSize.
	ErrMalformed = errors.New("malformed ClientHello")
)

// The details of ErrMalformed.
var (
	errLength   = malformed("inconsistent lengths")
	errRecord   = malformed("a record has no handshake bytes, or more than 16384")
	errSize     = malformed("longer than 64 KiB")
	errTwice    = malformed("duplicate extension or name")
	errName     = malformed("the server name is not a DNS name")
	errLiteral  = malformed("the server name is an IP address")
	errProtocol = malformed("ALPN has an empty protocol or more than 64")
)

func malformed(text string) error { return fmt.Errorf("%w: %s", ErrMalformed, text) }

// Hello is the unencrypted part of a ClientHello.
type Hello struct {
	// ServerName is the server name indication (SNI), in lower case and without a
	// trailing dot, or empty if there is none. With ECH it is the public name of the
	// server that can decrypt the real one.
	ServerName string

	// SupportedProtos lists the application protocols that the client offers (ALPN), in
	// order of preference.
	SupportedProtos []string

	// SupportedVersions lists the TLS versions that the client offers, in its order, such
	// as [crypto/tls.VersionTLS13]. It may contain versions that do not exist (GREASE, RFC
	// 8701).
	SupportedVersions []uint16

	// ECH reports whether the ClientHello has an encrypted part, or one that only looks
	// like it (GREASE).
	ECH bool
}

// The numbers of RFC 8446 (4, 4.2, 4.2.1, 5.1), RFC 6066 (3), RFC 7301 and RFC 9849.
const (
	recordHandshake     = 22
	recordMax           = 1 << 14
	majorVersion        = 3
	messageClientHello  = 1
	extensionServerName = 0
	extensionALPN       = 16
	extensionVersions   = 43
	extensionECH        = 0xfe0d
	nameTypeHost        = 0
	versionTLS10        = 0x0301
	versionTLS12        = 0x0303
)

// Parse parses a ClientHello at the beginning of b, which holds the first bytes from a
// client. The message may be divided into records of any size, and other bytes may
// follow it.
//
// The error is [ErrIncomplete] if b is the beginning of a ClientHello. The caller should
// then call Parse again with all bytes when more have arrived. With [MaxSize] bytes the
// error is never ErrIncomplete. The error [ErrNotTLS] usually needs only the first byte.
// Any other error wraps [ErrMalformed]. If there is an error, the Hello is zero.
//
// Parse does not modify b, and the Hello does not refer to it. Parse does not allocate
// before b has the whole message.
func Parse(b []byte) (Hello, error) {
	if len(b) > 0 && b[0] != recordHandshake || len(b) > 1 && b[1] != majorVersion {
		return Hello{}, ErrNotTLS
	}
	r := fragments{b: b, n: MaxSize}
	kind := r.number(1)
	size := r.number(3)
	if r.err == nil {
		if kind != messageClientHello {
			return Hello{}, ErrNotTLS
		}
		if size > MaxSize {
			return Hello{}, errSize
		}
		r.n = size
		whole := r
		if whole.skip(size); whole.err == nil && len(b)-len(whole.b) > MaxSize {
			whole.err = errSize
		}
		r.err = whole.err
	}
	if r.err == ErrIncomplete && len(b) >= MaxSize {
		r.err = errSize
	}
	if r.err != nil {
		return Hello{}, r.err
	}
	return parseBody(&r)
}

// ParseMessage parses a ClientHello that is not divided into records, as QUIC carries it
// (RFC 9001, 4.1.3): b is the whole message, with its header of four bytes, and nothing
// else. The error is never [ErrIncomplete].
func ParseMessage(b []byte) (Hello, error) {
	if len(b) > MaxSize {
		return Hello{}, errSize
	}
	if len(b) > 0 && b[0] != messageClientHello {
		return Hello{}, ErrNotTLS
	}
	r := fragments{b: b, left: len(b), n: len(b)}
	r.skip(1)
	if size := r.number(3); r.err != nil || size != r.n {
		return Hello{}, errLength
	}
	return parseBody(&r)
}

// parseBody reads a whole message (RFC 8446, 4.1.2):
//
//	version 2, random 32, <session> 1, <cipher suites> 2, <compression> 1, <extensions> 2
func parseBody(r *fragments) (Hello, error) {
	version := r.number(2)
	r.skip(32)
	r.skip(r.number(1))
	r.skip(r.number(2))
	r.skip(r.number(1))
	if r.err != nil {
		return Hello{}, r.err
	}
	e, err := findExtensions(r)
	if err != nil {
		return Hello{}, err
	}
	h := Hello{ECH: e.ech}
	if e.names.here {
		if h.ServerName, err = parseNames(&e.names.fragments); err != nil {
			return Hello{}, err
		}
	}
	if e.protocols.here {
		if h.SupportedProtos, err = parseProtocols(&e.protocols.fragments); err != nil {
			return Hello{}, err
		}
	}
	if e.versions.here {
		h.SupportedVersions, err = parseVersions(&e.versions.fragments)
	} else {
		h.SupportedVersions = versionsUpTo(version)
	}
	if err != nil {
		return Hello{}, err
	}
	return h, nil
}

// extensions holds the contents of the extensions that are used.
type extensions struct {
	names, protocols, versions extension
	ech                        bool
}

type extension struct {
	fragments
	here bool
}

// findExtensions finds the extensions in the rest of the message. It changes nothing
// through r but what r has read, so that Parse's b need not be on the heap.
func findExtensions(r *fragments) (e extensions, err error) {
	if r.n == 0 {
		return e, nil // none had extensions before TLS 1.2
	}
	list := r.vector(2)
	if r.err == nil && r.n != 0 {
		return e, errLength
	}
	for r.err == nil && list.n > 0 {
		kind := list.number(2)
		body := list.vector(2)
		twice := false
		switch kind {
		case extensionServerName:
			e.names, twice = extension{body, true}, e.names.here
		case extensionALPN:
			e.protocols, twice = extension{body, true}, e.protocols.here
		case extensionVersions:
			e.versions, twice = extension{body, true}, e.versions.here
		case extensionECH:
			e.ech = true
		}
		if list.err != nil {
			return e, list.err
		}
		if twice {
			return e, errTwice
		}
	}
	return e, r.err
}

// parseVersions reads a list of versions (RFC 8446, 4.2.1).
func parseVersions(r *fragments) ([]uint16, error) {
	list := r.vector(1)
	if r.err != nil || r.n != 0 || list.n == 0 || list.n%2 != 0 {
		return nil, errLength
	}
	versions := make([]uint16, list.n/2)
	for i := range versions {
		versions[i] = uint16(list.number(2))
	}
	return versions, nil
}

// versionsUpTo returns the versions that a client without a list offers: TLS 1.2 (RFC 8446,
// 4.2.1), or the given version if that is older, and all older ones down to TLS 1.0.
func versionsUpTo(version int) []uint16 {
	n := min(version, versionTLS12) - versionTLS10 + 1
	if n <= 0 {
		return nil
	}
	versions := make([]uint16, n)
	for i := range versions {
		versions[i] = uint16(versionTLS10 + n - 1 - i)
	}
	return versions
}

// parseNames reads a ServerNameList (RFC 6066, 3): at most one name of a kind.
func parseNames(r *fragments) (name string, err error) {
	list := r.vector(2)
	if r.err != nil || r.n != 0 || list.n == 0 {
		return "", errLength
	}
	var buf [255]byte
	for list.n > 0 {
		kind := list.number(1)
		host := list.vector(2)
		switch {
		case list.err != nil:
			return "", list.err
		case kind != nameTypeHost:
			continue
		case name != "":
			return "", errTwice
		case host.n == 0 || host.n > len(buf):
			return "", errName
		}
		if name, err = cleanName(host.read(buf[:host.n])); err != nil {
			return "", err
		}
	}
	return name, nil
}

// cleanName returns a DNS name as a new string, in lower case and without a trailing dot. It
// overwrites b. It accepts underscores, which are not allowed in host names but in use.
func cleanName(b []byte) (string, error) {
	if n := len(b) - 1; b[n] == '.' {
		b = b[:n]
	}
	label, alphabetic := 0, false
	for i, c := range b {
		switch {
		case c == '.':
			if label == 0 {
				return "", errName
			}
			label = -1
		case 'A' <= c && c <= 'Z':
			b[i] |= 0x20
			alphabetic = true
		case 'a' <= c && c <= 'z', c == '-', c == '_':
			alphabetic = true
		case '0' <= c && c <= '9':
		case c == ':':
			if _, err := netip.ParseAddr(string(b)); err == nil {
				return "", errLiteral
			}
			return "", errName
		default:
			return "", errName
		}
		if label++; label > 63 {
			return "", errName
		}
	}
	if label == 0 || len(b) > 253 {
		return "", errName
	}
	if !alphabetic { // digits and dots are an address, or some programs take them for one
		return "", errLiteral
	}
	return string(b), nil
}

// parseProtocols reads a ProtocolNameList (RFC 7301, 3.1).
func parseProtocols(r *fragments) ([]string, error) {
	list := r.vector(2)
	if r.err != nil || r.n != 0 || list.n == 0 {
		return nil, errLength
	}
	count := 0
	for rest := list; rest.n > 0; count++ {
		n := rest.number(1)
		if n == 0 || count == maxProtocols {
			return nil, errProtocol
		}
		if rest.skip(n); rest.err != nil {
			return nil, rest.err
		}
	}
	// One string holds all protocols with their length bytes.
	var text strings.Builder
	text.Grow(list.n)
	var buf [256]byte
	for rest := list; rest.n > 0; {
		text.Write(rest.read(buf[:min(rest.n, len(buf))]))
	}
	all, protocols := text.String(), make([]string, count)
	for i := range protocols {
		n := int(all[0])
		protocols[i], all = all[1:1+n], all[1+n:]
	}
	return protocols, nil
}
