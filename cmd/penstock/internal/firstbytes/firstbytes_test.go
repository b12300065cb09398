package firstbytes

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// samples are what clients send first, and how many of the bytes it takes to be certain. Those of programs were recorded.
var samples = []struct {
	name, protocol, bytes string
	certain               int
	host                  string
}{
	{"a ClientHello", "tls", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 6, ""},
	{"a ClientHello of TLS 1.2", "tls", "\x16\x03\x03\x00\x04\x01\x00\x00\x00", 6, ""},
	{"OpenSSH", "ssh", "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", 4, ""},
	{"curl", "http", "GET / HTTP/1.1\r\nHost: Www.Example.org:8080\r\nUser-Agent: curl\r\n\r\n", 4, "www.example.org"},
	{"HTTP/1.0 with line feeds", "http", "POST /x HTTP/1.0\nA: b\nhost:a.test.\n\n", 5, "a.test"},
	{"HTTP without a host", "http", "GET / HTTP/1.0\r\n\r\nHost: late.test\r\n", 4, ""},
	{"HTTP with an address", "http", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 4, ""},
	{"a proxy's form", "http", "GET http://u:p@A.test:80/x HTTP/1.1\r\nHost: b.test\r\n\r\n", 4, "a.test"},
	{"CONNECT", "http", "CONNECT a.test:443 HTTP/1.1\r\nHost: b.test\r\n\r\n", 8, "a.test"},
	{"another method", "http", "PROPFIND /dav HTTP/1.1\r\nHost: dav.test\r\n\r\n", 24, "dav.test"},
	{"two hosts", "http", "GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n", 4, "a.test"},
	{"a space before a colon", "http", "GET / HTTP/1.1\r\nHost : a.test\r\nHost: b.test\r\n\r\n", 4, ""},
	{"a tab before another colon", "http", "GET / HTTP/1.1\r\nAccept\t: */*\r\nHost: a.test\r\n\r\n", 4, ""},
	{"a space before a colon after the host", "http", "GET / HTTP/1.1\r\nHost: a.test\r\nHost : b.test\r\n\r\n", 4, "a.test"},
	{"an empty label first", "http", "GET / HTTP/1.1\r\nHost: .a.test\r\n\r\n", 4, ""},
	{"an empty label", "http", "GET / HTTP/1.1\r\nHost: a..test\r\n\r\n", 4, ""},
	{"an empty label last", "http", "GET / HTTP/1.1\r\nHost: a.test..\r\n\r\n", 4, ""},
	{"a dot", "http", "GET / HTTP/1.1\r\nHost: .\r\n\r\n", 4, ""},
	{"a label of 63 bytes", "http", "GET / HTTP/1.1\r\nHost: " + strings.Repeat("a", 63) + ".test\r\n\r\n", 4, strings.Repeat("a", 63) + ".test"},
	{"a label that is too long", "http", "GET / HTTP/1.1\r\nHost: " + strings.Repeat("a", 64) + ".test\r\n\r\n", 4, ""},
	{"an empty label of CONNECT", "http", "CONNECT .a.test:443 HTTP/1.1\r\n\r\n", 8, ""},
	{"HTTP/0.9", "http", "GET /x\r\n", 4, ""},
	{"HTTP/2", "http2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00", 24, ""},
	{"psql", "postgres", "\x00\x00\x00\x08\x04\xd2\x16\x2f", 8, ""},
	{"psql in the clear", "postgres", "\x00\x00\x00\x29\x00\x03\x00\x00user\x00u\x00database\x00postgres", 8, ""},
	{"a request to cancel", "postgres", "\x00\x00\x00\x10\x04\xd2\x16\x2e\x00\x00\x12\x34\x89\xab\xcd\xef", 8, ""},
	{"mstsc", "rdp", "\x03\x00\x00\x2b\x26\xe0\x00\x00\x00\x00\x00Cookie: mstshash=root\r\n\x01\x00\x08\x00\x0b\x00\x00\x00", 19, ""},
	{"RDP with a request only", "rdp", "\x03\x00\x00\x13\x0e\xe0\x00\x00\x00\x00\x00\x01\x00\x08\x00\x0b\x00\x00\x00", 15, ""},
	{"RDP 4", "rdp", "\x03\x00\x00\x0b\x06\xe0\x00\x00\x00\x00\x00", 11, ""},
	{"MQTT 3.1.1", "mqtt", "\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02id", 8, ""},
	{"MQTT 3.1", "mqtt", "\x10\x10\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x02id", 10, ""},
	{"MQTT with a long length", "mqtt", "\x10\xff\xff\xff\x7f\x00\x04MQTT", 11, ""},
	{"AMQP 0-9-1", "amqp", "AMQP\x00\x00\x09\x01", 6, ""},
	{"AMQP 1.0 with SASL", "amqp", "AMQP\x03\x01\x00\x00", 6, ""},
	{"curl --socks5", "socks5", "\x05\x02\x00\x02", 4, ""},
	{"XMPP", "xmpp", "<?xml version='1.0'?><stream:stream to='a.test'>", 36, ""},
	{"XMPP without a declaration", "xmpp", "<stream:stream to='a.test'>", 15, ""},
	{"OpenVPN", "openvpn", "\x00\x0e\x38\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x00\x00\x00", 16, ""},
	{"OpenVPN with tls-auth", "openvpn", "\x00\x2a\x38" + strings.Repeat("s", 28) + "\x00\x00\x00\x01\x65\x00\x00\x00" + "\x00\x00\x00\x00\x00", 44, ""},
	{"OpenVPN with tls-crypt", "openvpn", "\x00\x36\x38" + strings.Repeat("s", 8) + "\x00\x00\x00\x01\x65\x00\x00\x00" + strings.Repeat("t", 37), 15, ""},
	{"OpenVPN with tls-crypt-v2", "openvpn", "\x01\x6e\x50" + strings.Repeat("s", 8) + "\x0f\x00\x00\x01\x65\x00\x00\x00" + strings.Repeat("t", 340), 15, ""},
}

