package offline

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/route"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/quichello"
)

// initialOfRFC returns an example of a client's Initial packet, for example.com: RFC 9001, A.2, or RFC 9369, A.2.
func initialOfRFC(tb testing.TB, name string) string {
	tb.Helper()
	text, err := os.ReadFile("../../../../quichello/testdata/" + name + "-a2.hex")
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text)), "")
}

// What the relay makes of files with datagrams.
func TestExplainQUIC(t *testing.T) {
	cfg, err := config.Parse("f", []byte(`
listeners:
  named: {listen: "udp://:443", routes: [{name: site, sni: example.com, to: servers}], to: others}
  strict: {listen: "udp://:444", routes: [{name: site, sni: other.test, to: servers}]}
  all: {listen: "udp://:445", to: servers}
  tcp: {listen: "tcp://:443", to: "tcp://10.0.0.9:1"}
groups:
  servers:
    quic: {ids: [{config: 4, server-id: 3, nonce: 4}, {config: 1, server-id: 5, nonce: 5}]}
    members: [{name: a, to: "udp://10.0.0.2:1", quic-server-id: "94c8f0"}, {name: first, to: "udp://10.0.0.2:2", quic-server-id: "94c8f1"}, {name: b, to: "udp://10.0.0.3:1", quic-server-id: "350d28b420"}]
  others: {members: ["udp://10.0.0.4:1"]}
`))
	if err != nil {
		t.Fatal(err)
	}
	one, two := initialOfRFC(t, "rfc9001"), initialOfRFC(t, "rfc9369")
	raw, _ := hex.DecodeString(one)
	forged := one[:2000] + "00" + one[2002:]
	for _, c := range []struct {
		listener, file, sni string
		want                []string
	}{
		{"named", one, "example.com", []string{"datagram 1: 1200 bytes, Initial, version 1, to connection ID 8394c8f03e515708, from (empty): the ClientHello is complete", "sniff: a ClientHello for example.com", "route site: yes", "group     servers"}},
		{"named", string(raw), "example.com", []string{"version 1", "connection ID: group servers: yes: configuration 4, server ID 0x94c8f0: the client goes to member a if that takes new flows", "group     servers"}},
		{"named", "# of a client\n\n" + two + "\n40414243\n00\n", "example.com", []string{"version 2", "datagrams 2 to 3: not read", "group     servers"}},
		{"strict", one, "example.com", []string{"refused   no-route"}},
		{"all", one, "example.com", []string{"no route that may take this client depends on its name", "group     servers"}},
		{"named", forged, "", []string{"it cannot be decrypted", "refused   quic-invalid"}},
		{"all", forged, "", []string{"it cannot be decrypted", "group     servers"}},
		{"named", one[:1000], "", []string{"less than 1200 bytes", "refused   quic-invalid"}},
		{"named", "ff6b3343ce0401020304050607", "", []string{"not QUIC", "group     others"}},
		{"named", "c0ff00001d0401020304020506" + strings.Repeat("00", 20), "", []string{"unknown version, version 0xff00001d, to connection ID 01020304, from 0506", "the client has no name", "group     others"}},
		{"named", "40e0350d28b42003487d970b20", "", []string{"short header", "it names no server", "group     others"}},
		{"named", "40" + "2a350d28b42003487d970b20", "", []string{"short header, of a connection that has begun before", "yes: configuration 1, server ID 0x350d28b420", "the server that the connection ID names"}},
		{"named", "e000000001" + "0b2a350d28b42003487d970b" + "020506" + "0010" + strings.Repeat("00", 16), "", []string{"Handshake, version 1, to connection ID 2a350d28b42003487d970b, from 0506", "yes: configuration 1", "the server that the connection ID names"}},
		{"tcp", one, "", []string{"the listener has streams"}},
	} {
		datagrams, err := parseDatagrams([]byte(c.file))
		if err != nil {
			t.Errorf("%.20q: %v", c.file, err)
			continue
		}
		q := readQUIC(datagrams)
		e, err := explain(cfg, c.listener, 0, func(spec.Endpoint, string, *spec.Destination) string { return "" }, route.Meta{Client: netip.MustParseAddr("192.0.2.1")}, nil, q)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		e.print(&b)
		for _, want := range c.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s, %.20q:\n%s\nwant %q", c.listener, c.file, b.String(), want)
			}
		}
		if c.listener != "tcp" && e.QUIC.ServerName != c.sni {
			t.Errorf("server name %q, want %q", e.QUIC.ServerName, c.sni)
		}
	}
}

// What cannot be read is told, and how it could be.
func TestQUICFilesWrong(t *testing.T) {
	for file, want := range map[string]string{
		"":                 "no datagram; allowed: the bytes of one UDP payload",
		"# nothing\n":      "no datagram",
		"c0\nxyz\n":        "line 2 does not consist of pairs of hexadecimal digits; allowed: ",
		"\x0a\x0d\x0d\x0a": "a capture of packets; allowed: ",
		"\xd4\xc3\xb2\xa1": "tshark -r FILE -T fields -e udp.payload",
		"\xc0" + strings.Repeat("\x00", maxDatagram): "and a datagram has at most 65507",
		strings.Repeat("c0", maxDatagram+1):          "line 1 has 65508 bytes",
		strings.Repeat("c0\n", 33):                   "more than 32 datagrams",
		strings.Repeat("c", maxQUICFile+1):           "more than 1048576 bytes",
	} {
		if _, err := parseDatagrams([]byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", file, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "hello")
	if err := os.WriteFile(file, []byte("c0:ff"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]Explain{
		"no such file":             {QUIC: file + "s"},
		"--quic without them":      {QUIC: file, CID: "0102"},
		"--cid: 0g does not":       {CID: "0g"},
		"--cid: 21 bytes; a conne": {CID: strings.Repeat("00", 21)},
	} {
		if _, err := c.quicClient(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	if q, err := (&Explain{QUIC: file}).quicClient(); err != nil || len(q.steps) != 1 {
		t.Errorf("%+v, %v", q, err)
	}
}

// Whatever a file has, what is read of it is bounded, and explained.
func FuzzDatagrams(f *testing.F) {
	raw, _ := hex.DecodeString(initialOfRFC(f, "rfc9001"))
	for _, seed := range []string{initialOfRFC(f, "rfc9369"), string(raw), "# a\n40:41\n0xc0\n", "\xd4\xc3\xb2\xa1"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		datagrams, err := parseDatagrams(file)
		if err != nil {
			return
		}
		if n := len(datagrams); n == 0 || n > quichello.MaxDatagrams {
			t.Fatalf("%d datagrams", n)
		}
		q := readQUIC(datagrams)
		if len(q.steps) == 0 || len(q.steps) > len(datagrams)+1 || q.ServerName != "" && (q.more || q.wrong != nil) {
			t.Fatalf("%+v", q)
		}
	})
}
