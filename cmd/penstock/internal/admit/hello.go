package admit

import (
	"errors"
	"net/netip"
	"strings"
)

// MaxHello bounds a ClientHello, its record headers included. With post-quantum
// key shares they have about 2,000 bytes.
const MaxHello = 64 << 10

// maxProtocols bounds the protocols that a client offers by ALPN.
const maxProtocols = 64

// Errors of ParseHello. A relay that terminates nothing need not refuse such a
// client: it has no name.
var (
	ErrNotTLS   = errors.New("the first bytes are no TLS handshake")
	errHello    = errors.New("bad ClientHello: lengths do not agree")
	errRecord   = errors.New("bad ClientHello: a record has no handshake bytes, or more than 16384")
	errLarge    = errors.New("bad ClientHello: longer than 64 KiB")
	errTwice    = errors.New("bad ClientHello: an extension or a name is there twice")
	errName     = errors.New("bad ClientHello: the server name is no DNS name")
	errLiteral  = errors.New("bad ClientHello: the server name is an IP address")
	errProtocol = errors.New("bad ClientHello: ALPN has an empty protocol or more than 64")
)

// Hello is what a ClientHello asks for in the clear.
type Hello struct {
	// SNI is a DNS name in lower case without a dot at its end; empty if there is
	// none. With ECH it is the public name of whoever can decrypt the true one.
	SNI  string
	ALPN []string
	// ECH: there is an encrypted ClientHello, or GREASE that looks like one.
	ECH bool
}

// The numbers of RFC 8446 (4, 4.2, 5.1), RFC 6066 (3), RFC 7301 and RFC 9849.
const (
	recordHandshake     = 22
	recordMax           = 1 << 14
	majorVersion        = 3
	messageClientHello  = 1
	extensionServerName = 0
	extensionALPN       = 16
	extensionECH        = 0xfe0d
	nameTypeHost        = 0
)

// ParseHello reads a TLS ClientHello from the first bytes of a client. more asks
// for more than b: call again with all that there is then. A client that does not
// speak TLS is found out with its first byte, mostly, and has ErrNotTLS.
//
// The message may be spread over records of any size, and there may be bytes
// behind it. b is only read. Nothing is allocated until the whole message is there.
func ParseHello(b []byte) (h Hello, more bool, err error) {
	if len(b) > 0 && b[0] != recordHandshake || len(b) > 1 && b[1] != majorVersion {
		return Hello{}, false, ErrNotTLS
	}
	r := fragments{b: b, n: MaxHello}
	kind := r.number(1)
	size := r.number(3)
	if r.err == nil {
		if kind != messageClientHello {
			return Hello{}, false, ErrNotTLS
		}
		if size > MaxHello {
			return Hello{}, false, errLarge
		}
		r.n = size
		whole := r
		if whole.skip(size); whole.err == nil && len(b)-len(whole.b) > MaxHello {
			whole.err = errLarge
		}
		r.err = whole.err
	}
	switch {
	case r.err == errMore && len(b) >= MaxHello:
		return Hello{}, false, errLarge
	case r.err == errMore:
		return Hello{}, true, nil
	case r.err != nil:
		return Hello{}, false, r.err
	}
	return parseBody(&r)
}

// parseBody reads a whole message (RFC 8446, 4.1.2):
//
//	version 2, random 32, <session> 1, <cipher suites> 2, <compression> 1, <extensions> 2
func parseBody(r *fragments) (Hello, bool, error) {
	r.skip(2 + 32)
	r.skip(r.number(1))
	r.skip(r.number(2))
	r.skip(r.number(1))
	if r.err == nil && r.n == 0 {
		return Hello{}, false, nil // none had extensions before TLS 1.2
	}
	extensions := r.vector(2)
	if r.err == nil && r.n != 0 {
		r.err = errHello
	}
	if r.err != nil {
		return Hello{}, false, r.err
	}
	var h Hello
	var names, protocols fragments
	var named, offered bool
	for extensions.n > 0 {
		kind := extensions.number(2)
		body := extensions.vector(2)
		if extensions.err != nil {
			return Hello{}, false, extensions.err
		}
		switch kind {
		case extensionServerName:
			if named {
				return Hello{}, false, errTwice
			}
			names, named = body, true
		case extensionALPN:
			if offered {
				return Hello{}, false, errTwice
			}
			protocols, offered = body, true
		case extensionECH:
			h.ECH = true
		}
	}
	var err error
	if named {
		if h.SNI, err = parseNames(&names); err != nil {
			return Hello{}, false, err
		}
	}
	if offered {
		if h.ALPN, err = parseProtocols(&protocols); err != nil {
			return Hello{}, false, err
		}
	}
	return h, false, nil
}

