package destination

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
)

func TestRefuses(t *testing.T) {
	for addr, want := range map[string]string{
		"93.184.216.34": "", "8.8.8.8": "", "1.1.1.1": "", "100.63.255.255": "", "100.128.0.0": "", "172.15.0.1": "", "172.32.0.1": "", "192.167.1.1": "", "198.17.1.1": "", "223.255.255.255": "", "168.63.129.17": "",
		"2606:2800:220:1::34": "", "2a00:1450::1": "", "64:ff9b::8.8.8.8": "", "2002:808:808::1": "", "::ffff:8.8.8.8": "",

		"0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "::": "unspecified",
		"127.0.0.1": "loopback", "127.255.255.255": "loopback", "::1": "loopback",
		"10.0.0.1": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.0.1": "private", "fc00::1": "private", "fdff::1": "private",
		"169.254.1.1": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local", "febf::1": "link-local",
		"100.64.0.1": "shared", "100.127.255.255": "shared",
		"192.0.2.1": "documentation", "198.51.100.1": "documentation", "203.0.113.1": "documentation", "2001:db8::1": "documentation", "3fff::1": "documentation",
		"198.18.0.1": "benchmarks", "198.19.255.255": "benchmarks",
		"224.0.0.1": "multicast", "239.255.255.255": "multicast", "ff02::1": "multicast",
		"192.0.0.1": "reserved", "192.88.99.1": "reserved", "240.0.0.1": "reserved", "255.255.255.255": "reserved", "2001::1": "reserved", "2001:1ff::1": "reserved", "fec0::1": "reserved", "100::1": "reserved", "64:ff9b:1::a00:1": "reserved", "4000::1": "reserved", "5f00::1": "reserved",

		"169.254.169.254": "cloud metadata", "169.254.170.2": "cloud metadata", "100.100.100.200": "cloud metadata", "168.63.129.16": "cloud metadata", "192.0.0.192": "cloud metadata", "fd00:ec2::254": "cloud metadata", "fd20:ce::254": "cloud metadata",

		"::ffff:169.254.169.254": "cloud metadata", "::ffff:10.0.0.1": "private", "::ffff:127.0.0.1": "loopback",
		"64:ff9b::169.254.169.254": "it stands for 169.254.169.254, which is cloud metadata", "64:ff9b::10.0.0.1": "it stands for 10.0.0.1, which is private",
		"2002:a9fe:a9fe::1": "it stands for 169.254.169.254, which is cloud metadata", "2002:7f00:1::": "it stands for 127.0.0.1, which is loopback", "2002:c0a8:101::1": "it stands for 192.168.1.1",
		"::169.254.169.254": "it stands for 169.254.169.254, which is cloud metadata", "::8.8.8.8": "", "::ffff:0:10.0.0.1": "it stands for 10.0.0.1",
		"2a00::5efe:a00:1": "it stands for 10.0.0.1, which is private", "2a00::200:5efe:a9fe:a9fe": "it stands for 169.254.169.254", "2a00::5efe:808:808": "",
	} {
		why := Refuses(netip.MustParseAddr(addr), nil)
		if why == "" != (want == "") || !strings.HasPrefix(why, want) {
			t.Errorf("%s: %q, want %q", addr, why, want)
		}
	}
	if Refuses(netip.Addr{}, nil) == "" {
		t.Error("no address is none to connect to")
	}
}

// What the configuration lets in is let in, and no more; metadata only by its own address.
func TestNetworksLetIn(t *testing.T) {
	for _, c := range []struct {
		addr, let string
		in        bool
	}{
		{"10.1.2.3", "10.0.0.0/8", true}, {"10.1.2.3", "10.1.0.0/16", true}, {"10.2.2.3", "10.1.0.0/16", false}, {"::ffff:10.1.2.3", "10.0.0.0/8", true},
		{"64:ff9b::10.1.2.3", "10.0.0.0/8", true}, {"64:ff9b::10.1.2.3", "64:ff9b::/96", true}, {"fd00::1", "fd00::/8", true}, {"127.0.0.1", "127.0.0.0/8", true},
		{"169.254.169.254", "169.254.0.0/16", false}, {"169.254.169.254", "0.0.0.0/0", false}, {"169.254.169.254", "169.254.169.254/32", true}, {"::ffff:169.254.169.254", "::/0", false},
		{"64:ff9b::169.254.169.254", "64:ff9b::/96", false}, {"64:ff9b::169.254.169.254", "::/0", false}, {"64:ff9b::169.254.169.254", "169.254.169.254/32", true},
		{"fd00:ec2::254", "fd00::/8", false}, {"fd00:ec2::254", "fd00:ec2::254/128", true}, {"168.63.129.16", "168.63.0.0/16", false},
	} {
		if why := Refuses(netip.MustParseAddr(c.addr), []netip.Prefix{netip.MustParsePrefix(c.let)}); (why == "") != c.in {
			t.Errorf("%s with %s: %q", c.addr, c.let, why)
		}
	}
}

// However an IPv4 address is written as an IPv6 address, it is refused if it is refused as itself.
func FuzzRefuses(f *testing.F) {
	f.Add(uint32(0x0a000001))
	f.Add(uint32(0xa9fea9fe))
	f.Add(uint32(0x08080808))
	f.Fuzz(func(t *testing.T, n uint32) {
		var v4 [4]byte
		binary.BigEndian.PutUint32(v4[:], n)
		a := netip.AddrFrom4(v4)
		refused := Refuses(a, nil) != ""
		if std := a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified(); std && !refused {
			t.Errorf("%v is not refused", a)
		}
		for _, form := range []string{"::ffff:0:0", "64:ff9b::", "::ffff:0:0:0"} {
			b := netip.MustParseAddr(form).As16()
			copy(b[12:], v4[:])
			if got := Refuses(netip.AddrFrom16(b), nil) != ""; got != refused {
				t.Errorf("%v: %v, and %v: %v", a, refused, netip.AddrFrom16(b), got)
			}
		}
		b := netip.MustParseAddr("2002::1").As16()
		copy(b[2:6], v4[:])
		if got := Refuses(netip.AddrFrom16(b), nil) != ""; got != refused {
			t.Errorf("%v: %v, and %v: %v", a, refused, netip.AddrFrom16(b), got)
		}
	})
}