// others are what clients of none of the protocols send first.
var others = []string{
	"EHLO a.test\r\n", "USER x\r\n", "OPTIONS sip:a@b SIP/2.0\r\n", "OPTIONS rtsp://a RTSP/1.0\r\n", "get key\r\n", "*1\r\n$4\r\nPING\r\n", "PING\r\n", "PRI * HTTP/2.0\r\n\r\nXX",
	"\x15\x03\x01\x00\x02\x01\x00", "\x16\x03\x01\x00\x00\x01", "\x16\x03\x01\x40\x01\x01", "\x16\x03\x01\x00\x04\x02",
	"\x80\x2e\x01\x03\x01", "<?xml version='1.0'?><policy-file-request/>", "<stream:streams>", "<html>", "<?xml" + strings.Repeat(" ", 200),
	"\x03\x00\x00\x16\x11\xe0\x00\x00\x00\x01\x00\xc1\x02\x01\x00\xc2\x02\x01\x02\xc0\x01\x0a", "\x03\x00\x00\x0c\x06\xe0", "\x04\x01\x00\x50\x01\x02\x03\x04\x00",
	"\x05\x00", "\x05\x02\x00\x00", "\x05\x01\xff", "\x05\x11", "\x05\x01\x0a", "AMQP\x04", "AMQQ\x00", "AMQP\x00\x02", "\x10\x00", "\x10\xff\xff\xff\xff\x01", "\x10\x0c\x00\x04mqtt",
	"\x00\x0e\x39", "\x00\x0d\x38", "\x00\x57\x38", "\x00\x0e\x38" + strings.Repeat("x", 13), "\x00\x36\x50", "\x06\x00\x50", "\x00\x1c\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www",
	"\x00\x00\x00\x08\x04\xd2\x16\x31", "\x00\x00\x28\x00", "GET", "ABCDEFGHIJKLMNOPQRSTUVWXY /", "-A / HTTP/1.1\r\n", " GET / HTTP/1.1\r\n", "PROPFIND /" + strings.Repeat("x", maxLine+1),
}

// fed returns what is seen of bytes that arrive in pieces which end at these places.
func fed(b string, over bool, ends ...int) *Seen {
	s := New()
	for _, end := range ends {
		s.Add([]byte(b[:end]), false)
	}
	s.Add([]byte(b), over)
	return s
}

// equal compares what is known, but not how far it has been read.
func (s *Seen) equal(o *Seen) bool {
	return s.yes == o.yes && s.maybe == o.maybe && s.http.named == o.http.named && s.http.host == o.http.host
}

func TestSamples(t *testing.T) {
	met := map[string]bool{}
	for _, c := range samples {
		met[c.protocol] = true
		s := fed(c.bytes, true)
		if s.Protocol() != c.protocol || s.Host() != c.host {
			t.Errorf("%s: %q, host %q", c.name, s.Protocol(), s.Host())
		}
		for i := range len(c.bytes) + 1 {
			if s := fed(c.bytes[:i], false); (s.Protocol() == c.protocol) != (i >= c.certain) || s.Protocol() == "" && s.maybe == 0 {
				t.Errorf("%s: %q of %d bytes", c.name, s.Protocol(), i)
			}
		}
	}
	for _, name := range spec.Protocols {
		if !met[name] {
			t.Errorf("no sample of %s", name)
		}
	}
	for _, b := range others {
		if s := fed(b, true); s.Protocol() != "" {
			t.Errorf("%q is %s", b, s.Protocol())
		}
		if s := fed(b, false); len(b) > 3 && s.maybe != 0 {
			t.Errorf("%q may be %b", b, s.maybe)
		}
	}
}

