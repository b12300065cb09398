package haproxy

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// check is how a backend asks its servers.
type check struct {
	at   convert.Place
	kind string // the option: tcp-check, httpchk, redis-check ...; empty: connecting is enough
	helo string // of smtpchk
	user string // of pgsql-check and mysql-check

	method, path, host string      // of httpchk
	why                string      // what of the option has no counterpart
	rules              []checkRule // tcp-check and http-check, in order
	inherited          bool        // the rules are those of defaults, which the first own one replaces
}

// checkRule is a step of a check.
type checkRule struct {
	convert.Place
	what         string // connect, send, expect
	connect      checkConnect
	data         []byte // to send, or to expect
	request      fieldsOfRequest
	status       []bool // of an answer, by status from 0 to 599; nil: any is good
	body, bodyRE string
	why          string // what of it has no counterpart
}

// fieldsOfRequest are what http-check send says of a request.
type fieldsOfRequest struct{ method, path, host string }

// checkConnect is what a rule connect says: how a check connects, instead of as server lines say.
type checkConnect struct {
	there          bool
	asServer       bool // default: what is not said here is as the server line says
	tls, sendProxy bool
	port           int
	sni, alpn      string
}

var (
	modeRE   = convert.LazyRE(`^0?[0-7]{3}$`)
	methodRE = convert.LazyRE(`^[A-Z]{1,16}$`)
	pathRE   = convert.LazyRE(`^/[!-~]*$`)
	hostRE   = convert.LazyRE(`^[A-Za-z0-9_.:\[\]-]{1,255}$`)
)

// checkOption reads an option that sets the kind of check.
func (h *conversion) checkOption(x *proxy, kind string, l *line) {
	c := &x.check
	if l.no {
		if c.kind == kind {
			c.kind = ""
		}
		return
	}
	c.at, c.kind, c.helo, c.user = l.Place, kind, "", ""
	c.method, c.path, c.host, c.why = "", "", "", ""
	switch kind {
	case "tcp-check", "redis-check":
	case "pgsql-check", "mysql-check":
		if l.peek() == "user" {
			l.next()
			c.user = l.next()
		}
		if kind == "mysql-check" && (l.peek() == "post-41" || l.peek() == "pre-41") {
			l.next()
		}
	case "external-check":
		l.rest()
	case "httpchk":
		c.request(l)
	case "smtpchk":
		c.helo = "HELO localhost"
		if verb := l.peek(); verb == "HELO" || verb == "EHLO" {
			l.next()
			c.helo = verb + " " + firstOf(l.next(), "localhost")
		}
	default:
		l.rest()
		h.Note(l.Place, "option %s: no counterpart; members are checked by connecting, so that one that accepts connections and answers nothing passes", kind)
		c.kind = ""
	}
}

// request reads method, path and version of an HTTP check.
func (c *check) request(l *line) {
	c.method, c.path = "OPTIONS", "/"
	first := l.next()
	switch {
	case first == "":
		return
	case !l.more():
		c.path = first
		return
	}
	c.method, c.path = first, l.next()
	if !strings.HasPrefix(l.peek(), "HTTP/1.") {
		return
	}
	// HTTP/1.1\r\nHost:\ www, an old way to send headers
	_, headers, _ := strings.Cut(strings.ReplaceAll(l.next(), "\\r\\n", "\r\n"), "\r\n")
	for header := range strings.SplitSeq(headers, "\r\n") {
		if name, value, ok := strings.Cut(header, ":"); ok {
			c.header(name, strings.TrimSpace(value))
		}
	}
}

// header sets a header of the request; the ones that the check has anyway may be anything.
func (c *check) header(name, value string) {
	switch strings.ToLower(name) {
	case "host":
		c.host = value
	case "accept", "connection", "user-agent":
	default:
		c.why = "the header " + name + " has no counterpart; only Host can be set"
	}
}

// checkRule reads a line tcp-check or http-check.
func (h *conversion) checkRule(x *proxy, kind string, l *line) {
	c := &x.check
	if c.inherited && !l.inherited {
		c.rules = nil
	}
	c.inherited = l.inherited
	r := checkRule{Place: l.Place, what: l.next()}
	switch r.what {
	case "connect":
		r.readConnect(l)
	case "send":
		if kind == "http-check" {
			r.readRequest(l)
		} else {
			r.data = []byte(l.next())
			l.comment()
		}
	case "send-binary":
		var err error
		if r.data, err = hex.DecodeString(l.next()); err != nil {
			r.why = "send-binary: not pairs of hexadecimal digits"
		}
		r.what = "send"
		l.comment()
	case "expect":
		r.readExpect(kind, l)
	case "disable-on-404", "send-state":
		h.Note(l.Place, "http-check %s: no counterpart", r.what)
		return
	default:
		l.rest()
		if !nothing(kind, r.what) {
			r.what, r.why = "other", r.what+" has no counterpart"
			break
		}
		return
	}
	r.what = kind + " " + r.what
	c.rules = append(c.rules, r)
}

// comment skips what is written for people.
func (l *line) comment() {
	if l.peek() == "comment" {
		l.next()
		l.next()
	}
}

