package app

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/route"
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
		{file: "database", listener: "postgres", from: "10.0.0.77"},
		{file: "dns-front", listener: "dns-udp", from: "2001:db8::1"},
		{file: "tcp-to-unix", listener: "web", from: "198.51.100.1"},
	} {
		cfg, _, err := config.Load(filepath.Join("../../../../docs/examples", c.file+".yaml"), rules...)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "$ %s: %s from %s, %q %q\n", c.file, c.listener, c.from, c.sni, c.alpn)
		e, err := explain(cfg, c.listener, func(spec.Endpoint, string) string { return "" }, route.Meta{Client: netip.MustParseAddr(c.from), SNI: c.sni, ALPN: c.alpn})
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

// With --lookup explain says what DNS has of a name, and that it has nothing.
func TestExplainLookup(t *testing.T) {
	for url, want := range map[string]string{
		"tcp://localhost:80": ": currently tcp://", "tcp://no-such-host.invalid:80": ": lookup failed: ", "tcp://127.0.0.1:80": "",
	} {
		to, err := spec.ParseUpstream(url)
		if err != nil {
			t.Fatal(err)
		}
		if got := lookedUp(to, ""); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}
