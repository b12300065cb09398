package certs

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
)

// maxChain bounds the certificates that a client is sent.
const maxChain = 16

// A chain is what a client is sent: a certificate, the one that it is signed by, and so on.
type chain struct {
	certs []*x509.Certificate
	lines []int
}

// parseChain returns the certificates among the blocks of a file.
func parseChain(blocks []block, most int) (c chain, err *lineError) {
	for _, b := range blocks {
		switch b.Type {
		case "CERTIFICATE":
		case "TRUSTED CERTIFICATE", "X509 CERTIFICATE", "CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST", "PKCS7":
			return c, lineErrorf(b.line, "a block of kind %q; allowed: CERTIFICATE", b.Type)
		default:
			continue // keys, parameters
		}
		if len(c.certs) == most {
			return c, lineErrorf(b.line, "there are more than %d certificates", most)
		}
		cert, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return c, lineErrorf(b.line, "the certificate cannot be read: %s", strings.TrimPrefix(err.Error(), "x509: "))
		}
		c.certs = append(c.certs, cert)
		c.lines = append(c.lines, b.line)
	}
	if len(c.certs) == 0 {
		return c, &lineError{0, "there is no certificate in it; allowed: PEM blocks that begin with -----BEGIN CERTIFICATE-----"}
	}
	return c, nil
}

// checkKey returns an error if a key is not that of the first certificate.
func (c *chain) checkKey(key crypto.Signer) *lineError {
	for i, cert := range c.certs {
		switch {
		case !belongs(key, cert):
		case i == 0:
			return nil
		default:
			return lineErrorf(c.lines[0], "the key is that of the certificate in line %d, which must be the first: the order is wrong", c.lines[i])
		}
	}
	return lineErrorf(c.lines[0], "the key is not that of the certificate of %s", nameOf(c.certs[0]))
}

// check returns what is wrong with a chain: with the order, which is an error, and with what clients may mind.
func (c *chain) check(path string) (problems Problems) {
	add := func(i int, warning bool, format string, args ...any) {
		problems = append(problems, Problem{File: path, Line: c.lines[i], Text: fmt.Sprintf(format, args...), Warning: warning})
	}
	for i, cert := range c.certs {
		if i+1 < len(c.certs) {
			err := cert.CheckSignatureFrom(c.certs[i+1])
			var weak x509.InsecureAlgorithmError
			switch {
			case errors.As(err, &weak):
			case err != nil:
				add(i+1, false, "the certificate of %s has not signed the one before it, of %s; allowed: each followed by the one that it is signed by", nameOf(c.certs[i+1]), nameOf(cert))
			}
		}
		switch cert.SignatureAlgorithm {
		case x509.MD5WithRSA, x509.SHA1WithRSA, x509.ECDSAWithSHA1, x509.DSAWithSHA1, x509.MD2WithRSA:
			if !selfSigned(cert) {
				add(i, true, "the certificate of %s is signed with %s, which clients refuse", nameOf(cert), cert.SignatureAlgorithm)
			}
		}
		if k, ok := cert.PublicKey.(*rsa.PublicKey); ok && k.N.BitLen() < 2048 {
			add(i, true, "the key of %s has %d bits; clients refuse RSA keys of less than 2048", nameOf(cert), k.N.BitLen())
		}
	}
	leaf := c.certs[0]
	if len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.URIs) == 0 {
		add(0, true, "the certificate has no names (subject alternative names): clients refuse it, and no server name chooses it")
	}
	if len(leaf.ExtKeyUsage) > 0 && !usable(leaf, x509.ExtKeyUsageServerAuth) {
		add(0, true, "the certificate is not for servers (extended key usage): clients refuse it")
	}
	// Authorities that publish where their certificate is are those that clients have not.
	if last := c.certs[len(c.certs)-1]; !last.IsCA && len(last.IssuingCertificateURL) > 0 && !selfSigned(last) {
		add(len(c.certs)-1, true, "the certificate of its issuer, %s, is missing behind it: clients that do not have it refuse this one (%s has it)", last.Issuer, last.IssuingCertificateURL[0])
	}
	return problems
}

func usable(c *x509.Certificate, usage x509.ExtKeyUsage) bool {
	for _, u := range c.ExtKeyUsage {
		if u == usage || u == x509.ExtKeyUsageAny {
			return true
		}
	}
	return false
}

func selfSigned(c *x509.Certificate) bool { return string(c.RawIssuer) == string(c.RawSubject) }

// nameOf returns a name by which an operator knows a certificate.
func nameOf(c *x509.Certificate) string {
	switch {
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	case c.Subject.CommonName != "":
		return fmt.Sprintf("%q", c.Subject.CommonName)
	}
	return fmt.Sprintf("the subject %q", c.Subject.String())
}

// warnBefore is how long before the end of a certificate there is a warning: not more than a third of its life.
const warnBefore = 30 * 24 * time.Hour

// urgency says how near the end of a certificate is: 0: far; 1: within 30 days; 2: a week; 3: a day; 4: it has expired. What lives for
// less than 90 days has shorter times.
func urgency(c *x509.Certificate, now time.Time) int {
	before, left := min(warnBefore, c.NotAfter.Sub(c.NotBefore)/3), c.NotAfter.Sub(now)
	switch {
	case left < 0:
		return 4
	case left < before/30:
		return 3
	case left < before/4:
		return 2
	case left < before:
		return 1
	}
	return 0
}

// checkTime returns the warning of the certificate of a chain that is the nearest to its end, or that is not valid yet, and its urgency.
func (c *chain) checkTime(path string, now time.Time) (worst int, warning Problem) {
	const date = "2006-01-02 15:04 MST"
	for i, cert := range c.certs {
		u := urgency(cert, now)
		text := ""
		switch {
		case now.Before(cert.NotBefore):
			u, text = 4, fmt.Sprintf("the certificate of %s is not valid before %s: clients refuse it", nameOf(cert), cert.NotBefore.UTC().Format(date))
		case u == 4:
			text = fmt.Sprintf("the certificate of %s has expired, on %s: clients refuse it", nameOf(cert), cert.NotAfter.UTC().Format(date))
		default:
			text = fmt.Sprintf("the certificate of %s expires in %s, on %s", nameOf(cert), roughly(cert.NotAfter.Sub(now)), cert.NotAfter.UTC().Format(date))
		}
		if u > worst {
			worst, warning = u, Problem{File: path, Line: c.lines[i], Text: text, Warning: true}
		}
	}
	return worst, warning
}

// roughly writes a time in days, or in hours or minutes if it is less than two days.
func roughly(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return fmt.Sprintf("%d minutes", d/time.Minute)
}
