//go:build linux

package peer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// TLS is what a relay does with TLS. The zero value relays whatever comes.
type TLS struct {
	Terminate bool   // end the clients' TLS
	Originate bool   // begin TLS with the upstream, and verify its certificate
	Pass      bool   // relay untouched, if the ClientHello has the server name
	Name      string // of the server: the clients', and the upstream's
	Both      string // Terminate: PEM, a certificate and its key
	Cert, Key string // Terminate: the same in files of their own
	CA        string // Originate: PEM, has signed the upstream's certificate

	// The rest is what Terminate offers besides, if the relay can: see Lacks.
	Clients             string // PEM; clients must have a certificate that it has signed
	ALPN                string // protocols, with spaces between them
	OCSP                string // DER, the staple of Cert; HAProxy takes it from the file Both+".ocsp"
	Other               string // another server's name, which has
	OtherBoth           string // this certificate
	OtherCert, OtherKey string
	Strict              bool // refuse server names that no certificate has
}

// Secured returns the relays that know TLS, set up alike: TLS 1.2 and 1.3, tickets, the program's own choice of ciphers.
func Secured(bin Binaries) []Peer {
	return []Peer{
		securedPenstock(bin.Penstock),
		securedNginx("nginx", "stream module, buffers of 64 KiB", "64k"),
		securedNginx("nginx-16k", "stream module, its default buffers", "16k"),
		securedHAProxy(),
		securedEnvoy(bin.Envoy),
		securedSelf(bin.Self, "gotls", "crypto/tls and io.Copy in each direction"),
		securedSelf(bin.Self, "engine", "package relay without the daemon"),
	}
}

func securedPenstock(bin string) Peer {
	return penstockRun("penstock", "penstock run", bin, func(s Setup) string {
		var b strings.Builder
		fmt.Fprintf(&b, "engine: {loops: %d}\ngroups:\n  upstream:\n    members: [\"tcp://%s\"]\n", s.Loops, s.Upstream)
		if s.TLS.Originate {
			fmt.Fprintf(&b, "    tls: {ca: %s, server-name: %s}\n", s.TLS.CA, s.TLS.Name)
		}
		fmt.Fprintf(&b, "listeners:\n  l:\n    listen: \"tcp://%s\"\n", s.Listen)
		if s.TLS.Pass {
			fmt.Fprintf(&b, "    routes: [{name: pass, sni: %s, to: upstream}]\n", s.TLS.Name)
		} else {
			b.WriteString("    to: upstream\n")
		}
		if s.TLS.Terminate {
			fmt.Fprintf(&b, "    tls:\n      certificates:\n        - {certificate: %s, key: %s%s}\n", s.TLS.Cert, s.TLS.Key, optional(", ocsp: ", s.TLS.OCSP))
			b.WriteString(penstockOffers(s.TLS))
		}
		fmt.Fprintf(&b, "admin: {listen: \"unix://%s\"}\n", adminSocket(s))
		return b.String()
	})
}

func penstockOffers(t TLS) string {
	var b strings.Builder
	if t.Other != "" {
		fmt.Fprintf(&b, "        - {certificate: %s, key: %s}\n", t.OtherCert, t.OtherKey)
	}
	if t.Clients != "" {
		fmt.Fprintf(&b, "      clients: {ca: %s, verify: required}\n", t.Clients)
	}
	if t.ALPN != "" {
		fmt.Fprintf(&b, "      alpn: [%s]\n", strings.ReplaceAll(t.ALPN, " ", ", "))
	}
	if t.Strict {
		b.WriteString("      unknown-names: refuse\n")
	}
	return b.String()
}

func securedNginx(name, note, buffers string) Peer {
	p := nginx(name, note, "")
	p.UDP = false
	p.plan = func(s Setup) Plan {
		c := nginxConfig{name: name, buffers: buffers, to: s.Upstream, options: " backlog=4096"}
		if s.TLS.Terminate {
			c.ssl = " ssl"
			cert, key := s.TLS.Cert, s.TLS.Key
			if s.TLS.Other != "" {
				c.outer = fmt.Sprintf("    map $ssl_server_name $cert { %s %s; default %s; }\n    map $ssl_server_name $key { %s %s; default %s; }\n", s.TLS.Other, s.TLS.OtherCert, cert, s.TLS.Other, s.TLS.OtherKey, key)
				cert, key = "$cert", "$key"
			}
			c.more = fmt.Sprintf("        ssl_certificate %s;\n        ssl_certificate_key %s;\n        ssl_protocols TLSv1.2 TLSv1.3;\n", cert, key)
			if s.TLS.Clients != "" {
				c.more += fmt.Sprintf("        ssl_client_certificate %s;\n        ssl_verify_client on;\n", s.TLS.Clients)
			}
			if s.TLS.ALPN != "" {
				c.more += fmt.Sprintf("        ssl_alpn %s;\n", s.TLS.ALPN)
			}
		}
		if s.TLS.Originate {
			c.more += fmt.Sprintf("        proxy_ssl on;\n        proxy_ssl_protocols TLSv1.2 TLSv1.3;\n        proxy_ssl_verify on;\n        proxy_ssl_trusted_certificate %s;\n        proxy_ssl_name %s;\n        proxy_ssl_server_name on;\n", s.TLS.CA, s.TLS.Name)
		}
		if s.TLS.Pass {
			c.outer = fmt.Sprintf("    map $ssl_preread_server_name $to { %s %s; }\n", s.TLS.Name, s.Upstream)
			c.more, c.to = "        ssl_preread on;\n", "$to"
		}
		return c.plan(s)
	}
	return p
}

