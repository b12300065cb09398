package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// An explained is an error of a handshake in words for operators.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.err }

// Explain returns the error of a handshake with a member in words for operators, which wraps it.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	return &explained{"TLS: " + explain(err), err}
}

func explain(err error) string {
	var (
		header    tls.RecordHeaderError
		host      x509.HostnameError
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		network   *net.OpError
	)
	switch {
	case errors.As(err, &header) && (header.RecordHeader[0] < 20 || header.RecordHeader[0] > 24): // the types of records, RFC 8446, B.1
		return fmt.Sprintf("the member does not speak TLS: what it says begins with %q", header.RecordHeader[:])
	case errors.As(err, &host):
		return fmt.Sprintf("the certificate is for %s, not for %s (server-name in tls sets another name)", namesShown(host.Certificate), short(host.Host))
	case errors.As(err, &authority):
		if authority.Cert == nil {
			return "the certificate is signed by an unknown authority"
		}
		return fmt.Sprintf("the certificate of %s is signed by %s, which is not an authority in ca, or for which a certificate in between is missing", short(nameOf(authority.Cert)), short(issuerOf(authority.Cert)))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		const date = "2006-01-02 15:04 MST"
		if c := invalid.Cert; time.Now().Before(c.NotBefore) {
			return fmt.Sprintf("the certificate of %s is not valid before %s", short(nameOf(c)), c.NotBefore.UTC().Format(date))
		}
		return fmt.Sprintf("the certificate of %s has expired, on %s", short(nameOf(invalid.Cert)), invalid.Cert.NotAfter.UTC().Format(date))
	case errors.As(err, &network) && network.Op == "remote error": // an alert, by whose name crypto/tls calls it
		return "the member refuses: " + strings.TrimPrefix(network.Err.Error(), "tls: ")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the member has ended the connection in the handshake"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the member has reset the connection in the handshake"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "the handshake was not over in time"
	}
	return strings.TrimPrefix(err.Error(), "tls: ")
}

// Expires returns the end of the certificate that a member has shown in a handshake, also in one that failed because of the certificate;
// zero: it has shown none.
func Expires(state *tls.ConnectionState, err error) time.Time {
	var bad *tls.CertificateVerificationError
	switch {
	case errors.As(err, &bad) && len(bad.UnverifiedCertificates) > 0:
		return bad.UnverifiedCertificates[0].NotAfter
	case err == nil && state != nil && len(state.PeerCertificates) > 0:
		return state.PeerCertificates[0].NotAfter
	}
	return time.Time{}
}

// namesShown returns the names that a certificate is for: a few of them, since whoever made it chose them.
func namesShown(c *x509.Certificate) string {
	if c == nil {
		return "another name"
	}
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return "no name (" + short(nameOf(c)) + " is only its subject)"
	}
	const most = 3
	text := make([]string, 0, most+1)
	for _, n := range names[:min(most, len(names))] {
		text = append(text, short(n))
	}
	if len(names) > most {
		text = append(text, strconv.Itoa(len(names)-most)+" others")
	}
	return strings.Join(text, ", ")
}

func issuerOf(c *x509.Certificate) string {
	if c.Issuer.CommonName != "" {
		return c.Issuer.CommonName
	}
	return c.Issuer.String()
}

// short returns a name that a stranger chose, for a message of one line.
func short(name string) string {
	const most = 80
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "..."
	}
	for _, r := range name {
		if !strconv.IsPrint(r) {
			return strconv.Quote(name)
		}
	}
	return name
}
