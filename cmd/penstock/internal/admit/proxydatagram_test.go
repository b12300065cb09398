package admit

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/relay/origin"
)

const (
	spp4 = "\x56\xec" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x01" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x02" + "\x1f\x90\x01\xbb"
	spp6 = "\x56\xec" + body6
)

// datagramHeaders are good ones.
var datagramHeaders = map[string]origin.Header{
	v2(0x21, 0x12, body4):                                   {Client: at("192.0.2.1:8080"), To: at("192.0.2.2:443")},
	v2(0x21, 0x11, body4):                                   {Client: at("192.0.2.1:8080"), To: at("192.0.2.2:443")}, // DNS over TCP, which dnsdist sends on by UDP
	v2(0x21, 0x22, body6):                                   {Client: at("[2001:db8::1]:8080"), To: at("[2001:db8::2]:443")},
	v2(0x21, 0x32, bodyUnix):                                {},
	v2(0x21, 0x00, ""):                                      {},
	v2(0x21, 0x00, "\xee\x00\x01x"):                         {},
	v2(0x20, 0x00, ""):                                      {},
	v2(0x20, 0xff, "anything"):                              {},
	v2(0x21, 0x12, body4+"\x02\x00\x06a.test\xee\x00\x01x"): {Client: at("192.0.2.1:8080"), To: at("192.0.2.2:443")},
	summed(v2(0x21, 0x12, body4+"\x03\x00\x04\x00\x00\x00\x00"), 0): {Client: at("192.0.2.1:8080"), To: at("192.0.2.2:443")},
	spp4: {Client: at("192.0.2.1:8080"), To: at("192.0.2.2:443"), Replies: true},
	spp6: {Client: at("[2001:db8::1]:8080"), To: at("[2001:db8::2]:443"), Replies: true},
}

func TestReadDatagram(t *testing.T) {
	for in, want := range datagramHeaders {
		want.Len = len(in)
		for _, payload := range []string{"", "payload", in} {
			if h, ok := ReadDatagram([]byte(in + payload)); !ok || h != want {
				t.Errorf("%q: %+v, %v; want %+v", in, h, ok, want)
			}
		}
		for cut := range in {
			if h, ok := ReadDatagram([]byte(in[:cut])); ok || h != (origin.Header{}) {
				t.Errorf("%q, of which %d bytes: %+v", in, cut, h)
			}
		}
		if _, ok := ReadProxy2([]byte(in)); ok == want.Replies {
			t.Errorf("%q as one of version 2: %v", in, ok)
		}
	}
	for _, bad := range []string{
		"", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nx", v2(0x11, 0x12, body4), v2(0x22, 0x12, body4), v2(0x21, 0x13, body4), v2(0x21, 0x10, body4), v2(0x21, 0x42, body6),
		v2(0x21, 0x22, body4), v2(0x21, 0x12, body4[:11]), v2(0x21, 0x32, body6), v2(0x21, 0x12, body4+"\xee"), v2(0x21, 0x12, body4+"\xee\x00\x02x"),
		v2(0x21, 0x12, body4+"\x03\x00\x04\x00\x00\x00\x00"), v2(0x21, 0x12, body4+"\x03\x00\x01\x00"), v2(0x20, 0, string(make([]byte, MaxProxy))), "\xec\x56" + spp4[2:],
	} {
		if h, ok := ReadDatagram([]byte(bad + "x")); ok {
			t.Errorf("%q: %+v", bad, h)
		}
	}
}

func TestParseDatagram(t *testing.T) {
	h := ParseDatagram([]byte(v2(0x21, 0x12, body4+"\x02\x00\x06a.test\xee\x00\x01x")))
	if h.SNI != "a.test" || h.TLV(0xEE) != "x" || h.Client != at("192.0.2.1:8080") || !h.Datagrams || h.Local {
		t.Errorf("%+v", h)
	}
	if h := ParseDatagram([]byte(v2(0x20, 0xff, "anything"))); !reflect.DeepEqual(h, &Header{Version: 2, Datagrams: true, Local: true}) {
		t.Errorf("%+v", h)
	}
}

func TestReadDatagramAllocs(t *testing.T) {
	testnet.OneGoroutine(t)
	for in := range datagramHeaders {
		b := []byte(in)
		if n := testing.AllocsPerRun(100, func() { ReadDatagram(b) }); n != 0 {
			t.Errorf("%q: %v allocations", in, n)
		}
	}
}

// FuzzProxyDatagram reads what a proxy may send, as [FuzzProxy] does for streams, with which it agrees.
func FuzzProxyDatagram(f *testing.F) {
	for in := range datagramHeaders {
		f.Add([]byte(in + "payload"))
	}
	for in := range headers {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := ReadDatagram(b)
		if !ok {
			if h != (origin.Header{}) {
				t.Fatalf("%+v", h)
			}
			return
		}
		if h.Len < headerLen2 || h.Len > min(len(b), MaxProxy) || h.Client.IsValid() != h.To.IsValid() || h.Client.Addr().Is4In6() || h.Replies && h.Len != sppLen {
			t.Fatalf("%+v of %d bytes", h, len(b))
		}
		for _, other := range [][]byte{b[:h.Len], append(bytes.Clone(b[:h.Len]), "more"...)} {
			if again, ok := ReadDatagram(other); !ok || again != h {
				t.Fatalf("%+v, and without the rest, or with another, %+v", h, again)
			}
		}
		if _, ok := ReadDatagram(b[:h.Len-1]); ok {
			t.Fatalf("it needs %d bytes, and not the last one", h.Len)
		}
		p := ParseDatagram(b[:h.Len])
		if p.Client != h.Client || p.To != h.To || p.Local == h.Client.IsValid() {
			t.Fatalf("%+v, as a whole %+v", h, p)
		}
		if h.Client.IsValid() {
			sent, err := p.Append(nil)
			if back, ok := ReadDatagram(sent); err != nil || !ok || back.Client != h.Client || back.To != h.To {
				t.Fatalf("%+v is sent on as %+v, %v", h, back, err)
			}
		}
		if h.Replies {
			return
		}
		stream := bytes.Clone(b[:h.Len])
		if stream[12] == 0x21 && (stream[13]&0x0F == 2 || stream[13] == 0) {
			return // which streams refuse
		}
		s, n, more, err := ParseProxy(stream)
		if err != nil || more || n != h.Len || s.Client != h.Client {
			t.Fatalf("%+v, and in front of a stream %+v, %d, %v, %v", h, s, n, more, err)
		}
	})
}
