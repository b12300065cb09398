package nginx

import (
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// file returns the absolute path that a directive names.
func (n *conversion) file(d *directive, i int) (string, bool) {
	if scheme, _, ok := strings.Cut(d.arg(i), ":"); ok && !strings.Contains(scheme, "/") {
		n.Note(d.Place, "%s %s: no counterpart; a file can be named", d.name, d.arg(i))
		return "", false
	}
	return n.Path(d.Place, d.name, n.base, d.arg(i))
}

// on reports whether a directive is there, and says on.
func (s *settings) on(name string) bool { return s.one[name] != nil && s.one[name].arg(0) == "on" }

// serverSide returns the key tls of a listener; false: it cannot be had.
func (n *conversion) serverSide(s *settings, at convert.Place) (f convert.Fields, ok bool) {
	leave := func(d *directive, why string) (convert.Fields, bool) {
		n.Note(d.Place, "listen ... ssl left out: %s", why)
		return nil, false
	}
	for _, name := range []string{"ssl_password_file", "ssl_reject_handshake"} {
		if d := s.one[name]; d != nil && d.arg(0) != "off" {
			return leave(d, name+" has no counterpart")
		}
	}
	if len(s.certs) == 0 || len(s.certs) != len(s.keys) {
		n.Note(at, "listen ... ssl left out: it needs ssl_certificate, and as many ssl_certificate_key")
		return nil, false
	}
	var list []convert.Fields
	for i, d := range s.certs {
		cert, ok1 := n.file(d, 0)
		key, ok2 := n.file(s.keys[i], 0)
		if !ok1 || !ok2 {
			return leave(d, "its certificate has no counterpart")
		}
		c := convert.Fields{{Key: "certificate", Value: cert}}
		if key != cert {
			c.Set("key", key)
		}
		if o := s.one["ssl_stapling_file"]; o != nil && i == 0 {
			if file, ok := n.file(o, 0); ok {
				c.Set("ocsp", file)
			}
		}
		list = convert.AddOnce(list, c)
	}
	f.Set("certificates", list)
	if s.on("ssl_stapling") && s.one["ssl_stapling_file"] == nil {
		n.Note(s.one["ssl_stapling"].Place, "ssl_stapling: OCSP responses are not requested; ocsp names a file with one (docs/tls.md)")
	}
	n.versions(s.one["ssl_protocols"], &f)
	if d := s.one["ssl_alpn"]; d != nil {
		if list := convert.Protocols(strings.Join(d.args, ",")); len(list) > 0 {
			f.Set("alpn", list)
		}
	}
	if d := s.one["ssl_session_tickets"]; d != nil && d.arg(0) == "off" {
		f.Set("tickets", convert.Raw("off"))
	} else if d := s.one["ssl_session_ticket_key"]; d != nil {
		n.Note(d.Place, "ssl_session_ticket_key: no counterpart; tickets: {keys: FILE} has a file of lines in base64 (docs/tls.md)")
	}
	switch d := s.one["ssl_verify_client"]; {
	case d == nil || d.arg(0) == "off":
	case d.arg(0) != "on" && d.arg(0) != "optional":
		return leave(d, "ssl_verify_client "+d.arg(0)+" has no counterpart")
	default:
		ca := s.one["ssl_client_certificate"]
		if more := s.one["ssl_trusted_certificate"]; more != nil && ca == nil {
			ca = more
		} else if more != nil {
			n.Note(more.Place, "ssl_trusted_certificate: ca is one file; that of ssl_client_certificate is taken")
		}
		if ca == nil {
			return leave(d, "ssl_verify_client needs ssl_client_certificate")
		}
		file, ok := n.file(ca, 0)
		if !ok {
			return leave(ca, "clients could not be verified")
		}
		c := convert.Fields{{Key: "ca", Value: file}}
		if crl := s.one["ssl_crl"]; crl != nil {
			file, ok := n.file(crl, 0)
			if !ok {
				return leave(crl, "clients with revoked certificates would come in")
			}
			c.Set("crl", file)
		}
		if d.arg(0) == "optional" {
			c.Set("verify", convert.Raw("optional"))
		}
		f.Set("clients", c)
	}
	wait := time.Minute
	if d := s.one["ssl_handshake_timeout"]; d != nil {
		if t, ok := n.time(d, d.arg(0)); ok && t > 0 {
			wait = t
		}
	}
	f.Set("handshake-timeout", convert.Duration(wait))
	return f, true
}

// versions sets min-version as a list of protocols says.
func (n *conversion) versions(d *directive, f *convert.Fields) {
	if d == nil {
		return
	}
	has := func(version string) bool { return slices.Contains(d.args, version) }
	switch {
	case has("TLSv1.2") && !has("TLSv1.3"):
		n.Note(d.Place, "%s: TLS 1.3 is always offered", d.name)
	case has("TLSv1.3") && !has("TLSv1.2"):
		f.Set("min-version", convert.Raw(`"1.3"`))
	}
	if has("TLSv1") || has("TLSv1.1") || has("SSLv3") {
		n.Note(d.Place, "%s: versions before TLS 1.2 are not offered", d.name)
	}
}

// clientSide sets the key tls of a group that proxy_pass leads to; false: it cannot be had.
func (n *conversion) clientSide(s *settings, f *convert.Fields, to string) bool {
	if !s.on("proxy_ssl") {
		return true
	}
	var t convert.Fields
	fail := func(d *directive, why string) bool {
		n.Note(d.Place, "proxy_ssl: %s left out: %s", convert.Quote(to), why)
		return false
	}
	verified := s.on("proxy_ssl_verify")
	if d := s.one["proxy_ssl_password_file"]; d != nil {
		return fail(d, "keys with a password have no counterpart")
	}
	if !verified {
		t.Set("verify", convert.Raw("false"), "nginx verifies members only with proxy_ssl_verify on: anybody on the way to a member can pretend to be it. Better: ca, and without this line.")
	} else if d := s.one["proxy_ssl_trusted_certificate"]; d != nil {
		ca, ok := n.file(d, 0)
		if !ok {
			return fail(d, "members could not be verified")
		}
		t.Set("ca", ca)
	} else {
		return fail(s.one["proxy_ssl_verify"], "proxy_ssl_verify needs proxy_ssl_trusted_certificate")
	}
	if d := s.one["proxy_ssl_crl"]; d != nil && verified {
		n.Note(d.Place, "proxy_ssl_crl: no counterpart; members with revoked certificates are not refused")
	}
	name := to
	if host, _, err := net.SplitHostPort(to); err == nil {
		name = host
	}
	if d := s.one["proxy_ssl_name"]; d != nil {
		name = d.arg(0)
	}
	switch {
	case name == "$ssl_preread_server_name" || name == "$ssl_server_name" || name == namedHost:
		// As without server-name.
	case strings.Contains(name, "$"):
		return fail(s.one["proxy_ssl_name"], "proxy_ssl_name "+name+" has no counterpart; server-name is one name, or by default the one that the client asks for")
	case !verified && !s.on("proxy_ssl_server_name"):
		// It is neither sent nor compared.
	case convert.HostOK(name):
		t.Set("server-name", name)
	case verified:
		return fail(s.one["proxy_ssl_verify"], convert.Quote(name)+" is not the name of a certificate")
	}
	if what := convert.Hostless(*f); what != "" && verified && t.Get("server-name") == nil {
		return fail(s.one["proxy_ssl_verify"], what+" has no host to compare its certificate with; name one with server-name")
	}
	if cert, key := s.one["proxy_ssl_certificate"], s.one["proxy_ssl_certificate_key"]; cert != nil && key != nil {
		c, ok1 := n.file(cert, 0)
		k, ok2 := n.file(key, 0)
		if !ok1 || !ok2 {
			return fail(cert, "its own certificate has no counterpart")
		}
		t.Set("certificate", c)
		if k != c {
			t.Set("key", k)
		}
	}
	n.versions(s.one["proxy_ssl_protocols"], &t)
	if d := s.one["proxy_ssl_alpn"]; d != nil {
		if list := convert.Protocols(strings.Join(d.args, ",")); len(list) > 0 {
			t.Set("alpn", list)
		}
	}
	f.Set("tls", t)
	return true
}

// baseOf returns the folder that paths begin at, if it is known.
func baseOf(files []convert.File) string {
	if name := files[0].Name; path.IsAbs(name) {
		return path.Dir(name)
	}
	return ""
}
