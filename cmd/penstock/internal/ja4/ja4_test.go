package ja4

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/clienthello"
	"github.com/penstock/penstock/internal/testnet"
)

// numbers reads a list as the specification prints it.
func numbers(text string) (all []uint16) {
	for _, word := range strings.Split(text, ",") {
		b, err := hex.DecodeString(word)
		if err != nil || len(b) != 2 {
			panic(text)
		}
		all = append(all, binary.BigEndian.Uint16(b))
	}
	return all
}

// vector returns b behind its length in a number of bytes.
func vector(size int, b []byte) []byte {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(b)))
	return append(length[8-size:], b...)
}

func packed(all []uint16) (b []byte) {
	for _, v := range all {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return b
}

// client is what a ClientHello is made of.
type client struct {
	version             uint16 // 0: TLS 1.2
	ciphers, extensions []uint16
	signatures          []uint16
	versions            []uint16
	alpn                []string
}

func (c *client) message() []byte {
	b := binary.BigEndian.AppendUint16(nil, max(c.version, 0x0300))
	b = append(b, make([]byte, 32)...)
	b = append(b, vector(1, []byte("session"))...)
	b = append(b, vector(2, packed(c.ciphers))...)
	b = append(b, vector(1, []byte{0})...)
	var all []byte
	for _, kind := range c.extensions {
		var body []byte
		switch kind {
		case extensionServerName:
			body = vector(2, append([]byte{0}, vector(2, []byte("a.test"))...))
		case extensionALPN:
			for _, name := range c.alpn {
				body = append(body, vector(1, []byte(name))...)
			}
			body = vector(2, body)
		case extensionVersions:
			body = vector(1, packed(c.versions))
		case extensionSignatures:
			body = vector(2, packed(c.signatures))
		}
		all = append(binary.BigEndian.AppendUint16(all, kind), vector(2, body)...)
	}
	if c.extensions != nil {
		b = append(b, vector(2, all)...)
	}
	return append([]byte{messageClientHello}, vector(3, b)...)
}

// records divides a message into records.
func records(m []byte, size int) (b []byte) {
	for part := range slices.Chunk(m, size) {
		b = append(append(b, 22, 3, 1), vector(2, part)...)
	}
	return b
}

// chrome is the example of the specification, in the order of the wire, and with the GREASE that it leaves out.
func chrome() *client {
	return &client{
		version:    0x0303,
		ciphers:    append([]uint16{0xcaca}, numbers("1301,1302,1303,c02b,c02f,c02c,c030,cca9,cca8,c013,c014,009c,009d,002f,0035")...),
		extensions: append([]uint16{0x1a1a}, numbers("001b,0000,0033,0010,4469,0017,002d,000d,0005,0023,0012,002b,ff01,000b,000a,0015")...),
		signatures: append([]uint16{0x2a2a}, numbers("0403,0804,0401,0503,0805,0501,0806,0601")...),
		versions:   []uint16{0xfafa, 0x0304, 0x0303},
		alpn:       []string{"h2", "http/1.1"},
	}
}

// TestSpecification has the values that the specification publishes.
func TestSpecification(t *testing.T) {
	without := func(kind uint16) func(*client) {
		return func(c *client) {
			c.extensions = slices.DeleteFunc(c.extensions, func(v uint16) bool { return v == kind })
		}
	}
	for _, v := range []struct {
		name   string
		change func(*client)
		want   string
	}{
		{"the example", func(*client) {}, "t13d1516h2_8daaf6152771_e5627efa2ab1"},
		{"shuffled, as Chrome does", func(c *client) { slices.Reverse(c.extensions); slices.Reverse(c.ciphers) }, "t13d1516h2_8daaf6152771_e5627efa2ab1"},
		{"another protocol", func(c *client) { c.alpn = []string{"http/1.1"} }, "t13d1516h1_8daaf6152771_e5627efa2ab1"},
		{"to an address", without(extensionServerName), "t13i1515h2_8daaf6152771_e5627efa2ab1"},
		{"no ALPN", without(extensionALPN), "t13d151500_8daaf6152771_e5627efa2ab1"},
		{"no signature algorithms in their extension", func(c *client) { c.signatures = nil }, "t13d1516h2_8daaf6152771_6d807ffa2a79"},
		{"no cipher suites", func(c *client) { c.ciphers = nil }, "t13d0016h2_000000000000_e5627efa2ab1"},
		{"no extensions", func(c *client) { c.extensions = nil }, "t12i150000_8daaf6152771_000000000000"},
		{"only those that are not hashed", func(c *client) { c.extensions = []uint16{0, 16} }, "t12d1502h2_8daaf6152771_000000000000"},
	} {
		c := chrome()
		v.change(c)
		if got := TLS(records(c.message(), 1<<14)); got != v.want {
			t.Errorf("%s: %s, want %s", v.name, got, v.want)
		}
		if got, want := QUIC(c.message()), "q"+v.want[1:]; got != want {
			t.Errorf("%s: %s, want %s", v.name, got, want)
		}
	}
	// The order of signature algorithms matters.
	c := chrome()
	slices.Reverse(c.signatures)
	if got := QUIC(c.message()); strings.HasSuffix(got, "_e5627efa2ab1") {
		t.Errorf("signature algorithms were sorted: %s", got)
	}
}

// TestALPN has the specification's table of protocols that are no words.
func TestALPN(t *testing.T) {
	for name, want := range map[string]string{
		"\xab": "ab", "\x20": "20", "\xab\xcd": "ad", "\x20\x61": "21", "\x30\xab": "3b", "\x61\x20": "60", "\x30\x31\xab\xcd": "3d",
		"\x30\xab\xcd\x31": "01", "h2": "h2", "http/1.1": "h1", "a": "aa", "Z": "ZZ", "\x0a\x0a": "0a",
	} {
		c := chrome()
		c.alpn = []string{name, "h2"}
		if got := QUIC(c.message()); got[8:10] != want {
			t.Errorf("ALPN %q: %s, want %s", name, got[8:10], want)
		}
	}
}

func TestVersions(t *testing.T) {
	for offered, want := range map[uint16]string{0x0304: "13", 0x0303: "12", 0x0302: "11", 0x0301: "10", 0x0300: "s3", 0x0305: "00", 0x7f1c: "00"} {
		c := chrome()
		c.versions = []uint16{0x0a0a, 0x0300, offered, 0x0300}
		if got := QUIC(c.message()); got[1:3] != want {
			t.Errorf("version %04x of a list: %s, want %s", offered, got[1:3], want)
		}
		c.extensions, c.version = numbers("0000"), offered
		if got := QUIC(c.message()); got[1:3] != want {
			t.Errorf("version %04x: %s, want %s", offered, got[1:3], want)
		}
	}
}

// TestMany: counts end at 99, and a list that no real client sends has no fingerprint.
func TestMany(t *testing.T) {
	for _, n := range []int{99, 100, maxList, maxList + 1} {
		for name, list := range map[string]func(*client) *[]uint16{
			"ciphers": func(c *client) *[]uint16 { return &c.ciphers }, "signatures": func(c *client) *[]uint16 { return &c.signatures },
			"extensions": func(c *client) *[]uint16 { return &c.extensions },
		} {
			c := chrome()
			l := list(c)
			*l = nil
			for i := range n {
				*l = append(*l, uint16(0x1000+i*2)) // none is GREASE, or an extension that is read
			}
			got, want := QUIC(c.message()), slow('q', c)
			if n > maxList {
				want = ""
			}
			if got != want {
				t.Errorf("%d %s: %q, want %q", n, name, got, want)
			}
		}
	}
}

// TestRecords: records divide a message anywhere, and other bytes may follow.
func TestRecords(t *testing.T) {
	m := chrome().message()
	const want = "t13d1516h2_8daaf6152771_e5627efa2ab1"
	for size := 1; size <= len(m); size++ {
		b := records(m, size)
		if got := TLS(append(b, "more"...)); got != want {
			t.Fatalf("records of %d bytes: %q", size, got)
		}
		if got := TLS(b[:len(b)-1]); got != "" {
			t.Fatalf("records of %d bytes, cut short: %q", size, got)
		}
	}
	for n := range m {
		if got := QUIC(m[:n]); got != "" {
			t.Errorf("%d bytes: %q", n, got)
		}
	}
}

// slow calculates a fingerprint as the specification describes it, from lists of texts.
func slow(transport byte, c *client) string {
	texts := func(all []uint16) (out []string) {
		for _, v := range all {
			if text := fmt.Sprintf("%04x", v); text[0] != text[2] || text[1] != 'a' || text[3] != 'a' {
				out = append(out, text)
			}
		}
		return out
	}
	hash := func(text string) string {
		if text == "" {
			return strings.Repeat("0", 12)
		}
		return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:12]
	}
	ciphers, extensions, signatures, versions := texts(c.ciphers), texts(c.extensions), texts(c.signatures), texts(c.versions)
	if !slices.Contains(extensions, "002b") {
		versions = []string{fmt.Sprintf("%04x", c.version)}
	}
	if !slices.Contains(extensions, "000d") {
		signatures = nil
	}
	version := "00"
	if len(versions) > 0 {
		version = map[string]string{"0304": "13", "0303": "12", "0302": "11", "0301": "10", "0300": "s3", "0002": "s2"}[slices.Max(versions)]
	}
	name := "i"
	if slices.Contains(extensions, "0000") {
		name = "d"
	}
	alpn := "00"
	if slices.Contains(extensions, "0010") && len(c.alpn) > 0 && c.alpn[0] != "" {
		p := c.alpn[0]
		alpn = p[:1] + p[len(p)-1:]
		if strings.Trim(alpn, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			digits := fmt.Sprintf("%x", p)
			alpn = digits[:1] + digits[len(digits)-1:]
		}
	}
	a := fmt.Sprintf("%c%s%s%02d%02d%s", transport, cmp.Or(version, "00"), name, min(len(ciphers), 99), min(len(extensions), 99), alpn)
	slices.Sort(ciphers)
	extensions = slices.DeleteFunc(slices.Sorted(slices.Values(extensions)), func(s string) bool { return s == "0000" || s == "0010" })
	rest := strings.Join(extensions, ",")
	if rest != "" && len(signatures) > 0 {
		rest += "_" + strings.Join(signatures, ",")
	}
	return a + "_" + hash(strings.Join(ciphers, ",")) + "_" + hash(rest)
}

