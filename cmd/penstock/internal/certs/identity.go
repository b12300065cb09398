package certs

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"slices"
	"strings"
)

// Bounds of an identity: a certificate may be large.
const (
	maxNames = 64   // of each kind
	maxName  = 1024 // bytes of each
)

// An Identity is who a client is by its certificate, which was verified.
type Identity struct {
	Subject    string // as RFC 2253 writes it
	CommonName string
	DNS        []string // in small letters
	Emails     []string
	URIs       []string
	SPIFFE     string // the SPIFFE ID; empty: there is none
	Serial     string // in hexadecimal digits
	Issuer     string
	DER        []byte // the certificate
}

// IdentityOf returns who the client of a handshake is; nil: it has no certificate that was verified.
func IdentityOf(state *tls.ConnectionState) *Identity {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return nil
	}
	return identityOf(state.PeerCertificates[0])
}

func identityOf(c *x509.Certificate) *Identity {
	id := &Identity{Subject: cut(c.Subject.String()), CommonName: cut(c.Subject.CommonName), Issuer: cut(c.Issuer.String()), Serial: c.SerialNumber.Text(16), DER: c.Raw}
	for _, name := range c.DNSNames[:min(len(c.DNSNames), maxNames)] {
		id.DNS = append(id.DNS, strings.ToLower(cut(name)))
	}
	for _, name := range c.EmailAddresses[:min(len(c.EmailAddresses), maxNames)] {
		id.Emails = append(id.Emails, cut(name))
	}
	for _, u := range c.URIs[:min(len(c.URIs), maxNames)] {
		id.URIs = append(id.URIs, cut(u.String()))
	}
	id.SPIFFE = spiffeID(c.URIs)
	return id
}

// IdentityNamed returns the identity of a client whose certificate has these names: URIs, addresses of mail, and others, which are DNS names or
// common names.
func IdentityNamed(names ...string) *Identity {
	id := &Identity{}
	for _, name := range names {
		switch {
		case strings.Contains(name, "://"):
			id.URIs = append(id.URIs, name)
		case strings.Contains(name, "@"):
			id.Emails = append(id.Emails, name)
		case strings.Contains(name, "."):
			id.DNS = append(id.DNS, strings.ToLower(name))
		default:
			id.CommonName = name
		}
	}
	if len(id.URIs) == 1 && strings.HasPrefix(id.URIs[0], "spiffe://") {
		id.SPIFFE = id.URIs[0]
	}
	return id
}

// Names returns the names of a client, separated by commas.
func (id *Identity) Names() string {
	return strings.Join(slices.Concat(id.URIs, id.DNS, id.Emails), ",")
}

// Who returns what two certificates of the same client have in common, such as one and what renews it.
func (id *Identity) Who() string { return id.Issuer + "\n" + id.Subject + "\n" + id.Names() }

func cut(s string) string { return s[:min(len(s), maxName)] }

// spiffeID returns the SPIFFE ID of a certificate, which has exactly one URI: section 2 of X509-SVID.
func spiffeID(uris []*url.URL) string {
	if len(uris) != 1 {
		return ""
	}
	u := uris[0]
	text := u.String()
	if u.Scheme != "spiffe" || u.Host == "" || u.User != nil || u.Port() != "" || u.RawQuery != "" || u.Fragment != "" || len(text) > maxName {
		return ""
	}
	return text
}

// Matches reports whether one of the names of the client fits one of the patterns of spec.Route.ClientNames. A nil Identity has no name.
//
// A pattern with "://" is compared with URIs only, one with "@" with addresses of mail only: an authority that lets clients choose their
// common name does not thereby let them choose who they are. The common name counts as a DNS name where there are no DNS names.
func (id *Identity) Matches(patterns []string) bool {
	return id != nil && slices.ContainsFunc(patterns, id.matches)
}

func (id *Identity) matches(pattern string) bool {
	switch {
	case strings.Contains(pattern, "://"):
		above, all := strings.CutSuffix(pattern, "*")
		uris := id.URIs
		if strings.HasPrefix(pattern, "spiffe://") {
			uris = []string{id.SPIFFE} // with more URIs it is not one
		}
		return slices.ContainsFunc(uris, func(uri string) bool {
			return uri == pattern || all && len(uri) > len(above) && strings.HasPrefix(uri, above)
		})
	case strings.Contains(pattern, "@"):
		return slices.ContainsFunc(id.Emails, func(mail string) bool { return sameMail(mail, pattern) })
	case pattern == id.CommonName && (len(id.DNS) == 0 || !strings.Contains(pattern, ".")):
		return pattern != ""
	}
	names := id.DNS
	if len(names) == 0 {
		names = []string{strings.ToLower(id.CommonName)}
	}
	end, all := strings.CutPrefix(pattern, "*")
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.EqualFold(name, pattern) || all && len(name) > len(end) && strings.HasSuffix(name, strings.ToLower(end))
	})
}

// sameMail compares addresses of mail: the host in any letters, what is before it exactly. RFC 5321, section 2.4.
func sameMail(a, b string) bool {
	i, j := strings.LastIndexByte(a, '@'), strings.LastIndexByte(b, '@')
	return i > 0 && i == j && a[:i] == b[:j] && strings.EqualFold(a[i:], b[j:])
}
