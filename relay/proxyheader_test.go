package relay

import (
	"net/netip"
	"strings"
	"testing"
)

// Headers of both versions, byte for byte, as haproxy's doc/proxy-protocol.txt describes them.
func TestAppendProxyHeader(t *testing.T) {
	at := func(n Network, s string) Addr { return Addr{Network: n, AddrPort: netip.MustParseAddrPort(s)} }
	v4, v4b := at(TCP, "192.0.2.1:258"), at(TCP, "192.0.2.2:443")
	v6, zone, mapped := at(TCP, "[2001:db8::1]:258"), at(TCP, "[fe80::1%3]:258"), at(TCP, "[::ffff:192.0.2.1]:258")
	const signature = "\r\n\r\n\x00\r\nQUIT\n"
	const ip4, to4 = "\xc0\x00\x02\x01", "\xc0\x00\x02\x02"
	const mapped4, mapped4b = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff" + ip4, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff" + to4
	const ip6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"
	const local6 = "\xfe\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"
	const ports = "\x01\x02\x01\xbb"
	sun := func(s string) string { return s + strings.Repeat("\x00", 108-len(s)) }
	for _, c := range []struct {
		version int
		a, b    Addr
		want    string
	}{
		{1, v4, v4b, "PROXY TCP4 192.0.2.1 192.0.2.2 258 443\r\n"},
		{1, mapped, v4b, "PROXY TCP4 192.0.2.1 192.0.2.2 258 443\r\n"},
		{1, v6, v4b, "PROXY TCP6 2001:db8::1 ::ffff:192.0.2.2 258 443\r\n"},
		{1, at(UDP, "192.0.2.1:258"), at(UDP, "192.0.2.2:443"), "PROXY UNKNOWN\r\n"},
		{1, Addr{Network: Unix}, Addr{Network: Unix, Path: "/s"}, "PROXY UNKNOWN\r\n"},
		{1, Addr{}, Addr{}, "PROXY UNKNOWN\r\n"},
		{2, v4, v4b, signature + "\x21\x11\x00\x0c" + ip4 + to4 + ports},
		{2, mapped, v4b, signature + "\x21\x11\x00\x0c" + ip4 + to4 + ports},
		{2, v6, v6, signature + "\x21\x21\x00\x24" + ip6 + ip6 + "\x01\x02\x01\x02"},
		{2, zone, v4b, signature + "\x21\x21\x00\x24" + local6 + mapped4b + ports},
		{2, v4, v6, signature + "\x21\x21\x00\x24" + mapped4 + ip6 + "\x01\x02\x01\x02"},
		{2, at(UDP, "192.0.2.1:258"), at(UDP, "192.0.2.2:443"), signature + "\x21\x12\x00\x0c" + ip4 + to4 + ports},
		{2, Addr{Network: Unix, Path: "@a"}, Addr{Network: Unix, Path: "/s"}, signature + "\x21\x31\x00\xd8" + sun("\x00a") + sun("/s")},
		{2, Addr{Network: Unixgram, Path: "@"}, Addr{Network: Unixgram, Path: strings.Repeat("x", 120)}, signature + "\x21\x32\x00\xd8" + sun("@") + strings.Repeat("x", 108)},
		{2, v4, at(UDP, "192.0.2.2:443"), signature + "\x20\x00\x00\x00"},
		{2, v4, Addr{Network: TCP}, signature + "\x20\x00\x00\x00"},
	} {
		if got := string(AppendProxyHeader([]byte("before"), c.version, c.a, c.b)); got != "before"+c.want {
			t.Errorf("version %d, %v to %v: %q, want %q", c.version, c.a, c.b, got, c.want)
		}
	}
}
