package admit

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/pires/go-proxyproto"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

const signature = "\r\n\r\n\x00\r\nQUIT\n"

// v2 is a version 2 header.
func v2(command, family byte, body string) string {
	return signature + string([]byte{command, family, byte(len(body) >> 8), byte(len(body))}) + body
}

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

const (
	body4 = "\xc0\x00\x02\x01\xc0\x00\x02\x02\x1f\x90\x01\xbb" // 192.0.2.1:8080 -> 192.0.2.2:443
	body6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x1f\x90\x01\xbb"
)

var bodyUnix = "/run/a.sock" + strings.Repeat("\x00", maxSunPath-11) + "\x00hidden" + strings.Repeat("\x00", maxSunPath-7)

// headers are good ones; those of version 1 are the examples of the
// specification (2.1) and its longest line.
var headers = map[string]Header{
	"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n": {Version: 1, Client: at("255.255.255.255:65535"), To: at("255.255.255.255:65535")},
	"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n":          {Version: 1, Client: at("192.168.0.1:56324"), To: at("192.168.0.11:443")},
	"PROXY TCP6 2001:db8::1 2001:db8::2 0 443\r\n":               {Version: 1, Client: at("[2001:db8::1]:0"), To: at("[2001:db8::2]:443")},
	"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 1 2\r\n":            {Version: 1, Client: at("192.0.2.1:1"), To: at("[2001:db8::2]:2")},
	"PROXY UNKNOWN\r\n":                                                 {Version: 1, Local: true},
	"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n":                     {Version: 1, Local: true},
	"PROXY UNKNOWN " + strings.Repeat("f", maxProxy1-14-2) + "\r\n":     {Version: 1, Local: true},
	v2(0x21, 0x11, body4):                                               {Version: 2, Client: at("192.0.2.1:8080"), To: at("192.0.2.2:443")},
	v2(0x21, 0x21, body6):                                               {Version: 2, Client: at("[2001:db8::1]:8080"), To: at("[2001:db8::2]:443")},
	v2(0x21, 0x31, bodyUnix):                                            {Version: 2, Unix: true, ClientPath: "/run/a.sock", ToPath: "@hidden"},
	v2(0x20, 0x00, ""):                                                  {Version: 2, Local: true},
	v2(0x20, 0x11, ""):                                                  {Version: 2, Local: true},
	v2(0x20, 0x12, body4):                                               {Version: 2, Local: true},
	v2(0x20, 0x41, "abc"):                                               {Version: 2, Local: true},
	v2(0x20, 0xff, ""):                                                  {Version: 2, Local: true},
	v2(0x20, 0x11, body4+"\xee\x00\x01x"):                               {Version: 2, Local: true},
	v2(0x21, 0x11, body4+"\x02\x00\x06a.test\x01\x00\x02h2"):            {Version: 2, Client: at("192.0.2.1:8080"), To: at("192.0.2.2:443"), SNI: "a.test", ALPN: "h2"},
	v2(0x21, 0x11, body4+"\x04\x00\x03...\xee\x00\x00\xef\x00\x02ab"):   {Version: 2, Client: at("192.0.2.1:8080"), To: at("192.0.2.2:443"), TLVs: []spec.TLV{{Type: 0xee, Value: []byte{}}, {Type: 0xef, Value: []byte("ab")}}},
	v2(0x21, 0x11, body4+tlv(0xea, strings.Repeat("x", MaxProxy-28-3))): {Version: 2, Client: at("192.0.2.1:8080"), To: at("192.0.2.2:443"), TLVs: []spec.TLV{{Type: 0xea, Value: bytes.Repeat([]byte("x"), MaxProxy-28-3)}}},
	summed(v2(0x21, 0x11, body4+"\x03\x00\x04\x00\x00\x00\x00"), 0):     {Version: 2, Client: at("192.0.2.1:8080"), To: at("192.0.2.2:443")},
}

func tlv(kind byte, value string) string { return string(appendTLV(nil, kind, value)) }

// summed puts a checksum into the last four bytes of a header, changed by so much.
func summed(header string, change uint32) string {
	b := []byte(header)
	binary.BigEndian.PutUint32(b[len(b)-4:], checksum(b, len(b)-4)+change)
	return string(b)
}

