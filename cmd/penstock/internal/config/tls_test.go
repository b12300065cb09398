package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

func TestClientTLS(t *testing.T) {
	c := parsed(t, `
listeners: {web: {listen: tcp://:80, to: a, routes: [{sni: b.example, to: b}, {sni: c.example, to: c}, {sni: d.example, to: d}]}}
defaults: {check: {http: {path: /x}}}
groups:
  a: {members: [tcp://h:1], tls: true}
  b: {members: [tcp://h:1], tls: {ca: /ca, server-name: n.example, certificate: /c, key: /k, min-version: 1.3, alpn: [h2, http/1.1]}, check: {tcp: {tls: false}}}
  c: {members: [tcp://h:1], tls: {}, check: {send-expect: {send: x, tls: {verify: false}}}}
  d: {members: [tcp://h:1], tls: false}
`)
	byDefault := spec.DefaultClientTLS
	for i, want := range []struct{ flows, checks *spec.ClientTLS }{
		{&byDefault, &byDefault},
		{&spec.ClientTLS{CA: "/ca", ServerName: "n.example", Cert: "/c", Key: "/k", MinVersion: 0x304, ALPN: spec.Offer{List: "h2,http/1.1"}}, nil},
		{&byDefault, &spec.ClientTLS{NoVerify: true, MinVersion: 0x303}},
		{nil, nil},
	} {
		g := c.Groups[i]
		if textOf(g.TLS) != textOf(want.flows) || textOf(g.CheckTLS()) != textOf(want.checks) {
			t.Errorf("%s: flows with %s, checks with %s; want %s and %s", g.Name, textOf(g.TLS), textOf(g.CheckTLS()), textOf(want.flows), textOf(want.checks))
		}
	}
	if n := len(c.ClientTLS()); n != 3 {
		t.Errorf("%d different settings of TLS, want 3", n)
	}

	old := parsed(t, "listeners: {web: {listen: tcp://:80, to: a}}\ngroups: {a: {members: [tcp://h:1], tls: {ca: /ca}, check: {tcp: {}}}}")
	changed := parsed(t, "listeners: {web: {listen: tcp://:80, to: a}}\ngroups: {a: {members: [tcp://h:1], tls: {verify: false, alpn: h2}, check: {tcp: {tls: false}}}}")
	const want = `
group a       changed
  check       {tcp: {}} -> {tcp: {tls: false}}
  tls.ca      /ca -> none
  tls.verify  true -> false
  tls.alpn    client -> [h2]
`
	if got := "\n" + Compare(old, changed).String(); got != want {
		t.Errorf("the difference:%swant:%s", got, want)
	}
}

func textOf(t *spec.ClientTLS) string {
	if t == nil {
		return "none"
	}
	return fmt.Sprintf("%+v", *t)
}

// A rule about files tells where the configuration names them, and is not asked where they are another host's.
func TestRuleAboutFiles(t *testing.T) {
	dir := t.TempDir()
	ca, path := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "penstock.yaml")
	if err := os.WriteFile(ca, []byte("a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	conf := "listeners: {web: {listen: tcp://:80, to: a}}\ngroups:\n  a: {members: [tcp://h:1], tls: {ca: " + ca + "}}\n"
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	calls := 0
	rule := Rule{All: func(c *spec.Config, p *Report) {
		calls++
		p.Warn(errors.New("old"), &c.Groups[0].TLS.Cert, &c.Groups[0].TLS.CA)
		p.Fail(errors.New("not\na certificate"), &c.Groups[0].TLS.CA)
	}}
	_, warnings, err := Load(path, rule)
	var errs Errors
	if !errors.As(err, &errs) || calls != 1 {
		t.Fatalf("%v after %d calls", err, calls)
	}
	if got := Messages(errs, warnings); !strings.Contains(got, "penstock.yaml:3:39: groups.a.tls.ca: not a certificate") || !strings.Contains(got, ":3:39: groups.a.tls.ca: warning: old") {
		t.Errorf("messages:\n%s", got)
	}
	if _, err := Parse("text", []byte(conf), rule); err != nil || calls != 1 {
		t.Errorf("Parse: %v after %d calls", err, calls)
	}
	if _, _, err := (&Source{Paths: []string{path}, NoTokens: true}).Load(rule); err != nil || calls != 1 {
		t.Errorf("without the files: %v after %d calls", err, calls)
	}
}
