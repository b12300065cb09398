package sys

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// control builds control messages as the kernel writes them.
func control(level, typ int32, data []byte, rest ...byte) []byte {
	b := make([]byte, 0, ControlSize)
	b, d := appendControl(b, level, typ, len(data))
	copy(d, data)
	return append(b, rest...)
}

func word(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func TestParseControl(t *testing.T) {
	ip6 := netip.MustParseAddr("2001:db8::7").As16()
	many4, many6 := netip.MustParseAddr("::ffff:10.255.255.255").As16(), netip.MustParseAddr("ff02::1").As16()
	group4 := netip.MustParseAddr("::ffff:224.0.0.1").As16()
	in6 := netip.MustParseAddr("::ffff:192.0.2.9").As16()
	for _, row := range []struct {
		name string
		b    []byte
		want Control
	}{
		{"nothing", nil, Control{}},
		{"gro", control(unix.SOL_UDP, unix.UDP_GRO, word(1200)), Control{Segment: 1200}},
		{"gro as a short is not what the kernel writes", control(unix.SOL_UDP, unix.UDP_GRO, []byte{1, 2}), Control{}},
		{"tos", control(unix.SOL_IP, unix.IP_TOS, []byte{0xb9}), Control{TOS: 0xb9}},
		{"traffic class", control(unix.SOL_IPV6, unix.IPV6_TCLASS, word(3)), Control{TOS: 3}},
		{"drops", control(unix.SOL_SOCKET, unix.SO_RXQ_OVFL, word(1<<31)), Control{Drops: 1 << 31, HasDrops: true}},
		{"pktinfo", control(unix.SOL_IP, unix.IP_PKTINFO, append(word(4), 10, 0, 0, 9, 10, 0, 0, 9)),
			Control{Interface: 4, Local: netip.MustParseAddr("10.0.0.9")}},
		{"pktinfo of a broadcast", control(unix.SOL_IP, unix.IP_PKTINFO, append(word(4), 10, 0, 0, 9, 10, 255, 255, 255)),
			Control{Interface: 4, Local: netip.MustParseAddr("10.0.0.9"), ToMany: true}},
		{"pktinfo of an IPv4 group on a dual-stack socket", control(unix.SOL_IPV6, unix.IPV6_PKTINFO, append(group4[:], word(2)...)),
			Control{Interface: 2, ToMany: true}},
		{"pktinfo of a broadcast on a dual-stack socket", control(unix.SOL_IPV6, unix.IPV6_PKTINFO, append(many4[:], word(2)...),
			control(unix.SOL_IP, unix.IP_PKTINFO, append(word(2), 10, 0, 0, 9, 10, 255, 255, 255))...),
			Control{Interface: 2, Local: netip.MustParseAddr("10.0.0.9"), ToMany: true}},
		{"the same the other way round", control(unix.SOL_IP, unix.IP_PKTINFO, append(word(2), 10, 0, 0, 9, 10, 255, 255, 255),
			control(unix.SOL_IPV6, unix.IPV6_PKTINFO, append(many4[:], word(2)...))...),
			Control{Interface: 2, Local: netip.MustParseAddr("10.0.0.9"), ToMany: true}},
		{"pktinfo of a group", control(unix.SOL_IPV6, unix.IPV6_PKTINFO, append(many6[:], word(2)...)), Control{Interface: 2, ToMany: true}},
		{"pktinfo of IPv6", control(unix.SOL_IPV6, unix.IPV6_PKTINFO, append(ip6[:], word(2)...)),
			Control{Interface: 2, Local: netip.MustParseAddr("2001:db8::7")}},
		{"pktinfo of 4-in-6", control(unix.SOL_IPV6, unix.IPV6_PKTINFO, append(in6[:], word(2)...)),
			Control{Interface: 2, Local: netip.MustParseAddr("192.0.2.9")}},
		{"time of 32 bits", control(unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, append(word(5), word(6)...)), Control{Sec: 5, Nsec: 6}},
		{"unknown, then known", control(unix.SOL_SOCKET, 9999, []byte{1, 2, 3}, control(unix.SOL_UDP, unix.UDP_GRO, word(9))...),
			Control{Segment: 9}},
		{"length beyond the end", control(unix.SOL_UDP, unix.UDP_GRO, word(9))[:hdrLen+2], Control{}},
		{"length below the header", make([]byte, 64), Control{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := ParseControl(row.b); got != row.want {
				t.Errorf("got %+v\nwant %+v", got, row.want)
			}
		})
	}
}

// TestAppendReadsBack checks the messages of the sending side with x/sys's parser, so that writer
// and reader cannot share a mistake.
func TestAppendReadsBack(t *testing.T) {
	local4, local6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	b := make([]byte, 0, ControlSize)
	b = AppendSegment(b, 1200)
	b = AppendTOS(b, false, 1)
	b = AppendTOS(b, true, 2)
	b = AppendLocal(b, false, local4, 3)
	b = AppendLocal(b, true, local6, 4)
	b = AppendTxTime(b, 1<<40)
	ms, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		level, typ int32
		n          int
	}{
		{unix.SOL_UDP, unix.UDP_SEGMENT, 2}, {unix.SOL_IP, unix.IP_TOS, 4}, {unix.SOL_IPV6, unix.IPV6_TCLASS, 4},
		{unix.SOL_IP, unix.IP_PKTINFO, 12}, {unix.SOL_IPV6, unix.IPV6_PKTINFO, 20}, {unix.SOL_SOCKET, unix.SCM_TXTIME, 8},
	}
	if len(ms) != len(want) {
		t.Fatalf("%d messages, want %d", len(ms), len(want))
	}
	for i, m := range ms {
		if m.Header.Level != want[i].level || m.Header.Type != want[i].typ || len(m.Data) != want[i].n {
			t.Errorf("message %d: %+v with %d bytes, want %+v", i, m.Header, len(m.Data), want[i])
		}
	}
	if got := binary.NativeEndian.Uint16(ms[0].Data); got != 1200 {
		t.Errorf("segment %d", got)
	}
	if got := binary.NativeEndian.Uint64(ms[5].Data); got != 1<<40 {
		t.Errorf("time %d", got)
	}
	if c := ParseControl(b[2*(hdrLen+8):]); c.Local != local6 || c.Interface != 4 || c.TOS != 2 {
		t.Errorf("read back as %+v", c)
	}
}

