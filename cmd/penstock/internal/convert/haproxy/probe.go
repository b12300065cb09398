package haproxy

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// probe is how the check of one server connects. A group has one for all of its members.
type probe struct {
	port  int // 0: the member's own
	proxy bool
	tls   bool
	sni   string    // of TLS; empty: none
	alpn  string    // of TLS; empty: as the server's
	flows serverTLS // the rest of TLS, which is that of flows
	why   string    // what of it has no counterpart
}

// connectRule returns the rule connect of a check; it is not there if no rule says how to connect.
func (c *check) connectRule() checkConnect {
	for _, r := range c.applying() {
		if r.connect.there {
			return r.connect
		}
	}
	return checkConnect{}
}

// applying returns the rules that the option of the check makes effective.
func (c *check) applying() []checkRule {
	kind := map[string]string{"tcp-check": "tcp-check ", "httpchk": "http-check "}[c.kind]
	var list []checkRule
	for _, r := range c.rules {
		if kind != "" && strings.HasPrefix(r.what, kind) {
			r.what = strings.TrimPrefix(r.what, kind)
			list = append(list, r)
		}
	}
	return list
}

// probe returns how the check of a server connects (HAProxy's manual, tcp-check connect): as the
// server line says, unless a rule says it.
func (c *check) probe(s *server) probe {
	r := c.connectRule()
	asFlows := s.checkPort == 0 && s.checkAddr == "" // TLS and the header are then those of flows
	p := probe{port: s.checkPort, why: s.checkWhy}
	if !r.there || r.asServer {
		t := &s.tlsOptions
		p.tls = t.check || s.tls && asFlows && !t.noCheck
		p.proxy = s.checkProxy || asFlows && s.proxy != ""
		p.sni, p.alpn = t.checkSNI, t.checkALPN
	}
	if r.port > 0 {
		p.port = r.port
	}
	if r.sni != "" {
		p.sni = r.sni
	}
	if r.alpn != "" {
		p.alpn = r.alpn
	}
	if p.tls = p.tls || r.tls; p.tls {
		p.flows = s.tlsOptions.ofFlows()
	}
	p.proxy = p.proxy || r.sendProxy
	if s.checkAddr != "" && s.checkAddr != s.address {
		p.why = "addr " + s.checkAddr + " has no counterpart; a check goes to the member's address"
	}
	if p.proxy != (s.proxy != "") {
		p.why = "a check begins with a PROXY header if flows do, and not otherwise"
	}
	return p
}

// sameProbes leaves out the servers that are checked in another way than the first one that is
// checked: their checks would tell something else than HAProxy's.
func (h *conversion) sameProbes(x *proxy, servers []*server) []*server {
	var first *server
	return slices.DeleteFunc(servers, func(s *server) bool {
		if !s.check {
			return false
		}
		if first == nil {
			first = s
		}
		got, want := x.check.probe(s), x.check.probe(first)
		if got == want {
			return false
		}
		what := "connects in another way than"
		if got.port != want.port {
			what = fmt.Sprintf("goes to the port %s, and not to %s as", portText(got.port), portText(want.port))
		}
		h.Note(s.Place, "server %s left out: its check %s that of %s, and a group has one check; put it into a group of its own", s.name, what, first.name)
		return true
	})
}

// namesHost reports whether a value of the key tls does not need a member's host.
func namesHost(tls any) bool {
	f, _ := tls.(convert.Fields)
	return f.Get("verify") != nil || f.Get("server-name") != nil
}

func portText(port int) string {
	if port == 0 {
		return "of the server"
	}
	return fmt.Sprint(port)
}