// Byte by byte, the answer is "more" until the last, and then the same whatever
// follows.
func TestProxyByteByByte(t *testing.T) {
	for in, want := range headers {
		for n := range len(in) {
			if h, size, more, err := ParseProxy([]byte(in[:n])); !more || err != nil || size != 0 {
				t.Fatalf("%q of %q: %+v, %d, %v, %v", in[:n], in, h, size, more, err)
			}
		}
		for _, tail := range []string{"", "x", "PROXY UNKNOWN\r\n", signature} {
			h, n, more, err := ParseProxy([]byte(in + tail))
			if err != nil || more || n != len(in) || !reflect.DeepEqual(h, want) {
				t.Errorf("%q: %+v, %d, %v, %v, want %+v", in, h, n, more, err, want)
			}
		}
	}
}

func TestProxyBad(t *testing.T) {
	for in, want := range map[string]error{
		"G":                    errNoProxy,
		"PROXY\t":              errNoProxy,
		"PROXI":                errNoProxy,
		"\r\n\r\n\x01":         errNoProxy,
		"\x16\x03\x01":         errNoProxy,
		"PROXY TCP4 1.2.3.4\n": proxyproto.ErrLineMustEndWithCrlf,
		"PROXY " + strings.Repeat("x", maxProxy1-6): errProxy1,
		"PROXY \r\n":                                          proxyproto.ErrCantReadAddressFamilyAndProtocol,
		"PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n":                  proxyproto.ErrCantReadAddressFamilyAndProtocol,
		"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n":                  proxyproto.ErrCantReadAddressFamilyAndProtocol,
		"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n":                    proxyproto.ErrCantReadAddressFamilyAndProtocol,
		"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n":                proxyproto.ErrCantReadAddressFamilyAndProtocol,
		"PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n":                 proxyproto.ErrCantReadAddressFamilyAndProtocol,
		"PROXY TCP4 1.2.3.256 1.2.3.4 1 2\r\n":                proxyproto.ErrInvalidAddress,
		"PROXY TCP4 ::1 ::1 1 2\r\n":                          proxyproto.ErrInvalidAddress,
		"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n":                  proxyproto.ErrInvalidAddress,
		"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n":                 proxyproto.ErrInvalidAddress,
		"PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n":              proxyproto.ErrInvalidPortNumber,
		"PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n":                 proxyproto.ErrInvalidPortNumber,
		"PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n":                 proxyproto.ErrInvalidPortNumber,
		v2(0x11, 0x11, body4):                                 proxyproto.ErrUnsupportedProtocolVersionAndCommand,
		v2(0x22, 0x11, body4):                                 proxyproto.ErrUnsupportedProtocolVersionAndCommand,
		v2(0x21, 0x13, body4):                                 proxyproto.ErrUnsupportedAddressFamilyAndProtocol,
		v2(0x21, 0x41, body4):                                 proxyproto.ErrUnsupportedAddressFamilyAndProtocol,
		v2(0x21, 0x12, body4):                                 errProxyKind,
		v2(0x21, 0x22, body6):                                 errProxyKind,
		v2(0x21, 0x32, bodyUnix):                              errProxyKind,
		v2(0x21, 0x00, ""):                                    proxyproto.ErrUnsupportedAddressFamilyAndProtocol,
		v2(0x21, 0x11, body4[1:]):                             proxyproto.ErrInvalidLength,
		v2(0x21, 0x21, body4):                                 proxyproto.ErrInvalidLength,
		v2(0x21, 0x31, body6):                                 proxyproto.ErrInvalidLength,
		v2(0x21, 0x11, strings.Repeat("x", MaxProxy-15))[:16]: errProxy2,
		v2(0x21, 0x11, body4+"\xee"):                          errProxyTLV,
		v2(0x21, 0x11, body4+"\xee\x00\x02x"):                 errProxyTLV,
		v2(0x21, 0x11, body4+"\x03\x00\x03abc"):               errProxyCRC,
		summed(v2(0x21, 0x11, body4+"\x03\x00\x04abcd"), 1):   errProxyCRC,
	} {
		h, n, more, err := ParseProxy([]byte(in))
		if !errors.Is(err, want) || n != 0 || more || !reflect.DeepEqual(h, Header{}) {
			t.Errorf("%q: %+v, %d, %v, %v, want %v", in, h, n, more, err, want)
		} else if !strings.Contains(err.Error(), "PROXY header: ") || strings.ContainsFunc(err.Error(), unicode.IsControl) {
			t.Errorf("%q: message %q", in, err)
		}
	}
}