func TestCopyControl(t *testing.T) {
	tos := control(unix.SOL_IP, unix.IP_TOS, []byte{7})
	local := control(unix.SOL_IP, unix.IP_PKTINFO, make([]byte, 12))
	all := slices.Concat(control(unix.SOL_SOCKET, unix.SO_RXQ_OVFL, word(1)), tos, control(unix.SOL_UDP, unix.UDP_GRO, word(9)), local)
	want := slices.Concat(tos, local)
	dst := make([]byte, len(want))
	if n, fits := CopyControl(dst, all); n != len(want) || !fits || !bytes.Equal(dst, want) {
		t.Errorf("%d, %v: %x, want %x", n, fits, dst, want)
	}
	// Without the padding of the last message it is complete; any shorter and it is cut.
	for room := len(want); room >= 0; room-- {
		clear(dst)
		n, whole := CopyControl(dst[:room], all)
		if wantWhole := room >= len(tos)+hdrLen+12; whole != wantWhole {
			t.Fatalf("room %d: whole = %t", room, whole)
		}
		if room >= len(tos) && !bytes.Equal(dst[:len(tos)], tos) || n > room {
			t.Fatalf("room %d: %d bytes, %x", room, n, dst)
		}
		if _, err := unix.ParseSocketControlMessage(dst[:n]); err != nil {
			t.Errorf("room %d: what was cut cannot be read: %v", room, err)
		}
	}
}

func TestOwnControlIsEnough(t *testing.T) {
	b := make([]byte, 0, OwnControl)
	b = AppendSegment(b, 1)
	b = AppendTOS(b, true, 1)
	b = AppendLocal(b, true, netip.IPv6Loopback(), 1)
	b = AppendTxTime(b, 1)
	if len(b) > OwnControl {
		t.Errorf("%d bytes, OwnControl says %d", len(b), OwnControl)
	}
}

