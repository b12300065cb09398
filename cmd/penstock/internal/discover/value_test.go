package discover

import (
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

func TestMemberValues(t *testing.T) {
	for _, c := range []struct {
		value, addr string
		more        upstream.Target
	}{
		{"10.0.0.7:80", "tcp://10.0.0.7:80", upstream.Target{Weight: 1}},
		{" tcp://[2001:db8::1]:443\n", "tcp://[2001:db8::1]:443", upstream.Target{Weight: 1}},
		{`{"to":"10.0.0.7:80"}`, "tcp://10.0.0.7:80", upstream.Target{Weight: 1}},
		{`{"to":"tcp://10.0.0.7:80","weight":3,"zone":"a","priority":2,"backup":true,"draining":true,"metadata":{"b":2.50,"a":"x"},"other":[1]}`, "tcp://10.0.0.7:80",
			upstream.Target{Weight: 3, Zone: "a", Priority: 2, Backup: true, Draining: true, Metadata: `{"a":"x","b":2.50}`}},
		{`{"to":"10.0.0.7:80","check-port":8080,"check-address":"10.0.1.7"}`, "tcp://10.0.0.7:80", upstream.Target{Weight: 1, CheckPort: 8080, CheckAddress: netip.MustParseAddr("10.0.1.7")}},
		{`{"to":"10.0.0.7:80","quic-server-id":"0x0AFf"}`, "tcp://10.0.0.7:80", upstream.Target{Weight: 1, QUICServerID: "\x0a\xff"}},
		{`{"to":"10.0.0.7:80","check-address":"::ffff:10.0.1.7"}`, "tcp://10.0.0.7:80", upstream.Target{Weight: 1, CheckAddress: netip.MustParseAddr("10.0.1.7")}},
	} {
		got, problem := parseMember("m", []byte(c.value), spec.TCP)
		text := got.Addr.String()
		c.more.Name, c.more.Addr = "m", got.Addr
		if problem != "" || text != c.addr || got != c.more {
			t.Errorf("%s: %+v, %q", c.value, got, problem)
		}
	}
	if got, problem := parseMember("m", []byte("10.0.0.7:53"), spec.UDP); problem != "" || got.Addr.String() != "udp://10.0.0.7:53" {
		t.Errorf("%+v, %q", got, problem)
	}
	for value, want := range map[string]string{
		"":                                    "invalid address",
		"10.0.0.7":                            "no port",
		"example.org:80":                      "not an IP address",
		"10.0.0.7:80-90":                      "not an IP address and one port",
		"udp://10.0.0.7:80":                   "not a tcp address",
		"unix:///run/x":                       "not a tcp address",
		"discard:":                            "invalid address",
		"{":                                   "not the JSON",
		"{}":                                  `"to" is missing`,
		`{"to":5}`:                            "to is a number",
		`{"to":"10.0.0.7:80","weight":0}`:     "weight 0",
		`{"to":"10.0.0.7:80","weight":1e9}`:   "not the JSON",
		`{"to":"10.0.0.7:80","priority":-1}`:  "priority -1",
		`{"to":"10.0.0.7:80","check-port":0}`: `check-port "0"`,
		`{"to":"10.0.0.7:80","check-port":65536}`:                                   `check-port "65536"`,
		`{"to":"10.0.0.7:80","check-port":1.5}`:                                     `check-port "1.5"`,
		`{"to":"10.0.0.7:80","check-address":"localhost"}`:                          `check-address "localhost"`,
		`{"to":"10.0.0.7:80","check-address":"fe80::1%a"}`:                          "check-address",
		`{"to":"10.0.0.7:80","check-address":"0.0.0.0"}`:                            "check-address",
		`{"to":"10.0.0.7:80","check-address":"::ffff:0.0.0.0"}`:                     "check-address",
		`{"to":"10.0.0.7:80","quic-server-id":"aab"}`:                               `quic-server-id "aab": not pairs of hexadecimal digits`,
		`{"to":"10.0.0.7:80","quic-server-id":""}`:                                  "of 1 to 15 bytes",
		`{"to":"10.0.0.7:80","quic-server-id":"` + strings.Repeat("00", 16) + `"}`:  "of 1 to 15 bytes",
		`{"to":"10.0.0.7:80","quic-server-id":12}`:                                  "quic-server-id is a number",
		`{"to":"10.0.0.7:80","zone":"a\nb"}`:                                        "control characters",
		`{"to":"10.0.0.7:80","metadata":[]}`:                                        "metadata is not",
		`{"to":"10.0.0.7:80","metadata":{"a":"` + strings.Repeat("x", 2000) + `"}}`: "metadata has more",
		strings.Repeat("x", 5000):                                                   "more than 4096 bytes",
		"\xff":                                                                      "not UTF-8",
	} {
		if _, problem := parseMember("m", []byte(value), spec.TCP); !strings.Contains(problem, want) {
			t.Errorf("%.40q: %q, want %q", value, problem, want)
		}
	}
	for _, name := range []string{"", "a\n", "\xff", strings.Repeat("x", 300)} {
		if _, problem := parseMember(name, []byte("10.0.0.7:80"), spec.TCP); problem == "" {
			t.Errorf("%q is a name", name)
		}
	}
}

// FuzzMember: what is taken has an address of the network and is within all bounds, and problems stand in one line.
func FuzzMember(f *testing.F) {
	for _, s := range []string{"10.0.0.7:80", "{", `{"to":"tcp://10.0.0.7:80","weight":3,"zone":"a","priority":2,"backup":true,"draining":true,"metadata":{"b":2}}`, "\xff", "unix:@x", "[::1%lo]:1", `{"to":"10.0.0.7:80","quic-server-id":"0x0a0b"}`} {
		f.Add("name", []byte(s))
	}
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		m, problem := parseMember(name, value, spec.TCP)
		switch {
		case problem != "":
			if strings.ContainsAny(problem, "\n\r") || !utf8.ValidString(problem) {
				t.Errorf("%q", problem)
			}
		case m.Name != name || m.Addr.Network != spec.TCP || !m.Addr.AddrPort.IsValid() || m.Weight < 1 || m.Weight > 256 || m.Priority < 0 || m.Priority > maxPriority ||
			len(m.Metadata) > upstream.MaxMetadata || len(m.Zone) > maxZone:
			t.Errorf("%+v", m)
		}
	})
}

// U+FFFD stands for what is not UTF-8 in texts that pass through JSON, as the last good answers do.
func TestReplacementCharacter(t *testing.T) {
	for name, value := range map[string]string{"a\ufffd": "10.0.0.7:80", "a": `{"to":"10.0.0.7:80","zone":"\ufffd"}`, "b": `{"to":"10.0.0.7:80","zone":"\ud800"}`} {
		if _, problem := parseMember(name, []byte(value), spec.TCP); problem == "" {
			t.Errorf("%q: %s is a member", name, value)
		}
	}
}
