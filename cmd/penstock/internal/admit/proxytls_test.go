package admit

import (
	"bytes"
	"crypto/tls"
	"net/netip"
	"testing"

	"github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// What is said of a client's TLS is read back by another implementation.
func TestProxyTLS(t *testing.T) {
	der := bytes.Repeat([]byte{1}, 700)
	for _, c := range []struct {
		name             string
		tls              TLS
		version, cn      string
		verified, onThis bool
		der              bool
	}{
		{"no certificate", TLS{Version: tls.VersionTLS13, CipherSuite: tls.TLS_AES_128_GCM_SHA256, CommonName: "not verified", DER: der}, "TLSv1.3", "", false, false, false},
		{"certificate", TLS{Version: tls.VersionTLS12, CipherSuite: tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, Verified: true, CommonName: "ops", DER: der}, "TLSv1.2", "ops", true, true, true},
		{"resumed", TLS{Version: tls.VersionTLS13, CipherSuite: tls.TLS_AES_128_GCM_SHA256, Verified: true, Resumed: true, CommonName: "ops"}, "TLSv1.3", "ops", true, false, false},
		{"large certificate", TLS{Version: tls.VersionTLS13, CipherSuite: tls.TLS_AES_128_GCM_SHA256, Verified: true, DER: make([]byte, MaxCertificate+1)}, "TLSv1.3", "", true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			configured := []spec.TLV{{Type: 0x20, Value: []byte("of a proxy in front")}}
			h := Header{Version: 2, Client: netip.MustParseAddrPort("192.0.2.1:1"), To: netip.MustParseAddrPort("192.0.2.2:2"), TLVs: configured}
			h.SetTLS(c.tls, true)
			if string(configured[0].Value) != "of a proxy in front" {
				t.Error("the configuration's list was changed")
			}
			b, err := h.Append(nil)
			if err != nil || len(b) > MaxProxy {
				t.Fatalf("%d bytes, %v", len(b), err)
			}
			parsed, n, _, err := ParseProxy(b)
			if err != nil || n != len(b) || len(parsed.TLVs) != 1 {
				t.Fatalf("%+v, %d, %v", parsed, n, err)
			}
			ssl, err := tlvparse.SSL(proxyproto.TLV{Type: proxyproto.PP2Type(parsed.TLVs[0].Type), Value: parsed.TLVs[0].Value})
			if err != nil {
				t.Fatal(err)
			}
			version, _ := ssl.SSLVersion()
			cn, _ := ssl.ClientCN()
			if !ssl.ClientSSL() || version != c.version || cn != c.cn || ssl.Verified() != c.verified || ssl.ClientCertConn() != c.onThis || ssl.ClientCertSess() != c.verified {
				t.Errorf("%+v: version %q, name %q", ssl, version, cn)
			}
			if bytes.Contains(parsed.TLVs[0].Value, der) != c.der {
				t.Errorf("the certificate is in it: %t", !c.der)
			}
		})
	}
}

// Without certificate: true the certificate stays here.
func TestProxyTLSWithoutCertificate(t *testing.T) {
	var h Header
	h.SetTLS(TLS{Version: tls.VersionTLS13, CipherSuite: tls.TLS_AES_128_GCM_SHA256, Verified: true, DER: []byte("certificate")}, false)
	if bytes.Contains(h.TLVs[0].Value, []byte("certificate")) {
		t.Errorf("%q", h.TLVs[0].Value)
	}
}

func TestCipherNames(t *testing.T) {
	for id, want := range map[uint16]string{
		tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: "ECDHE-RSA-AES128-GCM-SHA256", tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384: "ECDHE-ECDSA-AES256-GCM-SHA384",
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256: "ECDHE-RSA-CHACHA20-POLY1305", tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA: "ECDHE-RSA-AES128-SHA",
		tls.TLS_AES_256_GCM_SHA384: "TLS_AES_256_GCM_SHA384",
	} {
		if got := cipherName(id); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
