package offline

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/firstbytes"
	"github.com/penstock/penstock/cmd/penstock/internal/route"
	"github.com/penstock/penstock/cmd/penstock/internal/rules"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

var update = flag.Bool("update", false, "write the golden files")

// What becomes of connections under the examples of the documentation.
func TestExplain(t *testing.T) {
	var got bytes.Buffer
	for _, c := range []struct {
		file, listener, from, sni string
		alpn                      []string
	}{
		{file: "tls-passthrough", listener: "https", from: "192.0.2.7", sni: "intranet.example.com"},
		{file: "tls-passthrough", listener: "https", from: "203.0.113.9", sni: "v2.api.example.com", alpn: []string{"h2"}},
		{file: "tls-passthrough", listener: "https", from: "203.0.113.9"},
		{file: "quic-by-name", listener: "quic", from: "203.0.113.9", sni: "v2.api.example.com", alpn: []string{"h3"}},
		{file: "quic-by-name", listener: "quic", from: "203.0.113.9"},
		{file: "database", listener: "postgres", from: "10.0.0.77"},
		{file: "dns-front", listener: "dns-udp", from: "2001:db8::1"},
		{file: "patroni", listener: "postgres", from: "10.0.0.77"},
		{file: "redis-sentinel", listener: "redis", from: "10.0.0.77"},
		{file: "galera", listener: "mariadb", from: "10.0.0.77"},
		{file: "tcp-to-unix", listener: "web", from: "198.51.100.1"},
		{file: "egress-by-name", listener: "https", from: "10.0.0.7", sni: "archive.ubuntu.com"},
		{file: "egress-by-name", listener: "https", from: "10.0.0.7", sni: "example.com"},
		{file: "egress-by-name", listener: "https", from: "10.0.0.7"},
		{file: "egress-by-name", listener: "https", from: "10.0.0.7", sni: "127.0.0.1"},
		{file: "blue-and-green", listener: "web", from: "198.51.100.1"},
		{file: "blue-and-green", listener: "web", from: "198.51.100.13"},
	} {
		cfg, _, err := config.Load(filepath.Join("../../../../docs/examples", c.file+".yaml"), rules.Everywhere...)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "$ %s: %s from %s, %q %q\n", c.file, c.listener, c.from, c.sni, c.alpn)
		e, err := explain(cfg, c.listener, 0, func(spec.Endpoint, string, *spec.Destination) string { return "" }, route.Meta{Client: netip.MustParseAddr(c.from), SNI: c.sni, ALPN: c.alpn}, nil, nil)
		if err != nil {
			fmt.Fprintln(&got, err)
			continue
		}
		e.print(&got)
	}
	golden := filepath.Join("testdata", "explain.golden")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got:\n%s\nwant:\n%s", got.Bytes(), want)
	}
}

