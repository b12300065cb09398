package firstbytes

import (
	"bytes"
	"strings"
)

// request reads the head of a request of HTTP/1, as far as its host. It remembers how far it has read.
type request struct {
	is    Verdict // a request of HTTP/1
	named Verdict // its host is known
	host  string

	lines int // that are complete
	line  int // where the next one begins
	at    int // up to where it has been searched for its end
}

// methods are those that no other protocol has: they suffice. Others need the version behind them.
var methods = []string{"GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "PATCH ", "TRACE ", "CONNECT "}

// Bounds. Servers have about 8 KiB for the first line.
const (
	maxMethod = 24
	maxLine   = 16 << 10
	maxHost   = 253
	maxLabel  = 63
)

// read reads on. b has all bytes since the beginning.
func (r *request) read(b []byte) {
	if r.named != Maybe {
		return
	}
	if r.is == Maybe {
		if r.is = looksMethod(b); r.is == No {
			r.named = No
			return
		}
	}
	for r.named == Maybe {
		i := bytes.IndexByte(b[r.at:], '\n')
		if i < 0 {
			r.at = len(b)
			if r.at-r.line > maxLine {
				r.fail()
			}
			return
		}
		line := b[r.line : r.at+i]
		r.at += i + 1
		r.line = r.at
		r.lines++
		if len(line) > maxLine {
			r.fail()
			return
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		if r.lines == 1 {
			r.first(line)
		} else {
			r.field(line)
		}
	}
}

// fail notes that the host will never be known; and, unless it is certain by now that this is a request, that it is none.
func (r *request) fail() {
	r.named = No
	if r.is == Maybe {
		r.is = No
	}
}

// looksMethod tells whether b begins with a method.
func looksMethod(b []byte) Verdict {
	for _, m := range methods {
		if v := literal(b, m); v == Yes {
			return Yes
		}
	}
	for i, c := range b[:min(len(b), maxMethod+1)] {
		switch {
		case c == ' ' && i > 0:
			return Maybe
		case (c < 'A' || c > 'Z') && (c != '-' && c != '_' || i == 0), i == maxMethod:
			return No
		}
	}
	return Maybe
}

// first reads the first line: a method, a target and, but for HTTP/0.9, a version.
func (r *request) first(line []byte) {
	method, rest, _ := bytes.Cut(line, []byte(" "))
	target, version, versioned := bytes.Cut(rest, []byte(" "))
	if len(version) != len("HTTP/1.1") || !bytes.HasPrefix(version, []byte("HTTP/1.")) || len(target) == 0 {
		if versioned = false; r.is == Maybe {
			r.is = No
		}
	}
	if !versioned {
		r.named = No
		return
	}
	r.is = Yes
	if string(method) == "CONNECT" {
		r.setHost(target)
		return
	}
	// A proxy's form has the host, whatever the field says (RFC 9112, 3.2.2).
	if scheme, rest, ok := bytes.Cut(target, []byte("://")); ok && (strings.EqualFold(string(scheme), "http") || strings.EqualFold(string(scheme), "https")) {
		if i := bytes.IndexAny(rest, "/?#"); i >= 0 {
			rest = rest[:i]
		}
		if _, host, ok := bytes.Cut(rest, []byte("@")); ok {
			rest = host
		}
		r.setHost(rest)
	}
}

// field reads another line of the head.
func (r *request) field(line []byte) {
	name, value, ok := bytes.Cut(line, []byte(":"))
	switch {
	case len(line) == 0:
		r.named = No // the head has ended
	case ok && len(bytes.TrimRight(name, " \t")) < len(name):
		// A server must refuse a request with a space before a colon (RFC 9112, 5.1). One that does not may read another host than this.
		r.named = No
	case ok && strings.EqualFold(string(name), "host"):
		r.setHost(bytes.Trim(value, " \t"))
	}
}

// setHost notes the host of an authority, HOST or HOST:PORT. An IPv6 address in brackets is not a host here, nor is anything that is no name.
func (r *request) setHost(authority []byte) {
	r.named = No
	host, _, _ := bytes.Cut(authority, []byte(":"))
	host = bytes.TrimSuffix(host, []byte("."))
	if len(host) == 0 || len(host) > maxHost {
		return
	}
	for label := range bytes.SplitSeq(host, []byte(".")) {
		if !isLabel(label) {
			return
		}
	}
	r.host, r.named = strings.ToLower(string(host)), Yes
}

// isLabel reports whether b may stand between two dots of a name.
func isLabel(b []byte) bool {
	for _, c := range b {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return len(b) > 0 && len(b) <= maxLabel
}
