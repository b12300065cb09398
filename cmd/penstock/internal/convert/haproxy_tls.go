package convert

import (
	"path"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// bindTLS is what a bind line says of TLS that ends there.
type bindTLS struct {
	on, strict, noTickets, bad bool
	min13                      bool
	certificates               []fields
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

// path returns the absolute path of a file that TLS needs; without one it says so.
func (p *plan) path(at at, what, base, name string) (string, bool) {
	if !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "@") && base != "" {
		name = strings.TrimSuffix(base, "/") + "/" + name
	}
	if !strings.HasPrefix(name, "/") || path.Clean(name) == "/" || oneLine(name) != name || strings.Contains(name, "$") || len(name) > 4096 {
		p.note(at, "%s %s: not the absolute path of a file", what, quote(name))
		return "", false
	}
	return path.Clean(name), true
}

// isFolder reports whether a path is that of a folder, or looks like it where nobody can tell.
func (p *plan) isFolder(full, written string) bool {
	folder, exists := p.stat(full)
	return folder || !exists && (strings.HasSuffix(written, "/") || path.Ext(full) == "")
}

func (p *plan) stat(name string) (folder, exists bool) {
	if p.src.Stat == nil {
		return false, false
	}
	return p.src.Stat(name)
}

// protocols reads the protocols of an alpn option.
func protocols(s string) (list []string) {
	for name := range strings.SplitSeq(s, ",") {
		if name != "" && len(name) <= 255 && oneLine(name) == name {
			list = append(list, name)
		}
	}
	return list
}

// bindTLS reads an option of bind that concerns TLS, and reports whether it was one.
func (h *haproxyPlan) bindTLS(t *bindTLS, at at, word, value string) bool {
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
		t.alpn = protocols(value)
	case "strict-sni":
		t.strict = true
	case "no-tls-tickets":
		t.noTickets = true
	case "tls-ticket-keys":
		h.note(at, "tls-ticket-keys %s: no counterpart; tickets: {keys: FILE} has a file of lines in base64 too, of which the first encrypts", value)
	case "ssl-min-ver":
		t.min13 = value == "TLSv1.3"
	case "no-tlsv12", "force-tlsv13":
		t.min13 = true
	case "ssl-max-ver", "force-tlsv12", "no-tlsv13":
		if word != "ssl-max-ver" || value != "TLSv1.3" {
			h.note(at, "%s: no counterpart; TLS 1.3 is always offered", strings.TrimSpace(word+" "+value))
		}
	default:
		return false
	}
	return true
}

// crt adds a certificate, or a folder of them.
func (h *haproxyPlan) crt(t *bindTLS, at at, name string, onlyFile bool) {
	full, ok := h.path(at, "crt", h.tls.crt, name)
	if !ok {
		t.bad = true
		return
	}
	if len(t.certificates) >= maxThings {
		h.note(at, "crt %s left out: more than %d", name, maxThings)
		return
	}
	var f fields
	if !onlyFile && h.isFolder(full, name) {
		f.set("folder", full)
		t.comments = append(t.comments, "HAProxy takes every file of the folder "+full+", with NAME.pem.key and NAME.pem.ocsp; here it is NAME.pem and NAME.crt, with NAME.key and NAME.ocsp.")
	} else {
		f.set("certificate", full)
		if _, exists := h.stat(full + ".key"); exists {
			f.set("key", full+".key")
		}
		if _, exists := h.stat(full + ".ocsp"); exists {
			f.set("ocsp", full+".ocsp")
		}
	}
	t.certificates = addOnce(t.certificates, f)
}

// addOnce adds a certificate that is not there already.
func addOnce(list []fields, c fields) []fields {
	if slices.ContainsFunc(list, func(o fields) bool { return o[0].value == c[0].value }) {
		return list
	}
	return append(list, c)
}

// crtList adds the certificates of a list.
func (h *haproxyPlan) crtList(t *bindTLS, here at, name string) {
	lines, why := h.list(name)
	if why != "" {
		h.note(here, "crt-list: %s", why)
		t.bad = true
		return
	}
	for i, l := range lines {
		file, rest, more := strings.Cut(strings.TrimSpace(l), " ")
		h.crt(t, here, file, true)
		if more && strings.TrimSpace(rest) != "" && i < maxThings {
			h.note(here, "crt-list %s: what follows %s has no counterpart: the names of a certificate say which clients get it", name, file)
		}
	}
}

