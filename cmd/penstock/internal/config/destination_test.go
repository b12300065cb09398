package config

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// What is said of a group with a destination: what is missing, what has no effect, and who could use it.
func TestDestination(t *testing.T) {
	const tcp, udp, unix = "listen: 'tcp://192.0.2.1:1'", "listen: 'udp://192.0.2.1:1'", "listen: 'unix:///run/a'"
	for _, c := range []struct{ listener, group, want string }{
		{tcp, "destination: {port: 443, allow: ['*.example.org', one.test]}", ""},
		{tcp, "destination: {by: host, port: 80, allow: one.test, networks: 10.0.0.0/8, timeout: 1s}, retries: 1, mark: 1, timeouts: {connect: 1s}", ""},
		{tcp, "destination: {port: 443}", "the key allow is missing"},
		{tcp, "destination: {allow: one.test}", "the key port is missing"},
		{tcp, "destination: {port: 443, allow: []}", "is empty"},
		{tcp, "destination: {port: 443, allow: 10.0.0.1}", "is an address"},
		{tcp, "destination: {port: 443, allow: '*.'}", "invalid server name"},
		{tcp, "destination: {port: 443, allow: one.test, networks: 10.0.0.1/8}", "beyond its prefix length"},
		{tcp, "destination: {port: 443, allow: one.test}, members: ['echo:']", "either members or a destination"},
		{tcp, "destination: {port: 443, allow: one.test}, balance: first", "has no members"},
		{tcp, "destination: {port: 443, allow: one.test}, check: {tcp: {}}", "has no members"},
		{tcp, "destination: {port: 443, allow: one.test}, queue: {size: 1}", "has no members"},
		{tcp, "destination: {port: 443, allow: '*'}", "open relay: whoever reaches the listener web may connect to port 443 of every host"},
		{tcp + ", allow: 192.0.2.0/24", "destination: {port: 443, allow: '*'}", ""},
		{"listen: 'tcp://127.0.0.1:1'", "destination: {port: 443, allow: '*'}", ""},
		{unix, "destination: {port: 443, allow: '*'}", ""},
		{udp, "destination: {port: 443, allow: one.test}", ""},
		{udp, "destination: {by: host, port: 443, allow: one.test}", "goes by host, which the datagrams"},
		{"listen: 'unixgram:///run/a'", "destination: {port: 443, allow: one.test}", "goes by sni, which the datagrams"},
		{tcp + ", tls: {certificates: [{certificate: /a.pem}]}", "destination: {by: host, port: 80, allow: one.test}", "begin with TLS"},
		{tcp + ", tls: {certificates: [{certificate: /a.pem}]}", "destination: {port: 443, allow: one.test}, tls: true", ""},
		{tcp, "destination: {by: original}", "connect to its own address"},
		{tcp + ", transparent: true", "destination: {by: original, port: 443, networks: 10.0.0.0/8}", ""},
		{udp + ", transparent: true", "destination: {by: original}", ""},
		{"listen: 'tcp://:1', transparent: true", "destination: {by: original}", "clients over IPv4 that REDIRECT or DNAT brings to tcp://:1 have no original destination"},
		{"listen: 'tcp://[::]:1', transparent: true", "destination: {by: original}", "another listener at tcp://0.0.0.0:1 beside this one"},
		{"listen: 'tcp://0.0.0.0:1', transparent: true", "destination: {by: original}", ""},
		{"listen: 'udp://:1', transparent: true", "destination: {by: original}", ""},
		{"listen: 'tcp://:1', transparent: true, to: g}, v4: {listen: 'tcp://0.0.0.0:1', transparent: true", "destination: {by: original}", ""},
		{"listen: 'tcp://:1'", "members: ['tcp://192.0.2.1:1']", ""},
		{tcp + ", proxy-protocol: {from: 192.0.2.0/24}", "destination: {by: original}", ""},
		{tcp + ", transparent: true", "destination: {by: original, allow: one.test}", "with by: original there is no name"},
		{tcp + ", transparent: true", "destination: {by: original, timeout: 1s}", "with by: original there is no name"},
		{tcp, "destination: {by: name, port: 443, allow: one.test}", "sni, host, original"},
	} {
		text := "listeners: {web: {" + c.listener + ", to: g}}\ngroups: {g: {" + c.group + "}}\n"
		source := Source{Paths: []string{"etcd://127.0.0.1:1/a"}, Remote: func(string) (spec.Layer, error) { return spec.Layer{Text: []byte(text)}, nil }}
		_, warnings, err := source.Load()
		got := ""
		if err != nil {
			got = err.Error()
		}
		for _, w := range warnings {
			got += w.Error()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s; %s: %q, want %q", c.listener, c.group, got, c.want)
		}
	}
}

// A change of a destination is told key by key.
func TestDestinationCompared(t *testing.T) {
	read := func(destination string) Diff {
		one, err := Parse("a", []byte("listeners: {web: {listen: 'tcp://:1', to: g}}\ngroups: {g: {destination: {port: 443, allow: [one.test]}}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		other, err := Parse("a", []byte("listeners: {web: {listen: 'tcp://:1', to: g}}\ngroups: {g: {destination: "+destination+"}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return Compare(one, other)
	}
	if d := read("{port: 443, allow: [one.test, two.test], networks: [10.0.0.0/8]}"); len(d.Groups) != 1 || len(d.Groups[0].Changes) != 2 ||
		d.Groups[0].Changes[0].Key != "destination.allow" || d.Groups[0].Changes[1].Key != "destination.networks" {
		t.Errorf("%+v", d.Groups)
	}
}