// parseNames reads a ServerNameList (RFC 6066, 3): at most one name of a kind.
func parseNames(r *fragments) (name string, err error) {
	list := r.vector(2)
	if r.err != nil || r.n != 0 || list.n == 0 {
		return "", errHello
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

// cleanName gives a DNS name as a string of its own, in lower case and without a
// dot at its end; b is overwritten. An underscore is no letter of a host name,
// but there are names with one.
func cleanName(b []byte) (string, error) {
	if n := len(b) - 1; b[n] == '.' {
		b = b[:n]
	}
	label, letters := 0, false
	for i, c := range b {
		switch {
		case c == '.':
			if label == 0 {
				return "", errName
			}
			label = -1
		case 'A' <= c && c <= 'Z':
			b[i] |= 0x20
			letters = true
		case 'a' <= c && c <= 'z', c == '-', c == '_':
			letters = true
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
	if !letters { // numbers and dots are an address, or are taken for one by somebody
		return "", errLiteral
	}
	return string(b), nil
}

// parseProtocols reads a ProtocolNameList (RFC 7301, 3.1).
func parseProtocols(r *fragments) ([]string, error) {
	list := r.vector(2)
	if r.err != nil || r.n != 0 || list.n == 0 {
		return nil, errHello
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
	// One string holds all, with the lengths between.
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

// fragments reads the next n bytes of a handshake message, wherever the records
// end that it is in. It is a value: a copy reads the same bytes again. The first
// error stays, and what is read after it is zero.
type fragments struct {
	b    []byte // received, from the place of the reader on
	left int    // bytes of b's first record that are not read
	n    int
	err  error
}

// errMore says that b ends before what was asked for.
var errMore = errors.New("more")

// run gives the next bytes that are together, at most limit, at least one.
func (r *fragments) run(limit int) []byte {
	if r.err == nil && limit > r.n {
		r.err = errHello
	}
	if r.err == nil && r.left == 0 {
		r.record()
	}
	if r.err == nil && len(r.b) == 0 {
		r.err = errMore
	}
	if r.err != nil {
		return nil
	}
	got := r.b[:min(limit, r.left, len(r.b))]
	r.b, r.left, r.n = r.b[len(got):], r.left-len(got), r.n-len(got)
	return got
}

// record reads the header of a record: type 1, version 2, length 2. The second
// half of the version says nothing (RFC 8446, 5.1).
func (r *fragments) record() {
	if len(r.b) < 5 {
		r.err = errMore
		return
	}
	r.left = int(r.b[3])<<8 | int(r.b[4])
	if r.b[0] != recordHandshake || r.b[1] != majorVersion || r.left == 0 || r.left > recordMax {
		r.err = errRecord
	}
	r.b = r.b[5:]
}

func (r *fragments) skip(n int) {
	for n > 0 && r.err == nil {
		n -= len(r.run(n))
	}
}

// read fills p, and gives it.
func (r *fragments) read(p []byte) []byte {
	for rest := p; len(rest) > 0 && r.err == nil; {
		rest = rest[copy(rest, r.run(len(rest))):]
	}
	return p
}

// number reads a big-endian number of so many bytes.
func (r *fragments) number(bytes int) (v int) {
	for range bytes {
		for _, c := range r.run(1) {
			v = v<<8 | int(c)
		}
	}
	if r.err != nil {
		return 0
	}
	return v
}

// vector reads a length of so many bytes, and goes past what follows: that is for
// the reader that it gives.
func (r *fragments) vector(bytes int) fragments {
	n := r.number(bytes)
	inner := *r
	inner.n = n
	r.skip(n)
	return inner
}
