package haproxy

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// probe is how the check of one server connects. But for port and address, a group has one for all of its members.
type probe struct {
	port  int        // 0: the member's own
	addr  netip.Addr // zero: the member's own
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
		var err error
		if p.addr, err = netip.ParseAddr(s.checkAddr); err != nil {
			p.why = "addr " + s.checkAddr + " has no counterpart, as it is not an address"
		}
	}
	if p.addr.IsValid() && (s.unix || s.template > 0) {
		p.why = "addr " + s.checkAddr + " has no counterpart at a Unix socket or a server-template"
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
		if s.template == 0 && !s.unix { // the member's own keys say it
			got.port, got.addr = want.port, want.addr
		}
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

// checkedElsewhere sets the keys of a member whose check goes to another port than the group's check says, or to another address. port is that
// of the listener.
func (h *conversion) checkedElsewhere(x *proxy, s *server, servers []*server, port string, m *convert.Fields) {
	i := slices.IndexFunc(servers, func(s *server) bool { return s.check })
	if i < 0 || !s.check || s.unix {
		return
	}
	p := x.check.probe(s)
	if p.port != x.check.probe(servers[i]).port {
		own, _ := strconv.Atoi(s.portOr(port))
		m.Set("check-port", convert.Number(cmp.Or(p.port, own), 65535))
	}
	if p.addr.IsValid() {
		m.Set("check-address", p.addr.String())
	}
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
		members, _ := f.Get("members").([]convert.Fields)
		for i := range members { // what says where to check has no effect then
			members[i] = slices.DeleteFunc(members[i], func(m convert.Field) bool { return m.Key == "check-port" || m.Key == "check-address" })
		}
		return h.noCheck(x, first, servers, why)
	}
	for _, s := range servers {
		switch {
		case !s.check:
			comments = []string{"HAProxy checked some of these servers only; a group's check asks all members."}
		case s.inter != first.inter || s.downInter != first.downInter || s.rise != first.rise || s.fall != first.fall:
			h.Note(s.Place, "server %s: inter, downinter, rise and fall are the group's: those of %s are taken", s.name, first.name)
		}
	}
	for _, a := range asks {
		k.Set(a.Key, a.Value, a.Comments...)
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

// answerTime sets how long the answer to a check or of an agent may take: until the next question, as in HAProxy, unless timeout check
// says something else.
func answerTime(x *proxy, every time.Duration, k *convert.Fields) {
	timeout := every
	var comments []string
	if t := x.timeouts["check"]; t > every {
		comments = []string{fmt.Sprintf("HAProxy waits %s for an answer; here it must come before the next question is due, so that a server that hangs is down sooner. If good answers take longer, change every.", convert.Duration(t))}
	} else if t > 0 {
		timeout = t
	}
	k.Set("timeout", convert.Duration(timeout), comments...)
}

// checkTimes begins the fields of a check.
func (h *conversion) checkTimes(x *proxy, first *server) (k convert.Fields) {
	every := 2 * time.Second
	if first.inter > 0 {
		every = max(first.inter, 100*time.Millisecond)
	}
	k.Set("every", convert.Duration(every))
	if d := max(first.downInter, 100*time.Millisecond); first.downInter > 0 && d != every {
		k.Set("every-down", convert.Duration(d))
	}
	answerTime(x, every, &k)
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
		return "send-expect", convert.Fields{{Key: "expect", Value: "220 "}, {Key: "then", Value: []convert.Fields{
			{{Key: "send", Value: c.helo + "\r\n"}, {Key: "expect", Value: "250 "}},
			{{Key: "send", Value: "QUIT\r\n"}, {Key: "expect", Value: "221 "}},
		}}}, ""
	case "pgsql-check", "mysql-check":
		if c.user != "" {
			f.Set("user", c.user)
		}
		return map[string]string{"pgsql-check": "postgres", "mysql-check": "mysql"}[c.kind], f, ""
	}
	return "tcp", nil, ""
}

// asksTCP converts tcp-check rules, as steps: what is sent, and the answer.
func asksTCP(rules []checkRule) (kind string, f convert.Fields, why string) {
	type step struct{ send, expect []byte }
	var steps []step
	var comments []string
	for i, r := range rules {
		if len(r.data) > 1<<16 {
			return "", nil, "a request or answer of more than 64 KiB has no counterpart"
		}
		if r.what == "send" && !slices.ContainsFunc(rules[i:], func(r checkRule) bool { return r.what == "expect" }) && len(steps) > 0 && steps[len(steps)-1].expect != nil {
			comments = []string{"What HAProxy sends after the last answer is left out."}
			break
		}
		if len(steps) == 0 || steps[len(steps)-1].expect != nil {
			steps = append(steps, step{})
		}
		at := &steps[len(steps)-1]
		switch r.what {
		case "send":
			if at.send = append(at.send, r.data...); len(at.send) > 1<<16 {
				return "", nil, "a request or answer of more than 64 KiB has no counterpart"
			}
		case "expect":
			at.expect = append([]byte{}, r.data...)
		}
	}
	if len(steps) == 0 {
		return "tcp", nil, ""
	}
	fields := func(s step, comments ...string) (f convert.Fields) {
		if len(s.send) > 0 {
			f.Set("send", octets(s.send), comments...)
		}
		if len(s.expect) > 0 {
			f.Set("expect", octets(s.expect))
		}
		return f
	}
	f = fields(steps[0], comments...)
	var then []convert.Fields
	for _, s := range steps[1:] {
		then = append(then, fields(s))
	}
	if len(then) > 0 {
		f.Set("then", then)
	}
	if len(f) == 0 {
		return "tcp", nil, ""
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