func securedHAProxy() Peer {
	p := haproxy("haproxy", "its defaults", false)
	p.plan = func(s Setup) Plan {
		// Its default order puts AES-256 first, which the others do not.
		const suites = " ssl-min-ver TLSv1.2 ciphersuites TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
		bind, server, more := "", "", ""
		if s.TLS.Terminate {
			bind = " ssl crt " + s.TLS.Both + optional(" crt ", s.TLS.OtherBoth) + suites + optional(" alpn ", strings.ReplaceAll(s.TLS.ALPN, " ", ","))
			if s.TLS.Strict {
				bind += " strict-sni"
			}
			if s.TLS.Clients != "" {
				bind += " ca-file " + s.TLS.Clients + " verify required"
			}
		}
		if s.TLS.Originate {
			server = fmt.Sprintf(" ssl verify required ca-file %s sni str(%s) verifyhost %s%s", s.TLS.CA, s.TLS.Name, s.TLS.Name, suites)
		}
		if s.TLS.Pass {
			more = fmt.Sprintf("    tcp-request inspect-delay 10s\n    tcp-request content accept if { req.ssl_sni %s }\n    tcp-request content reject\n", s.TLS.Name)
		}
		return haproxyPlan("haproxy", s, "", "    option splice-auto\n", "", bind, more, server)
	}
	return p
}

func securedEnvoy(bin string) Peer {
	const ext = "type.googleapis.com/envoy.extensions."
	p := envoy(bin)
	p.Note, p.UDP = "tcp_proxy", false
	p.plan = func(s Setup) Plan {
		const versions = "tls_params: {tls_minimum_protocol_version: TLSv1_2, tls_maximum_protocol_version: TLSv1_3}"
		listener, chain, cluster := "", "", ""
		if s.TLS.Pass {
			listener = "    listener_filters: [{name: sni, typed_config: {\"@type\": " + ext + "filters.listener.tls_inspector.v3.TlsInspector}}]\n"
			chain = fmt.Sprintf("      filter_chain_match: {server_names: [%s]}\n", s.TLS.Name)
		}
		if s.TLS.Terminate {
			clients, require := "", ""
			if s.TLS.Clients != "" {
				clients, require = fmt.Sprintf(", validation_context: {trusted_ca: {filename: %s}}", s.TLS.Clients), ", require_client_certificate: true"
			}
			chain += fmt.Sprintf("      transport_socket: {name: tls, typed_config: {\"@type\": %stransport_sockets.tls.v3.DownstreamTlsContext%s, common_tls_context: {%s, tls_certificates: [{certificate_chain: {filename: %s}, private_key: {filename: %s}}]%s}}}\n",
				ext, require, versions, s.TLS.Cert, s.TLS.Key, clients)
		}
		if s.TLS.Originate {
			cluster = fmt.Sprintf("    transport_socket: {name: tls, typed_config: {\"@type\": %stransport_sockets.tls.v3.UpstreamTlsContext, sni: %s, common_tls_context: {%s, validation_context: {trusted_ca: {filename: %s}, match_typed_subject_alt_names: [{san_type: DNS, matcher: {exact: %s}}]}}}}\n",
				ext, s.TLS.Name, versions, s.TLS.CA, s.TLS.Name)
		}
		return envoyPlan(bin, s, "", fmt.Sprintf(envoyTCP, listener, chain), cluster)
	}
	return p
}

// Lacks returns what of t the named relay cannot offer, in words, or "".
func Lacks(name string, t TLS) string {
	switch {
	case strings.HasPrefix(name, "nginx") && t.OCSP != "":
		return "the stream module has no OCSP stapling before 1.27.2"
	case strings.HasPrefix(name, "nginx") && t.Strict:
		return "the stream module cannot refuse server names"
	case name == "envoy" && (t.Other != "" || t.ALPN != "" || t.OCSP != "" || t.Strict), (name == "gotls" || name == "engine") && t.Strict:
		return "not set up here"
	}
	return ""
}

// securedSelf is a relay that is part of this program.
func securedSelf(self, name, note string) Peer {
	return Peer{
		Name: name,
		Note: note,
		Ask:  []string{"go", "version"},
		plan: func(s Setup) Plan {
			text, _ := json.Marshal(s) // it has strings and numbers
			return Plan{Argv: []string{self, name, string(text)}}
		},
	}
}

// Self runs a relay that is part of this program, if args are for one, and returns when it ends.
func Self(args []string) (is bool, err error) {
	if len(args) != 2 {
		return false, nil
	}
	switch args[0] {
	case "gotls":
		return true, GoTLS(args[1])
	case "engine":
		return true, Engine(args[1])
	}
	return false, nil
}
