package convert

import (
	"encoding/hex"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// check is how a backend asks its servers.
type check struct {
	at           at
	kind         string // the option: tcp-check, httpchk, redis-check ...
	send, expect []byte
	tooMuch      bool

	method, path, host, statuses string
}

var (
	modeRE   = regexp.MustCompile(`^0?[0-7]{3}$`)
	methodRE = regexp.MustCompile(`^[A-Z]{1,16}$`)
	pathRE   = regexp.MustCompile(`^/[!-~]*$`)
	hostRE   = regexp.MustCompile(`^[A-Za-z0-9_.:\[\]-]{1,255}$`)
	statusRE = regexp.MustCompile(`^[1-5][0-9][0-9](-[1-5][0-9][0-9])?$`)
)

// checkOption reads an option that sets the kind of check.
func (h *haproxyPlan) checkOption(x *proxy, l line) {
	kind := l.words[1]
	x.check = check{at: l.at, kind: kind}
	switch kind {
	case "tcp-check":
	case "httpchk":
		h.request(x, l, l.words[2:])
	case "redis-check":
		x.check.send, x.check.expect = []byte("PING\r\n"), []byte("+PONG")
	case "smtpchk":
		x.check.send, x.check.expect = []byte("HELO localhost\r\n"), []byte("220 ")
	default:
		h.note(l.at, "option %s: no counterpart; members are checked by connecting", kind)
		x.check.kind = "tcp-check"
	}
}

// request takes method, path and version of an HTTP check.
func (h *haproxyPlan) request(x *proxy, l line, words []string) {
	c := &x.check
	switch len(words) {
	case 0:
		c.method, c.path = "OPTIONS", "/"
		return
	case 1:
		c.method, c.path = "OPTIONS", words[0]
	default:
		c.method, c.path = words[0], words[1]
	}
	if len(words) > 2 { // HTTP/1.1\r\nHost:\ www, an old way to send headers
		if _, host, ok := strings.Cut(strings.Join(words[2:], " "), "Host:"); ok {
			host, _, _ = strings.Cut(strings.TrimSpace(host), "\r\n")
			c.host = strings.TrimSpace(strings.Split(host, `\r`)[0])
		}
	}
}

// httpCheck reads http-check lines.
func (h *haproxyPlan) httpCheck(x *proxy, l line) {
	w := l.words[1:]
	if len(w) == 0 {
		return
	}
	c := &x.check
	switch w[0] {
	case "send":
		for i := 1; i+1 < len(w); i += 2 {
			switch w[i] {
			case "meth":
				c.method = w[i+1]
			case "uri":
				c.path = w[i+1]
			case "ver":
			case "hdr":
				if i+2 < len(w) && strings.EqualFold(w[i+1], "host") {
					c.host = w[i+2]
				} else {
					h.note(l.at, "http-check send hdr %s: no counterpart; only Host can be set", w[i+1])
				}
				i++
			default:
				h.note(l.at, "http-check send %s: no counterpart", w[i])
			}
		}
	case "expect":
		w = w[1:]
		if len(w) == 2 && w[0] == "status" && statusRE.MatchString(w[1]) {
			c.statuses = w[1]
			return
		}
		h.note(l.at, "http-check expect %s: no counterpart; statuses such as 200 or 200-399 can be expected", strings.Join(w, " "))
	case "connect":
		if len(w) > 1 {
			h.note(l.at, "http-check connect %s: no counterpart", strings.Join(w[1:], " "))
		}
	default:
		h.note(l.at, "http-check %s: no counterpart", w[0])
	}
}

// tcpCheck reads tcp-check lines: one send and one expect can be converted.
func (h *haproxyPlan) tcpCheck(x *proxy, l line) {
	w := l.words[1:]
	if len(w) == 0 || w[0] == "comment" {
		return
	}
	c := &x.check
	if c.kind != "tcp-check" || c.tooMuch {
		return // without option tcp-check HAProxy ignores it
	}
	tooMuch := func() {
		c.tooMuch = true
		c.send, c.expect = nil, nil
		h.note(l.at, "tcp-check: more than one request and answer has no counterpart; members are checked by connecting")
	}
	switch w[0] {
	case "connect":
		if len(w) > 1 {
			h.note(l.at, "tcp-check connect %s: no counterpart", strings.Join(w[1:], " "))
		}
	case "send", "send-binary":
		if len(w) < 2 {
			return
		}
		data := []byte(w[1])
		if w[0] == "send-binary" {
			var err error
			if data, err = hex.DecodeString(w[1]); err != nil {
				h.note(l.at, "tcp-check send-binary: not pairs of hexadecimal digits")
				return
			}
		}
		if c.expect != nil {
			tooMuch()
			return
		}
		c.send = append(c.send, data...)
	case "expect":
		if w = w[1:]; len(w) > 0 && w[0] == "!" {
			h.note(l.at, "tcp-check expect !: no counterpart")
			return
		}
		for len(w) > 2 { // min-recv N, comment C and the like
			w = w[1:]
		}
		if len(w) < 2 {
			return
		}
		var data []byte
		switch w[0] {
		case "string":
			data = []byte(w[1])
		case "binary":
			data, _ = hex.DecodeString(w[1])
		case "rstring", "rbinary":
			h.note(l.at, "tcp-check expect %s: no counterpart; an answer must contain a fixed text", w[0])
		}
		if len(data) == 0 {
			return
		}
		if c.expect != nil || c.send == nil {
			tooMuch()
			return
		}
		c.expect = data
	default:
		h.note(l.at, "tcp-check %s: no counterpart", w[0])
	}
}

// octets writes bytes for send and expect.
func octets(b []byte) string {
	if !utf8.Valid(b) || strings.HasPrefix(string(b), "hex:") {
		return "hex:" + hex.EncodeToString(b)
	}
	return string(b)
}

// checkFields makes the group's check of the backend's and of its first server that has one.
func (h *haproxyPlan) checkFields(x *proxy, f *fields) {
	var first *server
	some, all := false, true
	for i := range x.servers {
		s := &x.servers[i]
		if !s.check {
			all = false
			continue
		}
		if first == nil {
			first = s
		}
		some = true
		if s.inter != first.inter || s.rise != first.rise || s.fall != first.fall || s.checkPort != first.checkPort {
			h.note(s.at, "server %s: inter, rise, fall and port are the group's: those of %s are taken", s.name, first.name)
		}
	}
	if !some {
		return
	}
	var k fields
	every := 2 * time.Second
	if first.inter > 0 {
		every = max(first.inter, 100*time.Millisecond)
	}
	timeout := every
	if t := x.timeouts["check"]; t > 0 {
		timeout = min(t, every)
	} else if t := x.timeouts["connect"]; t > 0 {
		timeout = min(t, every)
	}
	k.set("every", duration(every))
	k.set("timeout", duration(timeout))
	if h.spread > 0 {
		k.set("jitter", raw("0."+strings.TrimPrefix(string(number(100+h.spread, 200)), "1")))
	}
	if first.rise > 0 {
		k.set("rise", number(first.rise, 100))
	}
	if first.fall > 0 {
		k.set("fall", number(first.fall, 100))
	}
	var comments []string
	if !all {
		comments = append(comments, "HAProxy checked some of these servers only; a group's check asks all members.")
	}
	if p := first.checkPort; p > 0 && p < 65536 {
		unix := false
		for _, s := range x.servers {
			unix = unix || s.unix
		}
		if unix {
			h.note(first.at, "server %s: port %d: a group with Unix sockets has no port to check", first.name, p)
		} else {
			k.set("port", number(p, 65535))
		}
	}
	if t := h.checkTLS(first); t != nil {
		k.set("tls", t)
	}
	c := x.check
	kind := "tcp"
	switch {
	case c.kind == "httpchk":
		kind = "http"
		h.set(c.at, &k, "method", c.method, methodRE)
		h.set(c.at, &k, "path", c.path, pathRE)
		h.set(c.at, &k, "host", c.host, hostRE)
		h.set(c.at, &k, "statuses", c.statuses, statusRE)
	case len(c.send) > 0 && len(c.send) <= 1<<16 && len(c.expect) <= 1<<16:
		kind = "send-expect"
		k.set("send", octets(c.send))
		if len(c.expect) > 0 {
			k.set("expect", octets(c.expect))
		}
	case len(c.expect) > 0:
		h.note(c.at, "a check that only listens has no counterpart; members are checked by connecting")
	}
	f.set("check", fields{{key: kind, value: k}}, comments...)
}

// set sets a key of a check to a text that must look like its kind.
func (h *haproxyPlan) set(at at, k *fields, key, text string, re *regexp.Regexp) {
	switch {
	case text == "":
	case !re.MatchString(text) || len(text) > 4096:
		h.note(at, "the check's %s %s has no counterpart", key, quote(text))
	case key == "statuses" && (len(text) == 3 || text[:3] <= text[4:]):
		k.set(key, raw(`"`+text+`"`))
		if len(text) == 3 {
			k.set(key, raw(text))
		}
	case key != "statuses":
		k.set(key, text)
	}
}