func FuzzParseControl(f *testing.F) {
	f.Add([]byte{})
	f.Add(control(unix.SOL_UDP, unix.UDP_GRO, word(1200)))
	f.Add(control(unix.SOL_IPV6, unix.IPV6_PKTINFO, make([]byte, 20), control(unix.SOL_IP, unix.IP_TOS, []byte{1})...))
	f.Add(control(unix.SOL_IP, unix.IP_RECVERR, make([]byte, 32)))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := ParseControl(b)
		ParseQueuedError(b)
		// Where x/sys can parse all of it, the last known message of each kind must be the one we
		// return.
		ms, err := unix.ParseSocketControlMessage(b)
		if err != nil {
			return
		}
		segment := 0
		for _, m := range ms {
			if m.Header.Level == unix.SOL_UDP && m.Header.Type == unix.UDP_GRO && len(m.Data) >= 4 {
				segment = int(int32(binary.NativeEndian.Uint32(m.Data)))
			}
		}
		if got.Segment != segment {
			t.Errorf("segment %d, x/sys reads %d", got.Segment, segment)
		}
	})
}

func TestAddrPortRoundTrip(t *testing.T) {
	for _, row := range []struct {
		family Family
		in     string
		want   string // "" means refused
	}{
		{IPv4, "192.0.2.1:9", "192.0.2.1:9"},
		{IPv4, "[::ffff:192.0.2.1]:9", "192.0.2.1:9"},
		{IPv4, "[2001:db8::1]:9", ""},
		{IPv6, "[2001:db8::1]:65535", "[2001:db8::1]:65535"},
		{IPv6, "192.0.2.1:9", "192.0.2.1:9"},
		{IPv6, "[::ffff:192.0.2.1]:9", "192.0.2.1:9"},
		{IPv6, "[::]:0", "[::]:0"},
		{Unix, "192.0.2.1:9", ""},
	} {
		b := make([]byte, inetNameSize)
		for i := range b {
			b[i] = 0xff // what an earlier message left behind
		}
		n := PutAddrPort(b, row.family, netip.MustParseAddrPort(row.in), 7)
		if n == 0 {
			if row.want != "" {
				t.Errorf("family %d refuses %s", row.family, row.in)
			}
			continue
		}
		got, scope := GetAddrPort(b[:n])
		if got.String() != row.want {
			t.Errorf("family %d: %s comes back as %s, want %s", row.family, row.in, got, row.want)
		}
		if wantScope := got.Addr().Is6(); wantScope != (scope == 7) {
			t.Errorf("%s: scope %d", row.in, scope)
		}
	}
	if n := PutAddrPort(make([]byte, 28), IPv6, netip.AddrPort{}, 0); n != 0 {
		t.Errorf("the zero address takes %d bytes", n)
	}
}

func FuzzGetAddrPort(f *testing.F) {
	f.Add([]byte{unix.AF_INET, 0, 0, 9, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add(make([]byte, 28))
	f.Fuzz(func(t *testing.T, b []byte) {
		ap, scope := GetAddrPort(b)
		GetPath(b)
		if !ap.IsValid() {
			return
		}
		again := make([]byte, inetNameSize)
		n := PutAddrPort(again, IPv6, ap, scope)
		if back, s := GetAddrPort(again[:n]); back != ap || s != scope {
			t.Errorf("%s scope %d comes back as %s scope %d", ap, scope, back, s)
		}
	})
}

func TestPath(t *testing.T) {
	b := make([]byte, unixNameSize)
	for _, path := range []string{"/run/x.sock", "@abstract", "x"} {
		n := PutPath(b, path)
		got := string(GetPath(b[:n]))
		if path[0] == '@' {
			got = "@" + got[1:]
		}
		if got != path {
			t.Errorf("%q comes back as %q", path, got)
		}
	}
	if n := PutPath(b, string(make([]byte, MaxUnixPath+1))); n != 0 {
		t.Errorf("a path that is too long takes %d bytes", n)
	}
	if got := GetPath(b[:2]); got != nil {
		t.Errorf("an unnamed socket has the path %q", got)
	}
}
