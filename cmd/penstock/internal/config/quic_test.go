package config

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// What is said of connection IDs in which no server could be found.
func TestQUIC(t *testing.T) {
	const key = "8f95f09245765f80256934e50c66207f"
	member := func(keys string) string {
		return "members: [{to: 'udp://10.0.0.1:1'" + keys + "}, {to: 'udp://10.0.0.2:1'}]"
	}
	for _, c := range []struct{ group, want string }{
		{"quic: {}, " + member(""), ""},
		{"quic: {learn: false}, " + member(""), ""},
		{"quic: {ids: cloud}, " + member(", quic-server-id: '0x1122334455667788'"), ""},
		{"quic: {ids: [{config: 0, server-id: 3, nonce: 4}, {config: 6, server-id: 4, nonce: 15, key: '" + key + "'}]}, " + member(", quic-server-id: 1122334a"), ""},
		{"quic: {ids: {config: 0, server-id: 3, nonce: 4}}, " + member(", quic-server-id: aabbcc"), "is a mapping"},
		{"quic: {ids: nginx}, " + member(""), "cloud"},
		{"quic: {ids: []}, " + member(""), "is empty"},
		{"quic: {ids: [{server-id: 3, nonce: 4}]}, " + member(""), "the key config is missing"},
		{"quic: {ids: [{config: 7, server-id: 3, nonce: 4}]}, " + member(""), "out of range"},
		{"quic: {ids: [{config: 0, server-id: 16, nonce: 4}]}, " + member(""), "out of range"},
		{"quic: {ids: [{config: 0, server-id: 3, nonce: 3}]}, " + member(""), "out of range"},
		{"quic: {ids: [{config: 0, server-id: 10, nonce: 10}]}, " + member(", quic-server-id: aabbccddeeff00112233"), "no room in a connection ID"},
		{"quic: {ids: [{config: 0, server-id: 3, nonce: 4}, {config: 0, server-id: 4, nonce: 4}]}, " + member(", quic-server-id: aabbcc"), "a second configuration 0"},
		{"quic: {ids: [{config: 0, server-id: 3, nonce: 4, key: abc}]}, " + member(""), "32 hexadecimal digits"},
		{"quic: {ids: [{config: 0, server-id: 3, nonce: 4}]}, " + member(", quic-server-id: aabb"), "has 2 bytes, and ids of the group has no configuration"},
		{"quic: {ids: cloud}, " + member(", quic-server-id: aabb"), "or 8 with ids: cloud"},
		{"quic: {ids: cloud}, " + member(", quic-server-id: 1122334455667788"), "in quotes"},
		{"quic: {ids: cloud}, " + member(", quic-server-id: 'xx'"), "invalid server ID"},
		{"quic: {ids: cloud}, members: [{to: 'udp://10.0.0.1:1', name: a, quic-server-id: 'aabbccddeeff0011'}, {to: 'udp://10.0.0.2:1', quic-server-id: '0xAABBCCDDEEFF0011'}]", "the member a already has this ID"},
		{"quic: {ids: cloud}, " + member(""), "has no effect: no member has a quic-server-id"},
		{"quic: {}, " + member(", quic-server-id: aabb"), "has no effect: the group has no quic with ids"},
		{member(", quic-server-id: aabb"), "has no effect: the group has no quic with ids"},
		{"check: {quic: {tls: true}}, " + member(""), ""},
		{"check: {quic: {tls: false}}, " + member(""), ""},
		{"check: {quic: {tls: {server-name: a.test, alpn: [doq]}}}, " + member(""), ""},
		{"check: {quic: {tls: {starttls: postgresql}}}, " + member(""), "QUIC has its TLS from the beginning"},
		{"check: {quic: {tls: {key: /a}}}, " + member(""), "a key without its certificate"},
		{"check: {udp: {send: a, tls: true}}, " + member(""), "tls"},
		{"check: {quic: {tls: true}}, discover: [{srv: _a._udp.test}], " + member(""), "server-name in tls"},
	} {
		text := "listeners: {web: {listen: 'udp://192.0.2.1:1', to: g}}\ngroups: {g: {" + c.group + "}}\n"
		source := Source{Paths: []string{"etcd://127.0.0.1:1/a"}, Remote: func(string) (spec.Layer, error) { return spec.Layer{Text: []byte(text)}, nil }}
		_, warnings, err := source.Load()
		got := ""
		if err != nil {
			got = err.Error()
		}
		for _, w := range warnings {
			got += w.Error() + "\n"
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s:\n%s\nwant %q", c.group, got, c.want)
		}
	}
}

// Whoever compares two configurations reads that a key has changed, and not what it is.
func TestQUICKeyIsHidden(t *testing.T) {
	const key = "8f95f09245765f80256934e50c66207f"
	q := &spec.QUIC{Learn: true, IDs: []spec.QUICLayout{{Config: 1, ServerID: 3, Nonce: 4, Key: "\x8f\x95\xf0\x92\x45\x76\x5f\x80\x25\x69\x34\xe5\x0c\x66\x20\x7f"}}}
	got := quicKey.show(&spec.Group{QUIC: q})
	if want := "{ids: [{config: 1, server-id: 3, nonce: 4, key: sha256:0f5b"; !strings.HasPrefix(got, want[:len(want)-4]) || strings.Contains(got, key) {
		t.Errorf("%s", got)
	}
}
