package offline

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/route"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// What is said of connection IDs: the vectors of the draft, at the members that they name.
func TestExplainConnectionID(t *testing.T) {
	cfg, err := config.Parse("f", []byte(`
listeners:
  quic:
    listen: udp://:443
    routes: [{name: inside, from: 10.0.0.0/8, to: inside}]
    to: servers
  tcp: {listen: "tcp://:443", to: "tcp://10.0.0.9:1"}
groups:
  inside: {quic: {ids: cloud}, members: [{name: i, to: "udp://10.0.0.1:1", quic-server-id: "0x1122334455667788"}]}
  servers:
    quic: {ids: [{config: 0, server-id: 3, nonce: 4, key: 8f95f09245765f80256934e50c66207f}, {config: 1, server-id: 5, nonce: 5}]}
    members: [{name: a, to: "udp://10.0.0.2:1", quic-server-id: "ed793a"}, {name: b, to: "udp://10.0.0.3:1", quic-server-id: "350d28b420"}]
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ listener, from, id, want string }{
		{"quic", "192.0.2.1", "0720b1d07b359d3c", "group servers: yes: configuration 0, server ID 0xed793a"},
		{"quic", "192.0.2.1", "2a350d28b42003487d970b", "group servers: yes: configuration 1, server ID 0x350d28b420"},
		{"quic", "192.0.2.1", "2a350d28b52003487d970b", "server ID 0x350d28b520, which no member has"},
		{"quic", "192.0.2.1", "e0350d28b42003487d970b", "it names no server: the client goes to the member that has its connection if"},
		{"quic", "192.0.2.1", "1f1122334455667788", "route inside: no: from does not have the client's address"},
		{"quic", "10.1.2.3", "1f1122334455667788", "group inside: yes: cloud, server ID 0x1122334455667788"},
		{"tcp", "10.1.2.3", "1f1122334455667788", "the listener has streams"},
	} {
		id, _ := hex.DecodeString(c.id)
		e, err := explain(cfg, c.listener, 0, func(spec.Endpoint, string, *spec.Destination) string { return "" }, route.Meta{Client: netip.MustParseAddr(c.from)}, nil, &quicClient{begun: id})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if e.print(&b); !strings.Contains(b.String(), c.want) {
			t.Errorf("%s from %s:\n%s\nwant %q", c.id, c.from, b.String(), c.want)
		}
		if found := strings.Contains(c.want, ": yes: "); found != strings.Contains(b.String(), "the server that the connection ID names") {
			t.Errorf("%s: %s", c.id, b.String())
		}
	}
}
