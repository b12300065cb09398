package haproxy

import (
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// bindTLS is what a bind line says of TLS that ends there.
type bindTLS struct {
	on, strict, noTickets, bad bool
	min13                      bool
	certificates               []convert.Fields
	comments                   []string
	ca, crl, verify            string
	alpn                       []string
}

// tlsPaths are the folders for paths that are not absolute, and what binds have that do not say otherwise.
type tlsPaths struct {
	crt, ca  string
	bind     bindTLS
	noVerify bool // ssl-server-verify none
	server13 bool
}

// bindTLS reads an option of bind that concerns TLS, and reports whether it was one.
func (h *conversion) bindTLS(t *bindTLS, at convert.Place, word, value string) bool {
	switch word {
	case "ssl":
		t.on = true
	case "crt":
		h.crt(t, at, value, false)
	case "crt-list":
		h.crtList(t, at, value)
	case "ca-file":
		t.ca = value
	case "crl-file":
		t.crl = value
	case "verify":
		t.verify = value
	case "alpn":
		t.alpn = convert.Protocols(value)
	case "strict-sni":
		t.strict = true
	case "no-tls-tickets":
		t.noTickets = true
	case "tls-ticket-keys":
		h.Note(at, "tls-ticket-keys %s: no counterpart; tickets: {keys: FILE} has a file of lines in base64 too, of which the first encrypts", value)
	case "ssl-min-ver":
		t.min13 = value == "TLSv1.3"
	case "no-tlsv12", "force-tlsv13":
		t.min13 = true
	case "ssl-max-ver", "force-tlsv12", "no-tlsv13":
		if word != "ssl-max-ver" || value != "TLSv1.3" {
			h.Note(at, "%s: no counterpart; TLS 1.3 is always offered", strings.TrimSpace(word+" "+value))
		}
	default:
		return false
	}
	return true
}

// crt adds a certificate, or a folder of them.
func (h *conversion) crt(t *bindTLS, at convert.Place, name string, onlyFile bool) {
	full, ok := h.Path(at, "crt", h.tls.crt, name)
	if !ok {
		t.bad = true
		return
	}
	if len(t.certificates) >= convert.MaxThings {
		h.Note(at, "crt %s left out: more than %d", name, convert.MaxThings)
		return
	}
	var f convert.Fields
	if !onlyFile && h.IsFolder(full, name) {
		f.Set("folder", full)
		t.comments = append(t.comments, "HAProxy takes every file of the folder "+full+", with NAME.pem.key and NAME.pem.ocsp; here it is NAME.pem and NAME.crt, with NAME.key and NAME.ocsp.")
	} else {
		f.Set("certificate", full)
		if _, exists := h.Stat(full + ".key"); exists {
			f.Set("key", full+".key")
		}
		if _, exists := h.Stat(full + ".ocsp"); exists {
			f.Set("ocsp", full+".ocsp")
		}
	}
	t.certificates = convert.AddOnce(t.certificates, f)
}

// crtList adds the certificates of a list.
func (h *conversion) crtList(t *bindTLS, here convert.Place, name string) {
	lines, why := h.list(name)
	if why != "" {
		h.Note(here, "crt-list: %s", why)
		t.bad = true
		return
	}
	for i, l := range lines {
		file, rest, more := strings.Cut(strings.TrimSpace(l), " ")
		h.crt(t, here, file, true)
		if more && strings.TrimSpace(rest) != "" && i < convert.MaxThings {
			h.Note(here, "crt-list %s: what follows %s has no counterpart: the names of a certificate say which clients get it", name, file)
		}
	}
}

// serverSide makes the key tls of a listener; false: the bind cannot be had.
func (h *conversion) serverSide(b *bind) bool {
	t := b.tls
	if !t.on {
		return true
	}
	if len(t.certificates) == 0 || t.bad {
		h.Note(b.Place, "bind %s left out: its certificates have no counterpart", b.url)
		return false
	}
	var f convert.Fields
	f.Set("certificates", t.certificates, t.comments...)
	if t.strict {
		f.Set("unknown-names", convert.Raw("refuse"))
	}
	if t.min13 {
		f.Set("min-version", convert.Raw(`"1.3"`))
	}
	if len(t.alpn) > 0 {
		f.Set("alpn", t.alpn)
	}
	if t.noTickets {
		f.Set("tickets", convert.Raw("off"))
	}
	switch {
	case t.verify == "" || t.verify == "none":
	case t.verify != "required" && t.verify != "optional":
		h.Note(b.Place, "bind %s left out: verify %s", b.url, convert.Quote(t.verify))
		return false
	default:
		ca, ok := h.Path(b.Place, "ca-file", h.tls.ca, t.ca)
		if !ok { // whoever has no certificate would come in
			h.Note(b.Place, "bind %s left out: it verifies clients, by certificates that have no counterpart", b.url)
			return false
		}
		c := convert.Fields{{Key: "ca", Value: ca}}
		if t.crl != "" {
			crl, ok := h.Path(b.Place, "crl-file", h.tls.ca, t.crl)
			if !ok {
				h.Note(b.Place, "bind %s left out: without its crl-file clients with revoked certificates would come in", b.url)
				return false
			}
			c.Set("crl", crl)
		}
		if t.verify == "optional" {
			c.Set("verify", convert.Raw("optional"))
		}
		f.Set("clients", c)
	}
	b.fields.Set("tls", f)
	return true
}

// serverTLS is what a server line says of TLS to it.
type serverTLS struct {
	verify, ca, sni, host, crt, crl, alpn string
	min13                                 bool
	check, noCheck                        bool
	checkSNI, checkALPN                   string
}

// ofFlows returns what concerns flows, and not checks only.
func (t serverTLS) ofFlows() serverTLS {
	t.check, t.noCheck, t.checkSNI, t.checkALPN = false, false, "", ""
	return t
}

// serverTLS reads an option of server that concerns TLS, and reports whether it was one.
func (h *conversion) serverTLS(t *serverTLS, at convert.Place, word, value string) bool {
	switch word {
	case "verify":
		t.verify = value
	case "ca-file":
		t.ca = value
	case "sni":
		t.sni = value
	case "verifyhost":
		t.host = value
	case "crt":
		t.crt = value
	case "crl-file":
		t.crl = value
	case "alpn":
		t.alpn = value
	case "ssl-min-ver":
		t.min13 = value == "TLSv1.3"
	case "no-tlsv12", "force-tlsv13":
		t.min13 = true
	case "check-ssl":
		t.check = true
	case "no-check-ssl":
		t.noCheck = true
	case "check-sni":
		t.checkSNI = value
	case "check-alpn":
		t.checkALPN = value
	case "ssl-max-ver", "force-tlsv12", "no-tlsv13":
		if word != "ssl-max-ver" || value != "TLSv1.3" {
			h.Note(at, "%s: no counterpart; TLS 1.3 is always offered", strings.TrimSpace(word+" "+value))
		}
	default:
		return false
	}
	return true
}

// clientSide returns the key tls of a group, as its servers say; false: they cannot be had. sni is the name
// that they are sent.
func (h *conversion) clientSide(s *server, sni string) (f convert.Fields, ok bool) {
	t := &s.tlsOptions
	switch {
	case !h.verifies(t):
		f.Set("verify", convert.Raw("false"), "verify none: anybody on the way to a member can pretend to be it.")
	case t.verify != "" && t.verify != "required":
		h.Note(s.Place, "verify %s: no counterpart", convert.Quote(t.verify))
		return nil, false
	case t.ca != "" && t.ca != "@system-ca":
		ca, ok := h.Path(s.Place, "ca-file", h.tls.ca, t.ca)
		if !ok {
			return nil, false
		}
		f.Set("ca", ca)
	}
	verified := f.Get("verify") == nil
	if t.crl != "" && verified {
		h.Note(s.Place, "crl-file of a server: no counterpart; members with revoked certificates are not refused")
	}
	name, fixed := strings.CutPrefix(sni, "str(")
	switch {
	case fixed:
		name = strings.TrimSuffix(name, ")")
	case sni == "ssl_fc_sni" || sni == "req.ssl_sni":
		// As without server-name.
	case sni != "":
		h.Note(s.Place, "sni %s: no counterpart; server-name is one name, or by default the one that the client asks for", sni)
	}
	if t.host != "" {
		name = t.host
	}
	switch {
	case name != "" && (fixed || t.host != ""):
		if !convert.HostOK(name) {
			h.Note(s.Place, "%s: not a server name", convert.Quote(name))
			return nil, false
		}
		f.Set("server-name", name)
	case sni == "" && verified:
		h.Note(s.Place, "server %s: no sni or verifyhost: HAProxy takes a certificate for any name; here it must be for the name that the client asks for, or else the member's host (server-name)", s.name)
	}
	if t.crt != "" {
		crt, ok := h.Path(s.Place, "crt", h.tls.crt, t.crt)
		if !ok {
			return nil, false
		}
		f.Set("certificate", crt)
		if _, exists := h.Stat(crt + ".key"); exists {
			f.Set("key", crt+".key")
		}
	}
	if t.min13 || h.tls.server13 {
		f.Set("min-version", convert.Raw(`"1.3"`))
	}
	if list := convert.Protocols(t.alpn); len(list) > 0 {
		f.Set("alpn", list)
	}
	return f, true
}

// verifies reports whether the certificates of servers are looked at.
func (h *conversion) verifies(t *serverTLS) bool {
	return t.verify != "none" && (t.verify != "" || !h.tls.noVerify)
}

// checkTLS returns the key tls of a check; nil: it is as the group's. ok is false if it has no counterpart.
func (h *conversion) checkTLS(s *server, p probe) (value any, ok bool) {
	t := &s.tlsOptions
	switch {
	case !p.tls && s.tls:
		return convert.Raw("false"), true
	case !p.tls:
		return nil, true
	case s.tls && p.sni == "" && p.alpn == "":
		if h.verifies(t) && t.host == "" && !strings.HasPrefix(t.sni, "str(") && t.sni != "" {
			h.Note(s.Place, "server %s: no check-sni: HAProxy's check takes a certificate for any name; here it must be for the member's host (server-name in tls of the check)", s.name)
		}
		return nil, true
	}
	sni := ""
	if p.sni != "" {
		sni = "str(" + p.sni + ")"
	}
	f, ok := h.clientSide(s, sni)
	if !ok {
		return nil, false
	}
	if list := convert.Protocols(p.alpn); len(list) > 0 {
		f.Set("alpn", list)
	}
	if len(f) == 0 {
		return convert.Raw("true"), true
	}
	return f, true
}
