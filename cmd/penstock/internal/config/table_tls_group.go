package config

import (
	"regexp"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

var clientTLSKeys = keysOf("group.tls",
	field("ca", filePath, "", "File with the certificates that the members' must be signed by. Default: the system's. All files are read again when they change.", func(t *spec.ClientTLS) *string { return &t.CA }),
	field("server-name", host, "", "The name, or address, in the members' certificates; a name is also sent to them (SNI). Default: the server name that the client sent, or else the member's host; of a check the member's host.", func(t *spec.ClientTLS) *string { return &t.ServerName }),
	field("certificate", filePath, "", "File with the relay's own certificate, for members that ask for one, and with its chain.", func(t *spec.ClientTLS) *string { return &t.Cert }),
	field("key", filePath, "", "File with the key of the certificate. Default: the file of the certificate.", func(t *spec.ClientTLS) *string { return &t.Key }),
	field("verify", boolean(false), "true", "Verify the members' certificates. false: anybody on the way to a member can pretend to be it.", func(t *spec.ClientTLS) *bool { return &t.NoVerify }),
	field("min-version", tlsVersion, `"1.2"`, "The lowest version of TLS that is used.", func(t *spec.ClientTLS) *uint16 { return &t.MinVersion }),
	field("alpn", offerType, "client", "Application protocols to offer to members (ALPN). client: the one that the client and the listener have agreed on, if TLS ends there and they have; checks offer none. none: none. A list, the preferred one first: these; if the client has agreed on one of them, only that. A member that chooses another protocol than the client's is refused.", func(t *spec.ClientTLS) *spec.Offer { return &t.ALPN }),
	field("kernel", choice(func(word string) bool { return word == "auto" }, "off", "auto").shown(kernelWord), "off", kernelHelp, func(t *spec.ClientTLS) *bool { return &t.Kernel }),
	field("starttls", oneOf(spec.PostgreSQL), "", "postgresql: ask the members for TLS as PostgreSQL's clients do (SSLRequest). Default: TLS begins at once.", func(t *spec.ClientTLS) *string { return &t.StartTLS }),
)

// onOff is a boolean in place of the mapping of TLS: true is the mapping with the default values.
var onOff = func() typ[*spec.ClientTLS] {
	of := boolean(true)
	return typ[*spec.ClientTLS]{of.shape, func(r *reader, n node, t **spec.ClientTLS) {
		on := false
		if of.read(r, n, &on); on {
			v := spec.DefaultClientTLS
			*t = &v
		}
	}, nil}
}()

// clientTLS is the type of TLS towards members, where it can be used or not.
var clientTLS = scalarOr(onOff, pointer(clientTLSKeys.filled())).shown(func(t *spec.ClientTLS) string {
	if t == nil {
		return "false"
	}
	return clientTLSKeys.show(*t)
})

// checkClientTLS is clientTLS for a check, where it is also known whether the file says anything.
var checkClientTLS = typ[spec.Check]{clientTLS.shape, func(r *reader, n node, c *spec.Check) {
	before := len(r.errs)
	clientTLS.read(r, n, &c.TLS)
	c.NoTLS = c.TLS == nil && len(r.errs) == before
}, func(c spec.Check) string {
	switch {
	case c.NoTLS:
		return "false"
	case c.TLS == nil:
		return "as the group"
	}
	return clientTLS.show(c.TLS)
}}

// offerType is a word, or a list of ALPN protocols. A protocol with the name of a word is written as a list.
var offerType = func() typ[spec.Offer] {
	word := choice(func(word string) spec.Offer { return spec.Offer{None: word == "none"} }, "client", "none")
	protocols := nonEmptyList(texts("protocol", "a protocol such as http/1.1, without commas", `^[^,\x00-\x1f\x7f]{1,255}$`, keepText))
	s := &shape{either: []*shape{word.shape, protocols.shape}}
	return typ[spec.Offer]{s, func(r *reader, n node, to *spec.Offer) {
		if n.Value == "client" || n.Value == "none" {
			word.read(r, n, to)
			return
		}
		var list []string
		before := len(r.errs)
		if protocols.read(r, n, &list); len(r.errs) > before && n.Content == nil {
			r.errs[before].Allowed = allowedText(s)
		}
		to.List = strings.Join(list, ",")
	}, func(o spec.Offer) string {
		switch {
		case o.None:
			return "none"
		case o.List == "":
			return "client"
		}
		return "[" + strings.ReplaceAll(o.List, ",", ", ") + "]"
	}}
}()

// bodyPattern is a regular expression in Go's syntax, which is matched in linear time.
var bodyPattern = texts("regular expression", "a regular expression of RE2, of up to 1024 bytes", `^[^\x00-\x1f\x7f]+$`, func(s string) (string, *fault) {
	if len(s) > 1024 {
		return "", faultf("has %d bytes", len(s))
	}
	if _, err := regexp.Compile(s); err != nil {
		return "", faultf("%s", oneLine(strings.TrimPrefix(err.Error(), "error parsing regexp: ")))
	}
	return s, nil
})

// checkGroupTLS reports members that cannot speak TLS, or whose certificates nothing could be compared with.
func (r *reader) checkGroupTLS(g *spec.Group) {
	if g.TLS != nil {
		r.checkMembersTLS(g, g.TLS, r.position(&g.TLS, g), "the group originates TLS")
	}
	if t := g.CheckTLS(); t != nil && t != g.TLS {
		r.checkMembersTLS(g, t, r.position(&g.Check.TLS, g), "the check uses TLS")
	}
}

func (r *reader) checkMembersTLS(g *spec.Group, t *spec.ClientTLS, at *place, who string) {
	if t.Key != "" && t.Cert == "" {
		r.fail(r.position(&t.Key, t), fault{problem: "a key without its certificate", allowed: "key together with certificate"})
	}
	if t.NoVerify {
		r.warnNoEffect("verify is false", &t.CA)
	}
	quic := t != g.TLS && g.Check.Kind == "quic"
	if t != g.TLS && !quic && t.ALPN == (spec.Offer{}) {
		r.warnNoEffect("a check has no client that agrees on a protocol", &t.ALPN)
	}
	if quic && t.StartTLS != "" {
		r.fail(r.position(&t.StartTLS, t), fault{problem: "QUIC has its TLS from the beginning", allowed: "no starttls in tls of a check of QUIC"})
	}
	for _, m := range g.Members {
		switch k := m.To.Kind; {
		case k == 0:
		case (k == spec.Unix || k == spec.Unixgram && quic) && t.ServerName == "" && !t.NoVerify:
			r.fail(at, fault{problem: who + ", and the member " + plain(m.Name) + " is a Unix socket, which has no host to compare its certificate with", allowed: "server-name in tls"})
			return
		case k.BuiltIn(), !k.Streams():
			if t == g.TLS {
				r.fail(at, fault{problem: who + ", and the member " + plain(m.Name) + " speaks none", allowed: "tls in groups of tcp: and unix: members"})
				return
			}
		}
	}
	if i := slices.IndexFunc(g.Discover, func(d spec.Discover) bool { return d.Service != "" }); i >= 0 && t.ServerName == "" && !t.NoVerify {
		r.fail(at, fault{problem: who + ", and " + plain(g.Discover[i].String()) + " is looked up in DNS, which could name any host that has a certificate", allowed: "server-name in tls"})
	}
	if i := slices.IndexFunc(g.Discover, func(d spec.Discover) bool { return d.Network == spec.UDP }); i >= 0 && t == g.TLS {
		r.fail(at, fault{problem: who + ", and the discovered members of " + plain(g.Discover[i].String()) + " take datagrams", allowed: "tls in groups of tcp: and unix: members"})
	}
}