// outgoing are headers as the daemon sends them, by the header that the codec
// makes of the same; nil where it has none.
func outgoing() map[*Header]*proxyproto.Header {
	tcp := func(s string) net.Addr { return net.TCPAddrFromAddrPort(at(s)) }
	path := func(network, name string) net.Addr { return &net.UnixAddr{Net: network, Name: name} }
	out := map[*Header]*proxyproto.Header{}
	for _, version := range []int{1, 2} {
		add := func(h Header, client, to net.Addr) {
			h.Version = version
			out[&h] = proxyproto.HeaderProxyFromAddrs(byte(version), client, to)
		}
		add(Header{Client: at("192.0.2.1:1"), To: at("192.0.2.2:65535")}, tcp("192.0.2.1:1"), tcp("192.0.2.2:65535"))
		add(Header{Client: at("[2001:db8::1]:1"), To: at("[::]:2")}, tcp("[2001:db8::1]:1"), tcp("[::]:2"))
		add(Header{Client: at("192.0.2.1:1"), To: at("[2001:db8::2]:2")}, tcp("192.0.2.1:1"), tcp("[2001:db8::2]:2"))
		add(Header{Client: at("[::ffff:192.0.2.1]:1"), To: at("192.0.2.2:2")}, tcp("192.0.2.1:1"), tcp("192.0.2.2:2"))
		add(Header{Client: at("[fe80::1%eth0]:1"), To: at("[fe80::2]:2")}, tcp("[fe80::1]:1"), tcp("[fe80::2]:2"))
		add(Header{Unix: true, ClientPath: "/a", ToPath: "/b"}, path("unix", "/a"), path("unix", "/b"))
		add(Header{Unix: true, ToPath: "/" + strings.Repeat("b", 106)}, path("unix", ""), path("unix", "/"+strings.Repeat("b", 106)))
		add(Header{Local: true}, nil, nil)
		add(Header{To: at("192.0.2.2:2")}, nil, tcp("192.0.2.2:2"))
	}
	return out
}

// What is sent is what the codec would send, its reader takes it, and ours gives
// the same header.
func TestAppendIsTheCodec(t *testing.T) {
	for h, codec := range outgoing() {
		for _, tlvs := range []bool{false, true} {
			h := *h
			if tlvs && h.Version == 2 && codec.Command.IsProxy() {
				h.ALPN, h.SNI, h.TLVs = "h2", "a.test", []spec.TLV{{Type: 0xee, Value: []byte{}}, {Type: 0xef, Value: []byte("ab")}}
				if err := codec.SetTLVs([]proxyproto.TLV{
					{Type: proxyproto.PP2_TYPE_ALPN, Value: []byte("h2")}, {Type: proxyproto.PP2_TYPE_AUTHORITY, Value: []byte("a.test")},
					{Type: 0xee}, {Type: 0xef, Value: []byte("ab")},
				}); err != nil {
					t.Fatal(err)
				}
			}
			want, err := codec.Format()
			if err != nil {
				t.Fatal(err)
			}
			got, err := h.Append([]byte("before"))
			if err != nil || string(got) != "before"+string(want) {
				t.Errorf("%+v: %q, %v, the codec has %q", h, got, err, want)
				continue
			}
			in := bufio.NewReader(bytes.NewReader(append(got[6:], "after"...)))
			read, err := proxyproto.Read(in)
			if err != nil || !read.EqualsTo(codec) && codec.Version == 2 {
				t.Errorf("%q: the codec reads %+v, %v", got, read, err)
			}
			if rest, _ := io.ReadAll(in); string(rest) != "after" {
				t.Errorf("%q: the codec leaves %q", got, rest)
			}
			roundTrip(t, h, got[6:])
		}
	}
}

// roundTrip checks that sent bytes say what the header says, plainly.
func roundTrip(t *testing.T, h Header, sent []byte) {
	t.Helper()
	plain := func(a netip.AddrPort) netip.AddrPort {
		return netip.AddrPortFrom(spec.CanonicalAddr(a.Addr()), a.Port())
	}
	h.Client, h.To = plain(h.Client), plain(h.To)
	if h.Version == 1 && h.Unix || h.Local || !h.Unix && (!h.Client.IsValid() || !h.To.IsValid()) {
		h = Header{Version: h.Version, Local: true}
	}
	if h.Version == 1 {
		h.SNI, h.ALPN, h.TLVs = "", "", nil
	}
	got, n, more, err := ParseProxy(sent)
	if err != nil || more || n != len(sent) || !reflect.DeepEqual(got, h) {
		t.Fatalf("%q: %+v, %d, %v, %v, want %+v", sent, got, n, more, err, h)
	}
}