// serverSide makes the key tls of a listener; false: the bind cannot be had.
func (h *haproxyPlan) serverSide(b *bind) bool {
	t := b.tls
	if !t.on {
		return true
	}
	if len(t.certificates) == 0 || t.bad {
		h.note(b.at, "bind %s left out: its certificates have no counterpart", b.url)
		return false
	}
	var f fields
	f.set("certificates", t.certificates, t.comments...)
	if t.strict {
		f.set("unknown-names", raw("refuse"))
	}
	if t.min13 {
		f.set("min-version", raw(`"1.3"`))
	}
	if len(t.alpn) > 0 {
		f.set("alpn", t.alpn)
	}
	if t.noTickets {
		f.set("tickets", raw("off"))
	}
	switch {
	case t.verify == "" || t.verify == "none":
	case t.verify != "required" && t.verify != "optional":
		h.note(b.at, "bind %s left out: verify %s", b.url, quote(t.verify))
		return false
	default:
		ca, ok := h.path(b.at, "ca-file", h.tls.ca, t.ca)
		if !ok { // whoever has no certificate would come in
			h.note(b.at, "bind %s left out: it verifies clients, by certificates that have no counterpart", b.url)
			return false
		}
		c := fields{{key: "ca", value: ca}}
		if t.crl != "" {
			crl, ok := h.path(b.at, "crl-file", h.tls.ca, t.crl)
			if !ok {
				h.note(b.at, "bind %s left out: without its crl-file clients with revoked certificates would come in", b.url)
				return false
			}
			c.set("crl", crl)
		}
		if t.verify == "optional" {
			c.set("verify", raw("optional"))
		}
		f.set("clients", c)
	}
	b.fields.set("tls", f)
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
func (h *haproxyPlan) serverTLS(t *serverTLS, at at, word, value string) bool {
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
			h.note(at, "%s: no counterpart; TLS 1.3 is always offered", strings.TrimSpace(word+" "+value))
		}
	default:
		return false
	}
	return true
}

// clientSide returns the key tls of a group, as its servers say; false: they cannot be had. sni is the name
// that they are sent.
func (h *haproxyPlan) clientSide(s *server, sni string) (f fields, ok bool) {
	t := &s.tlsOptions
	switch {
	case !h.verifies(t):
		f.set("verify", raw("false"), "verify none: anybody on the way to a member can pretend to be it.")
	case t.verify != "" && t.verify != "required":
		h.note(s.at, "verify %s: no counterpart", quote(t.verify))
		return nil, false
	case t.ca != "" && t.ca != "@system-ca":
		ca, ok := h.path(s.at, "ca-file", h.tls.ca, t.ca)
		if !ok {
			return nil, false
		}
		f.set("ca", ca)
	}
	verified := f.get("verify") == nil
	if t.crl != "" && verified {
		h.note(s.at, "crl-file of a server: no counterpart; members with revoked certificates are not refused")
	}
	name, fixed := strings.CutPrefix(sni, "str(")
	switch {
	case fixed:
		name = strings.TrimSuffix(name, ")")
	case sni == "ssl_fc_sni" || sni == "req.ssl_sni":
		// As without server-name.
	case sni != "":
		h.note(s.at, "sni %s: no counterpart; server-name is one name, or by default the one that the client asks for", sni)
	}
	if t.host != "" {
		name = t.host
	}
	switch {
	case name != "" && (fixed || t.host != ""):
		if !hostOK(name) {
			h.note(s.at, "%s: not a server name", quote(name))
			return nil, false
		}
		f.set("server-name", name)
	case sni == "" && verified:
		h.note(s.at, "server %s: no sni or verifyhost: HAProxy takes a certificate for any name; here it must be for the name that the client asks for, or else the member's host (server-name)", s.name)
	}
	if t.crt != "" {
		crt, ok := h.path(s.at, "crt", h.tls.crt, t.crt)
		if !ok {
			return nil, false
		}
		f.set("certificate", crt)
		if _, exists := h.stat(crt + ".key"); exists {
			f.set("key", crt+".key")
		}
	}
	if t.min13 || h.tls.server13 {
		f.set("min-version", raw(`"1.3"`))
	}
	if list := protocols(t.alpn); len(list) > 0 {
		f.set("alpn", list)
	}
	return f, true
}

// verifies reports whether the certificates of servers are looked at.
func (h *haproxyPlan) verifies(t *serverTLS) bool {
	return t.verify != "none" && (t.verify != "" || !h.tls.noVerify)
}

// checkTLS returns the key tls of a check; nil: it is as the group's. ok is false if it has no counterpart.
func (h *haproxyPlan) checkTLS(s *server, p probe) (value any, ok bool) {
	t := &s.tlsOptions
	switch {
	case !p.tls && s.tls:
		return raw("false"), true
	case !p.tls:
		return nil, true
	case s.tls && p.sni == "" && p.alpn == "":
		if h.verifies(t) && t.host == "" && !strings.HasPrefix(t.sni, "str(") && t.sni != "" {
			h.note(s.at, "server %s: no check-sni: HAProxy's check takes a certificate for any name; here it must be for the member's host (server-name in tls of the check)", s.name)
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
	if list := protocols(p.alpn); len(list) > 0 {
		f.set("alpn", list)
	}
	if len(f) == 0 {
		return raw("true"), true
	}
	return f, true
}

// hostOK reports whether a text can be the server name of a certificate.
func hostOK(s string) bool {
	in := s
	if strings.Contains(s, ":") {
		in = "[" + s + "]"
	}
	e, err := spec.ParseUpstream("tcp://" + in + ":1")
	return err == nil && e.Host == s
}
