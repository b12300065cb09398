package config

import (
	"encoding/json"
	"strings"
	"testing"
)

const before = `
engine: {loops: 2}
drain: 1m
listeners:
  web:
    listen: tcp://:80
    timeouts: {idle: 5m}
    routes:
      - {name: a, sni: a.example.org, to: g}
      - {name: b, sni: b.example.org, to: g, removed: {live-flows: drain}}
      - {name: c, sni: c.example.org, to: g}
    to: tcp://h:1
  old: {listen: tcp://:81, to: g}
groups:
  g: {members: [tcp://a:1, tcp://b:1, tcp://d:1], check: {tcp: {}}, proxy-protocol: v1}
`

const after = `
engine: {loops: 4, gso: false}
limits: {new-flows: 100/s}
listeners:
  web:
    listen: tcp://:8080
    timeouts: {idle: 1h30m}
    limits: {bandwidth: 1MiB/s}
    routes:
      - {name: c, sni: c.example.org, to: h, timeouts: {life: 3h}}
      - {name: a, sni: [a.example.org, "*.a.example.org"], to: g}
      - {name: n, sni: n.example.org, to: g}
    to: tcp://h:2
  new: {listen: tcp://:81, to: g}
groups:
  g:
    members: [{to: tcp://a:1, weight: 3}, tcp://c:1, {to: tcp://d:1, drained: true}]
    check: {http: {path: /x}}
    proxy-protocol: {version: 2, tlvs: {0xE0: hi}}
    source: client
  h: {members: [tcp://a:1]}
`

func TestCompare(t *testing.T) {
	d := Compare(parsed(t, before), parsed(t, after))
	const want = `
engine              changed; takes effect on the next start
  engine.loops      2 -> 4
  engine.gso        true -> false
settings            changed
  limits.new-flows  0 -> 100/s
  drain             1m -> 30s
listener web        changed; is bound again
  listen            tcp://:80 -> tcp://:8080
  limits.bandwidth  0 -> 1MiB/s
  timeouts.idle     5m -> 1h30m
  to                tcp://h:1 -> tcp://h:2
  order of routes   a is number 1 -> c is
  route c           changed
    to              g -> h
    timeouts.life   never -> 3h
  route a           changed
    sni             [a.example.org] -> [a.example.org, *.a.example.org]
  route n           new
  route b           gone; live flows: drain
listener new        new
listener old        gone
group g             changed
  check             {tcp: {}} -> {http: {path: /x}}
  proxy-protocol    {version: 1} -> {version: 2, tlvs: {0xE0: "hi"}}
  source            [] -> client
  member tcp://a:1  changed
    weight          1 -> 3
  member tcp://c:1  new
  member tcp://d:1  changed
    drained         false -> true
  member tcp://b:1  gone
group h             new
group tcp://h:2     new
group tcp://h:1     gone
`
	if got := "\n" + d.String(); got != want {
		t.Errorf("got:%s\nwant:%s", got, want)
	}
	text, err := json.Marshal(d)
	if err != nil || !strings.Contains(string(text), `{"name":"b","what":"gone","live-flows":"drain"}`) {
		t.Errorf("%s, %v", text, err)
	}
	for _, c := range []struct {
		listener, route, group, member string
		want                           bool
	}{
		{"web", "a", "g", "tcp://a:1", false},
		{"web", "b", "g", "tcp://a:1", true},
		{"web", "a", "g", "tcp://b:1", true},
		{"web", "a", "g", "tcp://d:1", false}, // drained: its flows go on
		{"web", "c", "g", "tcp://a:1", true},  // leads to another group
		{"web", "default", "tcp://h:1", "tcp://h:1", true},
		{"old", "default", "g", "tcp://a:1", true},
	} {
		if got, ends := d.Loses(c.listener, c.route, c.group, c.member); got != c.want || ends {
			t.Errorf("%+v: %v, %v", c, got, ends)
		}
	}
}

func TestCompareSame(t *testing.T) {
	for _, text := range []string{before, after} {
		if d := Compare(parsed(t, text), parsed(t, text)); !d.Empty() || d.String() != "no difference\n" {
			t.Error(d)
		}
	}
}

// The keys of TLS are compared one by one.
func TestCompareTLS(t *testing.T) {
	const plain = "listeners: {web: {listen: 'tcp://:443', to: 'echo:'}}"
	const first = "listeners: {web: {listen: 'tcp://:443', to: 'echo:', tls: {certificates: [{certificate: /a.pem}]}}}"
	const second = "listeners: {web: {listen: 'tcp://:443', to: 'echo:', tls: {certificates: [{certificate: /a.pem, key: /a.key}], min-version: 1.3, tickets: {keys: /k}, alpn: h2, unknown-names: refuse, clients: {ca: /ca}}}}"
	for _, c := range []struct{ from, to, want string }{
		{plain, first, "tls  none -> {certificates: [{certificate: /a.pem}]}"},
		{first, plain, "tls  {certificates: [{certificate: /a.pem}]} -> none"},
		{first, first, "no difference"},
		{first, second, `tls.certificates [{certificate: /a.pem}] -> [{certificate: /a.pem, key: /a.key}]
tls.unknown-names default -> refuse
tls.min-version "1.2" -> "1.3"
tls.alpn [] -> [h2]
tls.tickets on -> {keys: /k}
tls.clients none -> {ca: /ca}`},
	} {
		got := Compare(parsed(t, c.from), parsed(t, c.to)).String()
		for _, line := range strings.Split(c.want, "\n") {
			if !strings.Contains(strings.Join(strings.Fields(got), " "), strings.Join(strings.Fields(line), " ")) {
				t.Errorf("%q is missing in:\n%s", line, got)
			}
		}
	}
}

// Lists of networks are compared key by key: one that moved, one that is gone, and a new one.
func TestCompareLists(t *testing.T) {
	const rest = `
listeners: {web: {listen: 'tcp://:80', deny: ['list:a', 'list:b'], to: 'echo:'}}
`
	d := Compare(parsed(t, `lists: {a: {url: 'http://a.test/x'}, b: {file: /b.txt}}`+rest), parsed(t, `lists: {a: {url: 'http://b.test/x', every: 1m}, c: {file: /c.txt}}`+strings.Replace(rest, ":b", ":c", 1)))
	const want = `
settings         changed
  lists.a.url    http://a.test/x -> http://b.test/x
  lists.a.every   -> 1m
  lists.c.file   none -> /c.txt
  lists.b.file   /b.txt -> none
listener web     changed
  deny           [list:a, list:b] -> [list:a, list:c]
`
	if got := "\n" + d.String(); got != want {
		t.Errorf("%s", got)
	}
}