// goClient returns the ClientHello of a client of crypto/tls, and what that is made of as its server sees it.
func goClient(t testing.TB, cfg *tls.Config) ([]byte, *client) {
	a, b := net.Pipe()
	defer b.Close()
	go func() {
		tls.Client(a, cfg).Handshake()
		a.Close()
	}()
	conn, _, err := clienthello.Peek(b)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.Clone(conn.TakeRead())
	seen := &client{version: 0x0303}
	server := tls.Server(&replay{Conn: b, first: bytes.NewReader(first)}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		seen.ciphers, seen.extensions, seen.alpn, seen.versions = h.CipherSuites, h.Extensions, h.SupportedProtos, h.SupportedVersions
		for _, s := range h.SignatureSchemes {
			seen.signatures = append(seen.signatures, uint16(s))
		}
		return nil, net.ErrClosed
	}})
	if server.Handshake() == nil {
		t.Fatal("a handshake without a certificate has succeeded")
	}
	return first, seen
}

// replay is a connection whose first bytes were read.
type replay struct {
	net.Conn
	first *bytes.Reader
}

func (r *replay) Read(b []byte) (int, error) {
	if r.first.Len() > 0 {
		return r.first.Read(b)
	}
	return r.Conn.Read(b)
}

func (r *replay) Write(b []byte) (int, error) { return len(b), nil } // an alert