// What explain says of clients' first bytes is what becomes of them: who is silent is routed by the first time that is over, and
// what is not TLS does not get past the end of TLS.
func TestExplainFirstBytes(t *testing.T) {
	cfg, err := config.Parse("f", []byte(`
listeners:
  waits:
    listen: tcp://:1
    routes:
      - {name: late, from: [10.0.0.0/8, 192.0.2.0/24], silence: 2s, to: "tcp://10.0.0.1:1"}
      - {name: soon, from: 10.0.0.0/8, silence: 1s, to: "tcp://10.0.0.2:2"}
    to: tcp://10.0.0.3:3
  ends:
    listen: tcp://:2
    tls: {certificates: [{certificate: /a.pem}]}
    routes: [{name: ssh, protocol: ssh, tls: pass, to: "tcp://10.0.0.1:1"}]
    to: tcp://10.0.0.3:3
`), rules.Everywhere...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		listener, from, protocol string
		silent                   time.Duration
		route, refused           string
	}{
		{listener: "waits", from: "10.0.0.1", silent: 3 * time.Second, route: "soon"},
		{listener: "waits", from: "10.0.0.1", silent: time.Second, route: "soon"},
		{listener: "waits", from: "192.0.2.1", silent: 3 * time.Second, route: "late"},
		{listener: "waits", from: "192.0.2.1", silent: time.Second, route: "default"},
		{listener: "ends", from: "192.0.2.1", protocol: "ssh", route: "ssh"},
		{listener: "ends", from: "192.0.2.1", protocol: "tls", route: "default"},
		{listener: "ends", from: "192.0.2.1", route: "default"},
		{listener: "ends", from: "192.0.2.1", protocol: "rdp", refused: "client-tls: the client speaks rdp, and TLS ends at the listener"},
	} {
		m := route.Meta{Client: netip.MustParseAddr(c.from), First: firstbytes.Given(c.protocol, "", nil, c.silent)}
		e, err := explain(cfg, c.listener, 0, func(spec.Endpoint, string, *spec.Destination) string { return "" }, m, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(e.Route, c.route) || (e.Route == "") != (c.route == "") || e.Refused != c.refused {
			t.Errorf("%+v: route %q, refused %q: %q", c, e.Route, e.Refused, e.Steps)
		}
	}
}

// With --lookup explain says what DNS has of a name, and that it has nothing.
func TestExplainLookup(t *testing.T) {
	for url, want := range map[string]string{
		"tcp://localhost:80": ": currently tcp://", "tcp://no-such-host.invalid:80": ": lookup failed: ", "tcp://127.0.0.1:80": "",
	} {
		to, err := spec.ParseUpstream(url)
		if err != nil {
			t.Fatal(err)
		}
		if got := lookUpMember(to, "", nil); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

// A client of a range reaches each member at the port with the same offset.
func TestExplainPort(t *testing.T) {
	cfg, err := config.Parse("f", []byte("listeners: {r: {listen: 'tcp://:30000-30009', to: g}, u: {listen: 'unix:///run/u', to: 'tcp://10.0.0.9:9'}, one: {listen: 'tcp://:80', to: 'tcp://10.0.0.9:9'}}\n"+
		"groups: {g: {members: [{to: 'tcp://10.0.0.5:40000-40009', name: a}, 'tcp://10.0.0.6:30000-30009', 'tcp://10.0.0.7:7']}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		listener string
		port     uint16
		want     string
	}{
		{"r", 30007, "a at tcp://10.0.0.5:40007 tcp://10.0.0.6:30007 tcp://10.0.0.7:7"},
		{"r", 30000, "a at tcp://10.0.0.5:40000 tcp://10.0.0.6:30000 tcp://10.0.0.7:7"},
		{"r", 0, "a at tcp://10.0.0.5:40000-40009, at the port with the offset of the client's tcp://10.0.0.6:30000-30009, at the port with the offset of the client's tcp://10.0.0.7:7"},
		{"one", 80, "tcp://10.0.0.9:9"},
		{"r", 30010, "--port: the listener r does not have port 30010; allowed: a port of tcp://:30000-30009"},
		{"r", 29999, "--port: the listener r does not have port 29999; allowed: a port of tcp://:30000-30009"},
		{"one", 81, "--port: the listener one does not have port 81; allowed: a port of tcp://:80"},
		{"u", 1, "--port: the listener u does not have port 1; allowed: none, as it has no ports"},
	} {
		e, err := explain(cfg, c.listener, c.port, func(spec.Endpoint, string, *spec.Destination) string { return "" }, route.Meta{}, nil, nil)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = strings.Join(e.Members, " ")
		}
		if got != c.want {
			t.Errorf("%s, port %d: %q, want %q", c.listener, c.port, got, c.want)
		}
	}
}

// What becomes of clients of a listener that terminates TLS depends on the names in their certificates.
func TestExplainTLS(t *testing.T) {
	cfg, err := config.Parse("f", []byte(`
listeners:
  web:
    listen: tcp://:443
    tls: {certificates: [{certificate: /a.pem}], clients: {ca: /ca.pem, verify: optional}}
    routes:
      - {name: old, sni: old.example, tls: pass, to: "tcp://10.0.0.1:1"}
      - {name: ops, client-names: ["spiffe://example.org/ops", "*.ops.example"], to: "tcp://10.0.0.2:2"}
    to: tcp://10.0.0.3:3
  strict:
    listen: tcp://:444
    tls: {certificates: [{certificate: /a.pem}], clients: {ca: /ca.pem}}
    to: tcp://10.0.0.3:3
  plain: {listen: "tcp://:445", tls: {certificates: [{certificate: /a.pem}]}, to: "tcp://10.0.0.3:3"}
  protocols:
    listen: tcp://:446
    tls: {certificates: [{certificate: /a.pem}], alpn: [http/1.1, h2]}
    routes:
      - {name: h2, alpn: h2, to: "tcp://10.0.0.1:1"}
      - {name: challenge, alpn: [acme-tls/1, h3], tls: pass, to: "tcp://10.0.0.2:2"}
      - {name: h1, alpn: http/1.1, to: "tcp://10.0.0.3:3"}
    to: again
  again:
    listen: tcp://:447
    tls: {certificates: [{certificate: /a.pem}], alpn: [http/1.1, h2]}
    routes: [{name: old, sni: old.example, to: old}]
    to: again
  clear: {listen: "tcp://:448", routes: [{name: old, sni: old.example, to: old}], to: again}
  databases: {listen: "tcp://:5432", starttls: {protocol: postgresql, clear: cancel}, routes: [{name: a, sni: a.example, to: "tcp://10.0.0.3:3"}]}
groups:
  again: {members: ["tcp://10.0.0.4:4"], tls: {}}
  old: {members: ["tcp://10.0.0.5:5"], tls: {alpn: h3}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		listener, sni, name     string
		alpn                    string
		route, step, path, fail string
	}{
		{listener: "web", sni: "old.example", route: "old", step: "passes through", path: "splice"},
		{listener: "web", sni: "a.example", route: "default", step: "has no certificate", path: "copy"},
		{listener: "web", sni: "a.example", name: "db.ops.example", route: "ops", step: "the client's certificate has one of", path: "copy"},
		{listener: "web", name: "spiffe://example.org/ops", route: "ops", step: "has a certificate", path: "copy"},
		{listener: "web", name: "ops", route: "default", step: "no name of the client's certificate", path: "copy"},
		{listener: "strict", fail: "client-tls"},
		{listener: "strict", name: "a", route: "default", step: "has a certificate", path: "copy"},
		{listener: "databases", sni: "a.example", route: "a", step: "starttls: postgresql: the client asks for TLS, and gets a yes, or begins it at once; what is in the clear is refused, but for requests to cancel", path: "splice"},
		{listener: "databases", step: "a ClientHello without a server name", fail: "no-route"},
		{listener: "protocols", route: "default", step: "agree on no protocol", path: "copy"},
		{listener: "protocols", alpn: "h2", route: "h2", step: `route h2: yes: the client and the listener agree on "h2"`, path: "copy"},
		{listener: "protocols", alpn: "h2 http/1.1", route: "h1", step: `route h2: no: the client and the listener agree on "http/1.1"; the route requires h2`, path: "copy"},
		{listener: "protocols", alpn: "http/1.1 h3", route: "challenge", step: "passes through", path: "splice"},
		{listener: "protocols", alpn: "smtp", fail: "client-tls: the client offers smtp"},
		{listener: "again", alpn: "h2", route: "default", step: "the member is offered h2", path: "copy"},
		{listener: "again", route: "default", step: "the member is offered no protocol", path: "copy"},
		{listener: "again", sni: "old.example", alpn: "h2", route: "old", step: "the member is offered h3, and if it chooses one, the client is refused", path: "copy"},
		{listener: "again", sni: "old.example", route: "old", step: "the member is offered h3", path: "copy"},
		{listener: "clear", sni: "old.example", alpn: "h2", route: "old", step: "the member is offered h3", path: "copy"},
		{listener: "clear", alpn: "h2", route: "default", step: "the member is offered no protocol", path: "copy"},
		{listener: "plain", name: "a", route: "default", step: "is not asked", path: "copy"},
	} {
		m := route.Meta{Client: netip.MustParseAddr("192.0.2.1"), SNI: c.sni, ALPN: strings.Fields(c.alpn)}
		if c.name != "" {
			m.Names = certs.IdentityNamed(c.name).Matches
		}
		e, err := explain(cfg, c.listener, 0, func(spec.Endpoint, string, *spec.Destination) string { return "" }, m, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if e.Route != c.route || !strings.Contains(strings.Join(e.Steps, "\n"), c.step) || !strings.HasPrefix(e.Path, c.path) || !strings.HasPrefix(e.Refused, c.fail) || (c.fail == "") != (e.Refused == "") {
			t.Errorf("%+v: %+v", c, e)
		}
	}
}

// Where packages have no configuration, whoever named none is told how to, and where to find the name.
func TestNoPackagedConfiguration(t *testing.T) {
	_, missing := os.ReadFile(filepath.Join(t.TempDir(), "penstock.yaml"))
	if text := explainNoPackaged(missing, nil).Error(); !strings.HasPrefix(text, "without -c: open ") || !strings.HasSuffix(text, "; allowed: -c FILE, which penstock status names for a running daemon") {
		t.Error(text)
	}
	if err := explainNoPackaged(missing, []string{"a.yaml"}); err != missing {
		t.Error(err)
	}
}
