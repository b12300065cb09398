package spec

import (
	"net/netip"
	"testing"
)

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1":        "192.0.2.1",
		"::ffff:192.0.2.1": "192.0.2.1",
		"fe80::1%eth0":     "fe80::1",
		"2001:db8::1":      "2001:db8::1",
	} {
		if got := CanonicalAddr(netip.MustParseAddr(in)); got != netip.MustParseAddr(want) {
			t.Errorf("%s: %v, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"192.0.2.1/24":         "192.0.2.0/24",
		"::ffff:192.0.2.1/120": "192.0.2.0/24",
		"::ffff:0.0.0.0/96":    "0.0.0.0/0",
		"::ffff:0.0.0.0/80":    "::/80",
		"2001:db8::1/32":       "2001:db8::/32",
		"::/0":                 "::/0",
	} {
		if got := CanonicalPrefix(netip.MustParsePrefix(in)); got != netip.MustParsePrefix(want) {
			t.Errorf("%s: %v, want %s", in, got, want)
		}
	}
	if CanonicalAddr(netip.Addr{}).IsValid() {
		t.Error("no address has become one")
	}
}
