package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ocsp"
)

// A staple is an OCSP response that is sent with a certificate, while it is valid.
type staple struct {
	der         []byte
	from, until time.Time
}

// parseStaple reads an OCSP response for the first certificate of a chain, and checks its signature and what it says.
func parseStaple(der []byte, c *chain) (*staple, error) {
	leaf, issuer := c.certs[0], c.certs[0]
	if len(c.certs) > 1 {
		issuer = c.certs[1]
	} else if !selfSigned(leaf) {
		return nil, errors.New("the response cannot be checked, because the certificate of the issuer is not in the file of the chain")
	}
	r, err := ocsp.ParseResponseForCert(der, leaf, issuer)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the response cannot be used: %s", strings.TrimPrefix(err.Error(), "x509: "))
	case r.SerialNumber == nil || r.SerialNumber.Cmp(leaf.SerialNumber) != 0:
		return nil, fmt.Errorf("the response is for another certificate than that of %s", nameOf(leaf))
	case r.Status == ocsp.Revoked:
		return nil, fmt.Errorf("the response says that the certificate of %s was revoked, at %s", nameOf(leaf), r.RevokedAt.UTC().Format(time.RFC3339))
	case r.Status != ocsp.Good:
		return nil, fmt.Errorf("the response does not know the certificate of %s", nameOf(leaf))
	case r.NextUpdate.IsZero():
		return nil, errors.New("the response does not say until when it is valid (nextUpdate)")
	}
	return &staple{der, r.ThisUpdate, r.NextUpdate}, nil
}

// at returns what is sent at a time; nil: nothing, and why.
func (s *staple) at(now time.Time) ([]byte, string) {
	switch {
	case s == nil:
		return nil, ""
	case now.After(s.until):
		return nil, "the response expired at " + s.until.UTC().Format(time.RFC3339)
	case now.Before(s.from):
		return nil, "the response is not valid before " + s.from.UTC().Format(time.RFC3339)
	}
	return s.der, ""
}

// mustStaple reports whether a certificate asks clients to refuse it without a response: id-pe-tlsfeature with status_request, RFC 7633.
func mustStaple(c *x509.Certificate) bool {
	for _, e := range c.Extensions {
		if e.Id.String() == "1.3.6.1.5.5.7.1.24" {
			return strings.Contains(string(e.Value), "\x02\x01\x05")
		}
	}
	return false
}