// fail says what of a rule has no counterpart, unless something has been said.
func (r *checkRule) fail(format string, args ...any) {
	if r.why == "" {
		r.why = fmt.Sprintf(format, args...)
	}
}

// readConnect reads the options of a rule connect.
func (r *checkRule) readConnect(l *line) {
	c := &r.connect
	c.there = true
	for l.more() {
		switch word := l.next(); word {
		case "default":
			c.asServer = true
		case "ssl":
			c.tls = true
		case "send-proxy":
			c.sendProxy = true
		case "port":
			n, ok := convert.Count(l.peek())
			if !ok || n < 1 || n > 65535 {
				r.fail("connect port %s has no counterpart", l.peek())
			}
			c.port = n
			l.next()
		case "sni":
			c.sni = l.next()
		case "alpn":
			c.alpn = l.next()
		case "comment":
			l.next()
		default:
			if !nothing("connect", word) {
				r.fail("connect %s has no counterpart", strings.Join(append([]string{word}, l.rest()...), " "))
			}
		}
	}
}

// readRequest reads the options of http-check send.
func (r *checkRule) readRequest(l *line) {
	for l.more() {
		switch word := l.next(); word {
		case "meth":
			r.request.method = l.next()
		case "uri":
			r.request.path = l.next()
		case "ver":
			if version := l.next(); !strings.HasPrefix(version, "HTTP/1.") {
				r.fail("send ver %s has no counterpart", version)
			}
		case "hdr":
			var h check
			h.header(l.next(), l.next())
			if r.request.host = firstOf(h.host, r.request.host); h.why != "" {
				r.fail("%s", h.why)
			}
		case "comment":
			l.next()
		default:
			r.fail("send %s has no counterpart", strings.Join(append([]string{word}, l.rest()...), " "))
		}
	}
}

// readExpect reads what an answer must be.
func (r *checkRule) readExpect(kind string, l *line) {
	not := false
	for l.more() {
		word := l.next()
		switch {
		case word == "!":
			not = !not
		case word == "ok-status":
			r.fail("expect ok-status %s has no counterpart", l.next())
		case nothing("expect", word):
			l.next()
		case !l.more():
			r.fail("expect %s has no pattern", word)
		default:
			r.pattern(kind, word, strings.Join(l.rest(), " "), not)
		}
	}
}

// pattern reads one pattern of an answer.
func (r *checkRule) pattern(kind, word, text string, not bool) {
	no := func() {
		if not {
			word = "! " + word
		}
		r.fail("expect %s %s has no counterpart", word, text)
	}
	var is func(status int) bool
	switch {
	case kind == "http-check" && word == "status":
		ranges, ok := statusRanges(text)
		if !ok {
			no()
			return
		}
		is = func(status int) bool { return ranges[status] }
	case kind == "http-check" && word == "rstatus":
		re, err := regexp.Compile(text)
		if err != nil {
			no()
			return
		}
		is = func(status int) bool { return re.MatchString(strconv.Itoa(status)) }
	case not:
		no()
		return
	case kind == "http-check" && word == "string" && bodyOK(text):
		r.body = text
		return
	case kind == "http-check" && word == "rstring" && bodyRegexp(text) != "":
		r.bodyRE = bodyRegexp(text)
		return
	case kind == "tcp-check" && word == "string":
		r.data = []byte(text)
		return
	case kind == "tcp-check" && word == "rstring" && literal(text) != "":
		r.data = []byte(literal(text))
		return
	case kind == "tcp-check" && word == "binary":
		var err error
		if r.data, err = hex.DecodeString(text); err != nil || len(r.data) == 0 {
			no()
		}
		return
	default:
		no()
		return
	}
	r.status = make([]bool, 600)
	for status := 100; status < 600; status++ {
		r.status[status] = is(status) != not
	}
}

// literal returns the text that a regular expression stands for; empty: it stands for several.
func literal(pattern string) string {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil || re.Op != syntax.OpLiteral || re.Flags&syntax.FoldCase != 0 {
		return ""
	}
	return string(re.Rune)
}

// statusRanges reads a list of statuses and ranges of them, such as 200,300-399.
func statusRanges(list string) (in [600]bool, ok bool) {
	for item := range strings.SplitSeq(list, ",") {
		low, high, ranged := strings.Cut(item, "-")
		if !ranged {
			high = low
		}
		a, ok1 := convert.Count(low)
		b, ok2 := convert.Count(high)
		if !ok1 || !ok2 || a < 100 || b > 599 || a > b {
			return in, false
		}
		for status := a; status <= b; status++ {
			in[status] = true
		}
	}
	return in, true
}

// bodyOK reports whether a text can be looked for in a body.
func bodyOK(text string) bool {
	return text != "" && len(text) <= 1024 && convert.OneLine(text) == text
}

// bodyRegexp returns a regular expression as RE2 has it; empty: it has none. In a PCRE a last $
// matches before a line's end, too.
func bodyRegexp(text string) string {
	if last := strings.TrimSuffix(text, "$"); last != text && !strings.HasSuffix(last, `\`) {
		text = last + `\n?$`
	}
	if _, err := regexp.Compile(text); err != nil || !bodyOK(text) {
		return ""
	}
	return text
}
