package api

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestAddr(t *testing.T) {
	for text, want := range map[string]Addr{
		"":                      {},
		"tcp://10.0.0.1:80":     {Network: "tcp", IP: netip.MustParseAddrPort("10.0.0.1:80")},
		"udp://[fe80::1%e0]:53": {Network: "udp", IP: netip.MustParseAddrPort("[fe80::1%e0]:53")},
		"unix:///run/a b.sock":  {Network: "unix", Path: "/run/a b.sock"},
		"unix:@name":            {Network: "unix", Path: "@name"},
		"unix:":                 {Network: "unix"},
		"unixgram:@name":        {Network: "unixgram", Path: "@name"},
		"echo:":                 {Network: "echo"},
		"discard:":              {Network: "discard"},
	} {
		var got Addr
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want || got.String() != text {
			t.Errorf("%q is %+v, %q, %v", text, got, got.String(), err)
		}
	}
	for _, text := range []string{"tcp://host:80", "tcp:", "10.0.0.1:80", "echo:x", "ftp://10.0.0.1:80", "tcp://10.0.0.1"} {
		var got Addr
		if err := got.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "allowed:") || got != (Addr{}) {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
}

func FuzzAddr(f *testing.F) {
	for _, s := range []string{"", "tcp://10.0.0.1:80", "udp://[::1]:53", "unix:///a", "unix:@a", "unix:a", "echo:", "tcp://", "unix:////"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var a, b Addr
		if a.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := b.UnmarshalText([]byte(a.String())); err != nil || a != b {
			t.Errorf("%q: %+v, then %q: %+v, %v", text, a, a.String(), b, err)
		}
	})
}

func TestClientAddress(t *testing.T) {
	for address, good := range map[string]bool{
		"unix:///run/a.sock": true, "tcp://127.0.0.1:9180": true,
		"": false, "unix:a": false, "unix://a": false, "tcp://": false, "http://127.0.0.1": false, "/run/a.sock": false,
	} {
		if c, err := NewClient(address, ""); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "allowed:") {
			t.Errorf("%q: %v, %v", address, c, err)
		}
	}
}
