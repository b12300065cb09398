package spec

import (
	"crypto/tls"
	"strings"
)

// ClientTLS configures TLS towards members: where flows originate it, or for checks. It is comparable.
type ClientTLS struct {
	// Files with absolute paths. They are read again when they change.
	CA        string // certificates that members' must be signed by; empty: the system's
	Cert, Key string // the relay's own, for members that ask for one; empty: none. Without Key it is in the file of Cert.

	ServerName string // in the members' certificates; empty: the client's server name, or else the member's host
	NoVerify   bool   // members' certificates are not verified
	MinVersion uint16 // [tls.VersionTLS12] or [tls.VersionTLS13]
	ALPN       string // protocols to offer, separated by commas; empty: none
	StartTLS   string // the protocol in which the member is asked for TLS first; empty: TLS begins at once
}

// Protocols returns the protocols to offer.
func (t *ClientTLS) Protocols() []string {
	if t.ALPN == "" {
		return nil
	}
	return strings.Split(t.ALPN, ",")
}

// DefaultClientTLS has the default values.
var DefaultClientTLS = ClientTLS{MinVersion: tls.VersionTLS12}

// CheckTLS returns how the group's checks use TLS; nil: they do not.
func (g *Group) CheckTLS() *ClientTLS {
	switch c := g.Check; {
	case c == nil || c.Kind == "udp" || c.NoTLS:
		return nil
	case c.TLS != nil:
		return c.TLS
	}
	return g.TLS
}

// ClientTLS returns all TLS that the groups use, each one once.
func (c *Config) ClientTLS() (list []*ClientTLS) {
	seen := map[ClientTLS]bool{}
	for _, g := range c.Groups {
		for _, t := range []*ClientTLS{g.TLS, g.CheckTLS()} {
			if t != nil && !seen[*t] {
				seen[*t] = true
				list = append(list, t)
			}
		}
	}
	return list
}