// setCheck makes the group's check of the backend's and of its first server that has one. It
// reports false if clients would go where HAProxy's check does not let them.
func (h *conversion) setCheck(x *proxy, servers []*server, f *convert.Fields) bool {
	i := slices.IndexFunc(servers, func(s *server) bool { return s.check })
	if i < 0 {
		return true
	}
	first := servers[i]
	p := x.check.probe(first)
	kind, asks, why := x.check.asks()
	if why == "" {
		why = p.why
	}
	var comments []string
	unix := slices.ContainsFunc(servers, func(s *server) bool { return s.unix })
	if p.port > 0 && unix {
		why = fmt.Sprintf("port %d: a group with Unix sockets has no port to check", p.port)
	}
	k := h.checkTimes(x, first)
	if p.port > 0 {
		k.Set("port", convert.Number(p.port, 65535))
	}
	switch t, ok := h.checkTLS(first, p); {
	case !ok:
		why = "its TLS has no counterpart"
	case t == nil:
	case t != convert.Raw("false") && convert.Hostless(*f) != "" && !namesHost(t):
		why = "TLS: " + convert.Hostless(*f) + " has no host to compare its certificate with"
	default:
		k.Set("tls", t)
	}
	if why != "" {
		return h.noCheck(x, first, servers, why)
	}
	for _, s := range servers {
		switch {
		case !s.check:
			comments = []string{"HAProxy checked some of these servers only; a group's check asks all members."}
		case s.inter != first.inter || s.rise != first.rise || s.fall != first.fall:
			h.Note(s.Place, "server %s: inter, rise and fall are the group's: those of %s are taken", s.name, first.name)
		}
	}
	for _, a := range asks {
		k.Set(a.Key, a.Value, a.Comments...)
	}
	switch {
	case x.check.kind == "smtpchk":
		h.Note(x.check.at, "option smtpchk: %s is sent without waiting for the greeting, and the answer to it must be 250; a server that insists on being first (Exim, postscreen) fails the check: use check: {tcp: {}}", x.check.helo)
	case kind == "tcp" && len(x.check.applying()) > 0 && slices.ContainsFunc(x.check.applying(), func(r checkRule) bool { return r.what == "expect" }):
		h.Note(x.check.at, "a check that only listens has no counterpart; members are checked by connecting")
	}
	f.Set("check", convert.Fields{{Key: kind, Value: k}}, comments...)
	return true
}

// noCheck leaves the check out, as something of it has no counterpart. That is safe for a single
// server. Of several, those would get clients that fail the check: replicas, say.
func (h *conversion) noCheck(x *proxy, first *server, servers []*server, why string) bool {
	at := first.Place
	if x.check.kind != "" {
		at = x.check.at
	}
	for _, r := range x.check.applying() {
		if r.why == why {
			at = r.Place
		}
	}
	if len(servers) == 1 && first.template == 0 {
		h.Note(at, "the check of %s is left out: %s", first.name, why)
		return true
	}
	h.Note(at, "%s %s left out: %s, and without its check servers would get clients that HAProxy keeps from them", x.kind, x.name, why)
	return false
}

// checkTimes begins the fields of a check.
func (h *conversion) checkTimes(x *proxy, first *server) (k convert.Fields) {
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
	k.Set("every", convert.Duration(every))
	k.Set("timeout", convert.Duration(timeout))
	if h.spread > 0 {
		k.Set("jitter", convert.Raw("0."+strings.TrimPrefix(string(convert.Number(100+h.spread, 200)), "1")))
	}
	if first.rise > 0 {
		k.Set("rise", convert.Number(first.rise, 100))
	}
	if first.fall > 0 {
		k.Set("fall", convert.Number(first.fall, 100))
	}
	return k
}

// asks returns what a check asks, as the kind of check with its own keys, or why that has no
// counterpart.
func (c *check) asks() (kind string, f convert.Fields, why string) {
	rules := c.applying()
	connects := 0
	if c.why != "" {
		return "", nil, c.why
	}
	for _, r := range rules {
		if r.why != "" {
			return "", nil, r.why
		}
		if r.connect.there {
			connects++
		}
	}
	if connects > 1 || connects == 1 && !rules[0].connect.there {
		return "", nil, "a check that connects more than once has no counterpart"
	}
	switch c.kind {
	case "httpchk":
		return c.asksHTTP(rules[connects:])
	case "tcp-check":
		return asksTCP(rules[connects:])
	case "redis-check":
		return "send-expect", convert.Fields{{Key: "send", Value: "PING\r\n"}, {Key: "expect", Value: "+PONG"}}, ""
	case "external-check":
		return "", nil, "option external-check has no counterpart"
	case "smtpchk":
		if convert.OneLine(c.helo) != c.helo {
			return "", nil, "the name in HELO is not one"
		}
		return "send-expect", convert.Fields{{Key: "send", Value: c.helo + "\r\n"}, {Key: "expect", Value: "\n250"}}, ""
	}
	return "tcp", nil, ""
}