func TestAppendTooLong(t *testing.T) {
	h := Header{Version: 2, Client: at("192.0.2.1:1"), To: at("192.0.2.2:2"), TLVs: []spec.TLV{{Type: 0xee, Value: make([]byte, 1<<16-12-3)}}}
	if b, err := h.Append([]byte("x")); err != errProxyLong || string(b) != "x" {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	h.TLVs[0].Value = h.TLVs[0].Value[1:]
	if b, err := h.Append(nil); err != nil || len(b) != headerLen2+1<<16-1 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestProxyAllocates(t *testing.T) {
	dst := make([]byte, 0, MaxProxy)
	for h := range outgoing() {
		h.SNI, h.ALPN, h.TLVs = "a.test", "h2", []spec.TLV{{Type: 0xee, Value: []byte("x")}}
		if n := testing.AllocsPerRun(100, func() { _, _ = h.Append(dst) }); n != 0 {
			t.Errorf("append %+v: %v allocations", h, n)
		}
	}
	for in := range headers {
		b := []byte(in[:len(in)-1])
		if n := testing.AllocsPerRun(100, func() { _, _, _, _ = ParseProxy(b) }); n != 0 {
			t.Errorf("%q, not all there: %v allocations", b, n)
		}
	}
}

// Whatever comes: a cut of what was taken asks for more, and what was taken can be
// sent on and says the same.
func FuzzProxy(f *testing.F) {
	for in := range headers {
		f.Add([]byte(in))
	}
	f.Add([]byte("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, more, err := ParseProxy(b)
		if (err != nil || more) && (n != 0 || !reflect.DeepEqual(h, Header{})) || err != nil && more || n > min(len(b), MaxProxy) {
			t.Fatalf("%+v, %d, %v, %v", h, n, more, err)
		}
		if more && len(b) >= MaxProxy {
			t.Fatalf("more than %d bytes", len(b))
		}
		if err != nil || more {
			return
		}
		for cut := range n {
			if _, _, more, err := ParseProxy(b[:cut]); !more || err != nil {
				t.Fatalf("%d of %d: %v, %v", cut, n, more, err)
			}
		}
		sent, err := h.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, h, sent)
		// Whatever arrives can be forwarded: all of it, or what is not set here.
		own := []spec.TLV{{Type: 0xEE, Value: []byte("own")}}
		for _, d := range []spec.Dial{{ForwardAllTLVs: true}, {ForwardAllTLVs: true, ProxyTLVs: own}, {}} {
			to := Header{Version: 2, Client: netip.MustParseAddrPort("192.0.2.1:1"), To: netip.MustParseAddrPort("192.0.2.2:2"), TLVs: d.ProxyTLVs}
			to.Forward(&h, &d)
			b, err := to.Append(nil)
			if err != nil || len(own) != 1 || cap(own) != 1 {
				t.Fatal(err, own)
			}
			var want []spec.TLV
			want = append(want, d.ProxyTLVs...)
			for _, v := range h.TLVs {
				if d.ForwardAllTLVs && (d.ProxyTLVs == nil || v.Type != 0xEE) {
					want = append(want, v)
				}
			}
			if !reflect.DeepEqual(to.TLVs, want) && len(to.TLVs)+len(want) > 0 || d.ForwardAllTLVs && (to.SNI != h.SNI || to.ALPN != h.ALPN) || len(b) > 2*MaxProxy {
				t.Fatalf("%+v forwards %+v as %+v", d, h, to)
			}
		}
	})
}

func BenchmarkProxy(b *testing.B) {
	for name, in := range map[string]string{
		"v1": "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", "v2": v2(0x21, 0x11, body4), "v2-tlvs": v2(0x21, 0x11, body4+"\x02\x00\x06a.test\x01\x00\x02h2\xee\x00\x02ab"),
	} {
		h, _, _, err := ParseProxy([]byte(in))
		if err != nil {
			b.Fatal(err)
		}
		codec, err := proxyproto.Read(bufio.NewReader(strings.NewReader(in)))
		if err != nil {
			b.Fatal(err)
		}
		b.Run("do=parse/header="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _, _, _ = ParseProxy([]byte(in))
			}
		})
		dst := make([]byte, 0, MaxProxy)
		b.Run("do=append/header="+name+"/impl=own", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = h.Append(dst)
			}
		})
		b.Run("do=append/header="+name+"/impl=codec", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c := *codec
				c.SourceAddr, c.DestinationAddr = net.TCPAddrFromAddrPort(h.Client), net.TCPAddrFromAddrPort(h.To)
				_, _ = c.Format()
			}
		})
	}
}