// However bytes are divided, the same is known of them: in two pieces at each place, in three at each two, and byte by byte.
func TestDivided(t *testing.T) {
	var inputs []string
	for _, c := range samples {
		inputs = append(inputs, c.bytes)
	}
	for _, b := range append(inputs, others...) {
		b = b[:min(len(b), 400)]
		whole := fed(b, false)
		single := New()
		for i := range len(b) {
			single.Add([]byte(b[:i+1]), false)
			for j := range i {
				if s := fed(b, false, j, i); !s.equal(whole) {
					t.Fatalf("%q divided at %d and %d: %+v, want %+v", b, j, i, s, whole)
				}
			}
		}
		if !single.equal(whole) && len(b) > 0 {
			t.Errorf("%q byte by byte: %+v, want %+v", b, single, whole)
		}
	}
}

// The head of a request is searched once, however it arrives: a megabyte byte by byte would take half an hour otherwise.
func TestLinear(t *testing.T) {
	b := []byte("GET / HTTP/1.1\r\n" + strings.Repeat("a: b\r\n", 1<<20/6))
	s := New()
	for i := range b {
		if s.Add(b[:i+1], false); s.http.at != 0 && s.http.at < i {
			t.Fatalf("%d of %d bytes were searched", s.http.at, i+1)
		}
	}
	if protocol, host := s.Pending(); protocol || !host {
		t.Errorf("pending %v, %v", protocol, host)
	}
}

func TestConditions(t *testing.T) {
	prefixes := func(all ...string) (list [][]byte) {
		for _, p := range all {
			list = append(list, []byte(p))
		}
		return list
	}
	for _, c := range []struct {
		bytes string
		over  bool
		wait  time.Duration
		Conditions
		want Verdict
	}{
		{"", false, 0, Conditions{}, Yes},
		{"", false, 0, Conditions{Protocols: 1 << SSH}, Maybe},
		{"", true, 0, Conditions{Protocols: 1 << SSH}, No},
		{"SSH-", false, 0, Conditions{Protocols: 1<<SSH | 1<<TLS}, Yes},
		{"SSH-", false, 0, Conditions{Protocols: 1 << TLS}, No},
		{"A", false, 0, Conditions{Prefixes: prefixes("AB", "C")}, Maybe},
		{"A", true, 0, Conditions{Prefixes: prefixes("AB", "C")}, No},
		{"ABC", false, 0, Conditions{Prefixes: prefixes("XY", "AB")}, Yes},
		{"AX", false, 0, Conditions{Prefixes: prefixes("AB")}, No},
		{"", false, 0, Conditions{Silence: time.Second}, Maybe},
		{"", false, time.Second, Conditions{Silence: time.Second}, Yes},
		{"", false, time.Second, Conditions{Silence: 2 * time.Second}, Maybe},
		{"", true, time.Second, Conditions{Silence: 2 * time.Second}, No},
		{"x", false, time.Second, Conditions{Silence: time.Second}, No},
		{"GET / HTTP/1.1\r\n", false, 0, Conditions{Host: true}, Maybe},
		{"GET / HTTP/1.1\r\nHost: a\r\n", false, 0, Conditions{Host: true}, Yes},
		{"GET / HTTP/1.1\r\n", true, 0, Conditions{Host: true}, No},
		{"SSH-", false, 0, Conditions{Host: true}, No},
		{"GET", false, 0, Conditions{Protocols: 1 << HTTP, Prefixes: prefixes("GEX")}, No},
	} {
		s := New()
		s.Add([]byte(c.bytes), c.over)
		s.Wait(c.wait)
		if got := s.Holds(&c.Conditions); got != c.want {
			t.Errorf("%q: %+v: %d, want %d", c.bytes, c.Conditions, got, c.want)
		}
	}
	var none *Seen
	if none.Holds(&Conditions{}) != Yes || none.Holds(&Conditions{Host: true}) != No || none.Protocol()+none.Host() != "" {
		t.Error("nothing seen")
	}
}

// FuzzFirst: no two protocols claim the same bytes, what is certain stays so, and it does not matter how the bytes are divided.
func FuzzFirst(f *testing.F) {
	for _, c := range samples {
		f.Add([]byte(c.bytes), uint16(3))
	}
	for _, b := range others {
		f.Add([]byte(b), uint16(5))
	}
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		var claimed []string
		for p := range NumProtocols {
			s := New()
			if s.look(p, b) == Yes {
				claimed = append(claimed, p.String())
			}
			cut := b[:min(int(at), len(b))]
			before, after := New().look(p, cut), New().look(p, b)
			if before != Maybe && before != after {
				t.Errorf("%s: %d of %q, %d of %q", p, before, cut, after, b)
			}
		}
		if len(claimed) > 1 {
			t.Errorf("%q is %v", b, claimed)
		}
		whole := New()
		whole.Add(b, false)
		single := New()
		for i := range b[:min(len(b), 2000)] {
			single.Add(b[:i+1], false)
		}
		single.Add(b, false)
		if !single.equal(whole) {
			t.Errorf("%q: byte by byte %+v, at once %+v", b, single, whole)
		}
		if h := whole.Host(); h != strings.ToLower(h) || len(h) > maxHost || h != "" && !bytes.Contains(bytes.ToLower(b), []byte(h)) {
			t.Errorf("host %q of %q", h, b)
		}
	})
}