// asksTCP converts tcp-check rules: one request, and one answer.
func asksTCP(rules []checkRule) (kind string, f convert.Fields, why string) {
	var send, expect []byte
	var comments []string
	for i, r := range rules {
		switch {
		case r.what == "send" && expect == nil:
			send = append(send, r.data...)
		case r.what == "send" && !slices.ContainsFunc(rules[i:], func(r checkRule) bool { return r.what == "expect" }):
			comments = []string{"What HAProxy sends after the answer is left out."}
		case r.what == "expect" && expect == nil:
			expect = r.data
		default:
			return "", nil, "a check of more than one request and answer has no counterpart"
		}
	}
	switch {
	case len(send) > 1<<16 || len(expect) > 1<<16:
		return "", nil, "a request or answer of more than 64 KiB has no counterpart"
	case len(send) == 0:
		return "tcp", nil, ""
	}
	f.Set("send", octets(send), comments...)
	if len(expect) > 0 {
		f.Set("expect", octets(expect))
	}
	return "send-expect", f, ""
}

// asksHTTP converts http-check rules: one request, and what its answer must be.
func (c *check) asksHTTP(rules []checkRule) (kind string, f convert.Fields, why string) {
	want := fieldsOfRequest{c.method, c.path, c.host}
	var good []bool
	body, bodyRE := "", ""
	expects := 0
	for _, r := range rules {
		switch {
		case r.what == "send" && expects == 0:
			want.method = firstOf(r.request.method, want.method)
			want.path = firstOf(r.request.path, want.path)
			want.host = firstOf(r.request.host, want.host)
		case r.what == "send":
			return "", nil, "a check of more than one request has no counterpart"
		case r.body != "" && body != "" || r.bodyRE != "" && bodyRE != "":
			return "", nil, "more than one text in the body has no counterpart"
		default:
			expects++
			body, bodyRE = firstOf(body, r.body), firstOf(bodyRE, r.bodyRE)
			if good == nil {
				good = r.status
			} else if r.status != nil {
				good = slices.Clone(good)
				for i := range good {
					good[i] = good[i] && r.status[i]
				}
			}
		}
	}
	if want.method == "HEAD" && body+bodyRE != "" {
		return "", nil, "an answer to HEAD has no body"
	}
	if expects > 0 && good == nil { // the body decides, whatever the status
		good = make([]bool, 600)
		for i := 100; i < 600; i++ {
			good[i] = true
		}
	}
	for _, v := range []struct {
		key, text string
		ok        bool
	}{
		{"method", want.method, methodRE().MatchString(want.method)},
		{"path", want.path, pathRE().MatchString(want.path) && len(want.path) <= 4096},
		{"host", want.host, hostRE().MatchString(want.host)},
	} {
		if v.text != "" && !v.ok {
			return "", nil, fmt.Sprintf("the %s %s has no counterpart", v.key, convert.Quote(v.text))
		}
		if v.text != "" {
			f.Set(v.key, v.text)
		}
	}
	if good != nil {
		switch list := ranges(good); {
		case len(list) == 0:
			return "", nil, "no status is good"
		case len(list) == 1 && len(list[0]) == 3:
			f.Set("statuses", convert.Raw(list[0]))
		case len(list) == 1:
			f.Set("statuses", list[0])
		default:
			f.Set("statuses", list)
		}
	}
	if body != "" {
		f.Set("body", body)
	}
	if bodyRE != "" {
		f.Set("body-matches", bodyRE)
	}
	return "http", f, ""
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// ranges writes a set of statuses.
func ranges(in []bool) (list []string) {
	for i := 100; i < 600; i++ {
		if !in[i] {
			continue
		}
		first := i
		for i+1 < 600 && in[i+1] {
			i++
		}
		if i == first {
			list = append(list, fmt.Sprint(first))
		} else {
			list = append(list, fmt.Sprintf("%d-%d", first, i))
		}
	}
	return list
}

// octets writes bytes for send and expect.
func octets(b []byte) string {
	if !utf8.Valid(b) || strings.HasPrefix(string(b), "hex:") {
		return "hex:" + hex.EncodeToString(b)
	}
	return string(b)
}