// TestGo compares with what another parser, that of crypto/tls, reads.
func TestGo(t *testing.T) {
	for _, cfg := range []*tls.Config{
		{ServerName: "a.test"}, {ServerName: "a.test", NextProtos: []string{"h2", "http/1.1"}}, {InsecureSkipVerify: true},
		{ServerName: "a.test", MaxVersion: tls.VersionTLS12}, {ServerName: "a.test", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS12},
		{ServerName: "a.test", CurvePreferences: []tls.CurveID{tls.X25519}},
	} {
		b, seen := goClient(t, cfg)
		if got, want := TLS(b), slow('t', seen); got != want || len(got) != size {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A fingerprint costs one allocation, that of its text.
func TestAllocations(t *testing.T) {
	testnet.OneGoroutine(t)
	b := records(chrome().message(), 1<<14)
	if n := testing.AllocsPerRun(100, func() { TLS(b) }); n != 1 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzJA4 reads any bytes, and compares the fingerprint of a ClientHello that is made of them with the slow calculation.
func FuzzJA4(f *testing.F) {
	m := chrome().message()
	f.Add(m, uint16(100))
	f.Add((&client{version: 0x0301, ciphers: []uint16{0x0a0a}}).message(), uint16(1))
	f.Add(packed(numbers("1301,0010,002b,000d,0000,0304,0403,6832")), uint16(7))
	f.Fuzz(func(t *testing.T, b []byte, record uint16) {
		size := max(1, int(record)%(1<<14))
		QUIC(b)
		TLS(b)
		if _, err := clienthello.ParseMessage(b); err == nil {
			if tcp, quic := TLS(records(b, size)), QUIC(b); tcp != "" && tcp[1:] != quic[1:] {
				t.Errorf("%s by records, %s in one", tcp, quic)
			}
		}
		b = b[:min(len(b), 800)]
		var part [4][]uint16
		for i := 0; i+2 <= len(b); i += 2 {
			part[i/2%4] = append(part[i/2%4], binary.BigEndian.Uint16(b[i:]))
		}
		c := &client{version: 0x0303, ciphers: part[0], extensions: part[1], signatures: part[2], versions: part[3], alpn: []string{string(b[:min(len(b), 255)])}}
		for i, kind := range c.extensions {
			if kind%3 == 0 { // those that are read, more often than any bytes have them
				c.extensions[i] = []uint16{extensionServerName, extensionALPN, extensionVersions, extensionSignatures}[kind/3%4]
			}
		}
		if got, want := TLS(records(c.message(), size)), slow('t', c); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	})
}

func BenchmarkJA4(b *testing.B) {
	hello := records(chrome().message(), 1<<14)
	for b.Loop() {
		TLS(hello)
	}
}

// BenchmarkParse is what reading the same ClientHello costs before that.
func BenchmarkParse(b *testing.B) {
	hello := records(chrome().message(), 1<<14)
	for b.Loop() {
		clienthello.Parse(hello)
	}
}
