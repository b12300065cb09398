package admit

import (
	"crypto/tls"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/pires/go-proxyproto"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// MaxCertificate is the greatest length of a certificate in a PROXY header: receivers accept headers of 4 KiB.
const MaxCertificate = 3 << 10

// The bits of the field client of PP2_TYPE_SSL, and a type that the codec does not name. 2.2.6 of the specification.
const (
	clientSSL     = 1 // the client connected over TLS
	clientConn    = 2 // it has sent a certificate over this connection
	clientEarlier = 4 // it has sent one when it began what it resumes
	subtypeDER    = 0x28
)

// TLS is what is known of a client's TLS that was terminated.
type TLS struct {
	Version, CipherSuite uint16 // as in crypto/tls
	Resumed              bool
	Verified             bool   // the client has a certificate, which was verified
	CommonName           string // of the certificate
	DER                  []byte // the certificate; nil: it is not sent
}

// SetTLS puts a client's TLS into the header, in place of what a received header has told of it. The certificate is left out unless it is
// wanted.
func (h *Header) SetTLS(t TLS, certificate bool) {
	if !certificate {
		t.DER = nil
	}
	own := t.TLV()
	// The configuration's list stays as it is.
	h.TLVs = append(slices.DeleteFunc(slices.Clone(h.TLVs), func(o spec.TLV) bool { return o.Type == own.Type }), own)
}

// TLV returns the TLV PP2_TYPE_SSL.
func (t *TLS) TLV() spec.TLV {
	client, verify := byte(clientSSL), uint32(1)
	if t.Verified {
		client, verify = client|clientEarlier, 0
		if !t.Resumed {
			client |= clientConn
		}
	}
	b := binary.BigEndian.AppendUint32([]byte{client}, verify)
	b = appendTLV(b, byte(proxyproto.PP2_SUBTYPE_SSL_VERSION), strings.Replace(tls.VersionName(t.Version), "TLS ", "TLSv", 1))
	if t.Verified && t.CommonName != "" {
		b = appendTLV(b, byte(proxyproto.PP2_SUBTYPE_SSL_CN), t.CommonName)
	}
	b = appendTLV(b, byte(proxyproto.PP2_SUBTYPE_SSL_CIPHER), cipherName(t.CipherSuite))
	if t.Verified && len(t.DER) > 0 && len(t.DER) <= MaxCertificate {
		b = appendTLV(b, subtypeDER, t.DER)
	}
	return spec.TLV{Type: byte(proxyproto.PP2_TYPE_SSL), Value: b}
}

// cipherName returns a cipher suite as OpenSSL names it, as the specification has it: ECDHE-RSA-AES128-GCM-SHA256. Those of TLS 1.3 have
// the names of IANA.
func cipherName(id uint16) string {
	name := tls.CipherSuiteName(id)
	before, after, ok := strings.Cut(strings.TrimPrefix(name, "TLS_"), "_WITH_")
	if !ok {
		return name
	}
	return strings.NewReplacer("AES_", "AES", "_CBC", "", "POLY1305_SHA256", "POLY1305", "_", "-").Replace(before + "_" + after)
}
