package config

import (
	"crypto/tls"
	"regexp"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Keys of TLS that is terminated at a listener.

func serverTLSOf(l *listener) *spec.ServerTLS { return l.TLS }

var serverTLSKeys = keysOf("listener.tls",
	required(field("certificates", nonEmptyList(certificateKeys.typ), "", "Certificates and their keys, which are read again when they change. The first is for clients whose server name no certificate has, and for those that send none.",
		func(t *spec.ServerTLS) *[]spec.Certificate { return &t.Certificates })),
	field("unknown-names", choice(func(word string) bool { return word == "refuse" }, "default", "refuse").shown(unknownWord), "default", "What a client gets whose server name no certificate has. default: the first certificate; refuse: the alert unrecognized_name.",
		func(t *spec.ServerTLS) *bool { return &t.RefuseUnknown }),
	field("min-version", tlsVersion, `"1.2"`, "The lowest version of TLS.", func(t *spec.ServerTLS) *uint16 { return &t.MinVersion }),
	field("alpn", alpnList, "", "Application protocols that are offered, the preferred first. A client that offers protocols, and none of these, is refused. Default: none is chosen; with starttls: postgresql, [postgresql].", func(t *spec.ServerTLS) *[]string { return &t.ALPN }),
	field("tickets", ticketsType, "on", "Tickets by which clients resume. on: with keys that this relay makes and changes; off: none; {keys: FILE}: with keys that several relays share.", func(t *spec.ServerTLS) *spec.Tickets { return &t.Tickets }),
	field("clients", pointer(clientCertificateKeys.filled()), "", "Ask clients for certificates. Default: they are not asked.", func(t *spec.ServerTLS) **spec.ClientCertificates { return &t.Clients }),
	field("kernel", choice(func(word string) bool { return word == "auto" }, "off", "auto").shown(kernelWord), "off", kernelHelp, func(t *spec.ServerTLS) *bool { return &t.Kernel }),
	field("handshake-timeout", duration(time.Millisecond, ""), "10s", "Maximum time of a handshake.", func(t *spec.ServerTLS) *time.Duration { return &t.Handshake }),
)

var certificateKeys = keysOf("listener.tls.certificate",
	field("certificate", filePath, "", "File with the certificate and those that it is signed by, in PEM, the certificate itself first.", func(c *spec.Certificate) *string { return &c.Chain }),
	field("folder", filePath, "", "Instead of a file: a folder of them. NAME.pem or NAME.crt has the certificates, NAME.key or the same file the key, and NAME.ocsp the response.", func(c *spec.Certificate) *string { return &c.Folder }),
	field("key", filePath, "", "File with the key, in PEM, without a password. Default: it is in the file of the certificate.", func(c *spec.Certificate) *string { return &c.Key }),
	field("ocsp", filePath, "", "File with an OCSP response in DER, which is sent with the certificate (stapled) while it is valid.", func(c *spec.Certificate) *string { return &c.OCSP }),
).oneOf("certificate", "folder")

var clientCertificateKeys = keysOf("listener.tls.clients",
	required(field("ca", filePath, "", "File with the certificates that those of clients must be signed by.", func(c *spec.ClientCertificates) *string { return &c.CA })),
	field("crl", filePath, "", "File with lists of revoked certificates (CRL), in PEM or DER, signed by those in ca.", func(c *spec.ClientCertificates) *string { return &c.CRL }),
	field("verify", choice(func(word string) bool { return word == "optional" }, "required", "optional").shown(verifyWord), "required", "required: a client without a certificate is refused. optional: it may have none.", func(c *spec.ClientCertificates) *bool { return &c.Optional }),
)

const kernelHelp = "auto: give connections of TLS 1.3 to the kernel, if it has TLS, once their flows are kept by the keeper; such flows outlive a crash. off: TLS ends with its process."

func kernelWord(auto bool) string {
	if auto {
		return "auto"
	}
	return "off"
}

func unknownWord(refuse bool) string {
	if refuse {
		return "refuse"
	}
	return "default"
}

func routeTLSWord(pass bool) string {
	if pass {
		return "pass"
	}
	return "terminate"
}

func verifyWord(optional bool) string {
	if optional {
		return "optional"
	}
	return "required"
}

// tlsVersion is a version of TLS. It may be written without quotes, too, as a number.
var tlsVersion = scalar("TLS version", `"1.2", "1.3"`, map[string]any{"enum": []any{"1.2", "1.3", 1.2, 1.3}}, func(text, _ string) (uint16, *fault) {
	switch text {
	case "1.2":
		return tls.VersionTLS12, nil
	case "1.3":
		return tls.VersionTLS13, nil
	}
	return 0, faultf("%s is not a version that is supported", quote(text))
}).shown(func(v uint16) string {
	switch v {
	case tls.VersionTLS12:
		return `"1.2"`
	case tls.VersionTLS13:
		return `"1.3"`
	}
	return "none"
})

// alpnList is a list of application protocols.
var alpnList = nonEmptyList(text("protocol", 255))

// ticketsType is on, off, or a file of keys.
var ticketsType = func() typ[spec.Tickets] {
	word := choice(func(word string) spec.Tickets { return spec.Tickets{Off: word == "off"} }, "on", "off")
	keys := keysOf("listener.tls.tickets",
		required(field("keys", filePath, "", "File with a key on each line, in base64, of at least 32 bytes: openssl rand -base64 48. The first one encrypts, the others only decrypt. It is read again when it changes.", func(t *spec.Tickets) *string { return &t.Keys })))
	return scalarOr(word, keys.typ).shown(func(t spec.Tickets) string {
		switch {
		case t.Keys != "":
			return "{keys: " + plain(t.Keys) + "}"
		case t.Off:
			return "off"
		}
		return "on"
	})
}()

// clientName is a name in a client's certificate.
var clientName = texts("client name", "a URI such as spiffe://example.org/web, or spiffe://example.org/* for all below; a DNS name such as web.example.org, or *.example.org; an address of mail; or a common name", `^[^\x00-\x1f\x7f]{1,255}$`,
	func(s string) (string, *fault) {
		f := faultf("invalid client name %s", quote(s))
		switch {
		case len(s) > 255:
			return "", faultf("%s has %d bytes", quote(s), len(s))
		case strings.Contains(s, "://"):
			if !clientURI.MatchString(s) {
				return "", f
			}
			return s, nil
		case strings.Contains(s, "@"):
			return s, nil
		case strings.HasPrefix(s, "*."):
			if !domain(s[2:]) {
				return "", f
			}
			return strings.ToLower(s), nil
		case strings.Contains(s, "*"):
			return "", f
		}
		return s, nil
	})

var clientURI = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^*\s]*(/\*)?$`)

// checkTLS reports what does not fit a listener with TLS, or one without.
func (r *reader) checkTLS(l *listener) {
	r.checkStartTLS(l)
	if l.Datagrams && l.TLS != nil {
		r.fail(r.position(&l.TLS, l), fault{problem: "does not apply to datagrams", allowed: "on stream listeners only"})
		return
	}
	for _, route := range l.Routes {
		r.checkTLSRoute(l, route)
		r.checkFirst(l, route)
	}
	if l.TLS == nil {
		return
	}
	seen := map[string]bool{}
	for i := range l.TLS.Certificates {
		c := &l.TLS.Certificates[i]
		if path := c.Chain + c.Folder; path != "" && seen[path] {
			r.fail(r.position(&c.Chain, &c.Folder, c), fault{problem: plain(path) + " is there already", allowed: "each file or folder once"})
		}
		seen[c.Chain+c.Folder] = true
		if c.Folder != "" && (r.isSet(&c.Key) || r.isSet(&c.OCSP)) {
			r.fail(r.position(&c.Key, &c.OCSP), fault{problem: "the files in a folder are found by their names", allowed: "key and ocsp together with certificate"})
		}
	}
}

func (r *reader) checkTLSRoute(l *listener, route *spec.Route) {
	switch {
	case l.TLS == nil && len(route.ClientNames) > 0:
		r.fail(r.position(&route.ClientNames), fault{problem: "the listener does not terminate TLS", allowed: "client-names together with tls of the listener"})
	case l.TLS != nil && len(route.ClientNames) > 0 && l.TLS.Clients == nil:
		r.fail(r.position(&route.ClientNames), fault{problem: "the listener does not ask clients for certificates", allowed: "client-names together with tls.clients of the listener"})
	case route.PassTLS && len(route.ClientNames) > 0:
		r.fail(r.position(&route.ClientNames), fault{problem: "where TLS is passed through, the client's certificate is not seen", allowed: "client-names, or tls: pass"})
	case l.TLS == nil && r.isSet(&route.PassTLS) && !route.PassTLS:
		r.fail(r.position(&route.PassTLS), fault{problem: "the listener has no certificates", allowed: "tls: terminate together with tls of the listener"})
	case l.TLS == nil && route.PassTLS:
		r.warnNoEffect("the listener does not terminate TLS", &route.PassTLS)
	}
}
