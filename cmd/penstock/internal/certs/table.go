package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
)

// A table has the configuration for each server name. It is not changed.
type table struct {
	exact    map[string]*tls.Config // by name in small letters
	wildcard map[string]*tls.Config // by what follows the first label: .example.org
	first    *tls.Config            // for clients without a server name
	unknown  *tls.Config            // for those whose server name no certificate has
}

// find returns the configuration for a server name.
func (t *table) find(name string) *tls.Config {
	if name == "" {
		return t.first
	}
	name = strings.ToLower(name) // which clients usually send, and then nothing is allocated
	if c := t.exact[name]; c != nil {
		return c
	}
	if i := strings.IndexByte(name, '.'); i > 0 {
		if c := t.wildcard[name[i:]]; c != nil {
			return c
		}
	}
	return t.unknown
}

// newTable returns the table of certificates, of which the first is the default. base returns a configuration without certificates.
func newTable(certs []*tls.Certificate, refuse bool, base func() *tls.Config) *table {
	t := &table{exact: map[string]*tls.Config{}, wildcard: map[string]*tls.Config{}}
	byName := map[string][]int{}
	var names []string
	for i, c := range certs {
		for _, name := range namesOf(c.Leaf) {
			have := byName[name]
			if have == nil {
				names = append(names, name)
			}
			if !slices.ContainsFunc(have, func(j int) bool { return algorithm(certs[j].Leaf) == algorithm(c.Leaf) }) {
				byName[name] = append(have, i)
			}
		}
	}
	none := func() *tls.Config {
		c := base()
		c.SessionTicketsDisabled = true
		return c
	}
	if len(certs) == 0 {
		t.first = none()
		t.unknown = t.first
		return t
	}
	made := map[string]*tls.Config{}
	of := func(list []int) *tls.Config {
		key := fmt.Sprint(list)
		if made[key] == nil {
			var some []*tls.Certificate
			for _, i := range list {
				some = append(some, certs[i])
			}
			made[key] = withCertificates(base(), some)
		}
		return made[key]
	}
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, "*"); ok {
			t.wildcard[rest] = of(byName[name])
		} else {
			t.exact[name] = of(byName[name])
		}
	}
	first := []int{0}
	if own := namesOf(certs[0].Leaf); len(own) > 0 && slices.Contains(byName[own[0]], 0) {
		first = byName[own[0]]
	}
	t.first = of(first)
	t.unknown = t.first
	if refuse {
		// crypto/tls answers unrecognized_name where there is no certificate.
		t.unknown = none()
	}
	return t
}

// namesOf returns the DNS names of a certificate that a server name may be, in small letters.
func namesOf(c *x509.Certificate) (names []string) {
	for _, name := range c.DNSNames {
		name = strings.ToLower(name)
		rest := strings.TrimPrefix(name, "*.")
		if rest != "" && !strings.Contains(rest, "*") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// withCertificates returns a configuration with certificates of several kinds of keys, of which the client gets the first that it can use: the
// cheapest one. What its server name is does not matter, because that has been decided.
func withCertificates(c *tls.Config, certs []*tls.Certificate) *tls.Config {
	if len(certs) == 1 {
		c.Certificates = []tls.Certificate{*certs[0]}
		return c
	}
	certs = slices.Clone(certs)
	slices.SortStableFunc(certs, func(a, b *tls.Certificate) int { return cost(a) - cost(b) })
	c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		h := *hello
		h.ServerName = ""
		for _, cert := range certs {
			if h.SupportsCertificate(cert) == nil {
				return cert, nil
			}
		}
		return certs[len(certs)-1], nil
	}
	return c
}

// cost orders the kinds of keys by the work of a handshake. Few clients know Ed25519.
func cost(c *tls.Certificate) int {
	switch c.Leaf.PublicKeyAlgorithm {
	case x509.Ed25519:
		return 0
	case x509.ECDSA:
		return 1
	}
	return 2
}
