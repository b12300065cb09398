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
	ALPN       Offer
	StartTLS   string // the protocol in which the member is asked for TLS first; empty: TLS begins at once
	Kernel     bool   // as of ServerTLS
}

// An Offer says which protocols members are offered by ALPN; zero: the one that the client has agreed on with the listener, if any.
type Offer struct {
	None bool
	List string // protocols, separated by commas
}

// For returns the protocols to offer, separated by commas, for a client that has agreed on one; empty: on none. If that is in
// the list, it is offered alone: a member that chose another one would be refused.
func (o Offer) For(agreed string) string {
	switch {
	case o.None:
		return ""
	case o.List == "" || agreed != "" && o.Has(agreed):
		return agreed
	}
	return o.List
}

// Has reports whether a protocol is in the list.
func (o Offer) Has(protocol string) bool {
	for p := range strings.SplitSeq(o.List, ",") {
		if p == protocol {
			return true
		}
	}
	return false
}

// DefaultClientTLS has the default values.
var DefaultClientTLS = ClientTLS{MinVersion: tls.VersionTLS12}

// CheckTLS returns how the group's checks use TLS, or the TLS that is in QUIC; nil: they do not.
func (g *Group) CheckTLS() *ClientTLS {
	switch c := g.Check; {
	case c == nil || c.NoTLS:
		return nil
	case c.TLS != nil || c.Datagrams():
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
