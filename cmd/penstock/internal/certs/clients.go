package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Bounds of what is read about clients.
const (
	maxAuthorities = 1000
	maxRevoked     = 500_000 // certificates in all lists
)

// clients are the authorities of clients' certificates, and what they have revoked. It is not changed once it was read.
type clients struct {
	files   spec.ClientCertificates
	stamps  []stamp
	sum     [sha256.Size]byte
	pool    *x509.CertPool
	lists   []revocations
	revoked map[revoked]struct{}
}

// A revoked is a certificate by its issuer's subject, in DER, and its number.
type revoked struct{ issuer, serial string }

func revokedOf(issuer []byte, serial *big.Int) revoked {
	return revoked{string(issuer), string(serial.Bytes())}
}

// revocations is a list of revoked certificates.
type revocations struct {
	issuer string
	line   int
	until  time.Time // zero: it does not say
}

// readClients reads the authorities and lists. The result has no pool if there is an error among the problems.
func readClients(o *Options, files spec.ClientCertificates) (c *clients, problems Problems) {
	c = &clients{files: files, revoked: map[revoked]struct{}{}}
	sum := sha256.New()
	read := func(path string, most int64) []byte {
		text, s, err := o.read(path, most)
		c.stamps = append(c.stamps, s)
		if err != nil {
			problems = append(problems, failed(path, err))
		}
		sum.Write(text)
		return text
	}
	text := read(files.CA, maxFile)
	var lists []byte
	if files.CRL != "" {
		lists = read(files.CRL, maxCRL)
	}
	if len(problems) > 0 {
		return c, problems
	}
	sum.Sum(c.sum[:0])
	authorities, err := parseAuthorities(text)
	if err != nil {
		return c, append(problems, err.inFile(files.CA))
	}
	for i, cert := range authorities.certs {
		if now := o.now(); now.After(cert.NotAfter) {
			problems = append(problems, Problem{File: files.CA, Line: authorities.lines[i], Warning: true,
				Text: fmt.Sprintf("the certificate of %s expired on %s: clients whose certificates it has signed are refused", nameOf(cert), cert.NotAfter.UTC().Format("2006-01-02"))})
		}
	}
	if files.CRL != "" {
		if err := c.parseLists(lists, authorities.certs); err != nil {
			return c, append(problems, err.inFile(files.CRL))
		}
		problems = append(problems, c.expired(o.now())...)
	}
	c.pool = x509.NewCertPool()
	for _, cert := range authorities.certs {
		c.pool.AddCert(cert)
	}
	return c, problems
}

func parseAuthorities(text []byte) (chain, *lineError) {
	blocks, err := parseBlocks(text)
	var at *lineError
	if errors.As(err, &at) {
		return chain{}, at
	}
	return parseChain(blocks, maxAuthorities)
}

// parseLists reads lists of revoked certificates, in PEM or one in DER. Each must be signed by one of the authorities.
func (c *clients) parseLists(text []byte, authorities []*x509.Certificate) *lineError {
	ders := []block{}
	if bytes.HasPrefix(text, beginning) || bytes.Contains(text, []byte("\n"+string(beginning))) {
		blocks, err := parseBlocks(text)
		var at *lineError
		if errors.As(err, &at) {
			return at
		}
		for _, b := range blocks {
			if b.Type == "X509 CRL" {
				ders = append(ders, b)
			}
		}
		if len(ders) == 0 {
			return &lineError{0, "there is no list in it; allowed: PEM blocks that begin with -----BEGIN X509 CRL-----, or DER"}
		}
	}
	if len(ders) == 0 {
		return c.addList(text, 0, authorities)
	}
	for _, b := range ders {
		if err := c.addList(b.Bytes, b.line, authorities); err != nil {
			return err
		}
	}
	return nil
}

func (c *clients) addList(der []byte, line int, authorities []*x509.Certificate) *lineError {
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return lineErrorf(line, "the list of revoked certificates cannot be read: %s", strings.TrimPrefix(err.Error(), "x509: "))
	}
	signed := false
	for _, a := range authorities {
		if bytes.Equal(a.RawSubject, list.RawIssuer) && list.CheckSignatureFrom(a) == nil {
			signed = true
			break
		}
	}
	if !signed {
		return lineErrorf(line, "the list of %s is not signed by a certificate in %s", list.Issuer, c.files.CA)
	}
	if len(c.revoked)+len(list.RevokedCertificateEntries) > maxRevoked {
		return lineErrorf(line, "there are more than %d revoked certificates", maxRevoked)
	}
	for _, e := range list.RevokedCertificateEntries {
		if e.ReasonCode != 8 { // removeFromCRL, RFC 5280, section 5.3.1
			c.revoked[revokedOf(list.RawIssuer, e.SerialNumber)] = struct{}{}
		}
	}
	c.lists = append(c.lists, revocations{list.Issuer.String(), line, list.NextUpdate})
	return nil
}

// expired warns of lists that are too old. What they name stays revoked; other clients are not refused, because that would end all
// service for the sake of a list that nobody has renewed.
func (c *clients) expired(now time.Time) (problems Problems) {
	for _, l := range c.lists {
		if !l.until.IsZero() && now.After(l.until) {
			problems = append(problems, Problem{File: c.files.CRL, Line: l.line, Warning: true,
				Text: fmt.Sprintf("the list of %s expired at %s: certificates that were revoked later are accepted", l.issuer, l.until.UTC().Format(time.RFC3339))})
		}
	}
	return problems
}

func (c *clients) changed(o *Options) bool {
	for i := range c.stamps {
		if c.stamps[i].changed(o) {
			return true
		}
	}
	return false
}

// use makes a configuration ask clients for certificates. If the authorities could not be read, none has signed a client's.
func (c *clients) use(to *tls.Config) {
	to.ClientAuth, to.ClientCAs = tls.RequireAndVerifyClientCert, c.pool
	if c.pool == nil { // those of the system, for crypto/tls
		to.ClientCAs, to.SessionTicketsDisabled = x509.NewCertPool(), true
	}
	if c.files.Optional {
		to.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if len(c.revoked) > 0 {
		to.VerifyConnection = c.verify // it is called when a client resumes, too
	}
}

// verify returns an error if a certificate in each of a client's chains was revoked.
func (c *clients) verify(state tls.ConnectionState) error {
	var last error
	for _, chain := range state.VerifiedChains {
		if last = c.verifyChain(chain); last == nil {
			return nil
		}
	}
	return last
}

func (c *clients) verifyChain(chain []*x509.Certificate) error {
	for _, cert := range chain {
		if _, yes := c.revoked[revokedOf(cert.RawIssuer, cert.SerialNumber)]; yes {
			return &RevokedError{Serial: cert.SerialNumber.Text(16), Issuer: cert.Issuer.String()}
		}
	}
	return nil
}

// A RevokedError is the error of a handshake with a client whose certificate was revoked.
type RevokedError struct{ Serial, Issuer string }

func (e *RevokedError) Error() string {
	return fmt.Sprintf("the client's certificate %s of %q was revoked", e.Serial, e.Issuer)
}
