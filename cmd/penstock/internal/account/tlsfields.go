package account

import (
	"crypto/tls"
	"strconv"
	"strings"

	"github.com/penstock/penstock/relay/stats"
)

// Fields of the TLS of one side of a flow. A side without TLS, or whose handshake failed, has none of them but the bytes of the socket.

// appendTLSVersion appends a version as 1.2 or 1.3.
func appendTLSVersion(b []byte, t *stats.TLS) []byte {
	if t == nil || t.Version == 0 {
		return b
	}
	return append(b, strings.TrimPrefix(tls.VersionName(t.Version), "TLS ")...)
}

// appendCipher appends a cipher suite as IANA names it.
func appendCipher(b []byte, t *stats.TLS) []byte {
	if t == nil || t.CipherSuite == 0 {
		return b
	}
	return append(b, tls.CipherSuiteName(t.CipherSuite)...)
}

func appendProtocol(b []byte, t *stats.TLS) []byte {
	if t == nil {
		return b
	}
	return append(b, t.Protocol...)
}

func appendResumed(b []byte, t *stats.TLS) []byte {
	if t == nil || t.Version == 0 {
		return b
	}
	return strconv.AppendBool(b, t.Resumed)
}

func appendHandshake(b []byte, t *stats.TLS) []byte {
	if t == nil {
		return b
	}
	return appendTime(b, t.Handshake)
}

// appendWire appends the bytes that the socket received or sent, those of records and handshakes included.
func appendWire(b []byte, t *stats.TLS, received bool) []byte {
	switch {
	case t == nil:
		return b
	case received:
		return strconv.AppendInt(b, t.Received, 10)
	}
	return strconv.AppendInt(b, t.Sent, 10)
}
