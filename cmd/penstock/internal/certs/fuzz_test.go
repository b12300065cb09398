package certs

import (
	"bytes"
	"crypto/x509"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// FuzzPair reads any two files as a certificate and its key. What is accepted serves.
func FuzzPair(f *testing.F) {
	root := authority(f, nil, "root")
	m := sign(f, root, ecKey(), "a.example", nil)
	f.Add(m.chainPEM(), m.keyPEM(f))
	f.Add(append(m.chainPEM(), root.chainPEM()...), []byte("-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END EC PRIVATE KEY-----\n"))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----"), []byte("x"))
	f.Add([]byte("-----BEGIN -----BEGIN \n-----BEGIN "), []byte{})
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, chain, key []byte) {
		blocks, err := parseBlocks(chain)
		line := 0
		for _, b := range blocks {
			if b.line <= line || b.line > 1+bytes.Count(chain, []byte("\n")) {
				t.Fatalf("a block in line %d after one in line %d", b.line, line)
			}
			line = b.line
		}
		if err == nil {
			parseChain(blocks, maxChain)
			parseKey(blocks)
		}
		files := spec.Certificate{Chain: write(t, filepath.Join(dir, "a.pem"), chain), Key: write(t, filepath.Join(dir, "a.key"), key)}
		s, problems := Open(config(files), Options{}, nil)
		if (s == nil) != (len(problems.Errors()) > 0) {
			t.Fatalf("%v, %v", s, problems)
		}
		if s != nil && len(s.Config("a.example").Certificates) != 1 {
			t.Error("no certificate")
		}
	})
}

// FuzzSmall reads anything as an OCSP response, and as keys for tickets.
func FuzzSmall(f *testing.F) {
	root := authority(f, nil, "root")
	m := sign(f, root, ecKey(), "a.example", nil)
	c := &chain{certs: []*x509.Certificate{m.Certificate, root.Certificate}, lines: []int{1, 2}}
	f.Add([]byte{0x30, 3, 0x0a, 1, 0})
	f.Add(seedResponse(f, m, root))
	f.Add(ticketKeys("a", "b"))
	f.Add([]byte("#\n\nAA==\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parseStaple(text, c); err == nil && s.until.IsZero() {
			t.Error("a response for ever")
		}
		keys, err := parseTickets(text)
		if (err == nil) != (len(keys) > 0) || len(keys) > maxTicketKeys {
			t.Errorf("%d keys, %v", len(keys), err)
		}
		if err != nil && err.line > 1+bytes.Count(text, []byte("\n")) {
			t.Errorf("line %d", err.line)
		}
	})
}

// FuzzClients reads anything as lists of revoked certificates and as authorities, and takes it as a client's certificate, which is compared
// with any pattern.
func FuzzClients(f *testing.F) {
	root := authority(f, nil, "root")
	list := listOf(f, root, time.Now().Add(time.Hour), root)
	f.Add(list, "a")
	f.Add(append(pemOf("X509 CRL", list), root.chainPEM()...), "*.example")
	f.Add(sign(f, root, ecKey(), "a.example", func(c *x509.Certificate) { c.URIs = append(c.URIs, parseURL(f, "spiffe://a/b")) }).Raw, "spiffe://a/*")
	f.Fuzz(func(t *testing.T, text []byte, pattern string) {
		c := &clients{revoked: map[revoked]struct{}{}}
		if err := c.parseLists(text, []*x509.Certificate{root.Certificate}); err == nil && len(c.lists) == 0 {
			t.Error("neither a list nor an error")
		}
		parseAuthorities(text)
		cert, err := x509.ParseCertificate(text)
		if err != nil {
			return
		}
		id := identityOf(cert)
		if id.Matches([]string{pattern}) && pattern == "" {
			t.Error("nothing matches")
		}
		if len(id.Subject) > maxName || len(id.DNS) > maxNames {
			t.Errorf("%d bytes, %d names", len(id.Subject), len(id.DNS))
		}
	})
}
