package clienthello

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// parse is Parse; more reports that the ClientHello is incomplete.
func parse(b []byte) (h Hello, more bool, err error) {
	if h, err = Parse(b); err == ErrIncomplete {
		return h, true, nil
	}
	return h, false, err
}

// recordOf puts handshake bytes into records of at most size bytes.
func recordOf(message []byte, size int) (b []byte) {
	for part := range slices.Chunk(message, size) {
		b = append(b, 22, 3, 1, byte(len(part)>>8), byte(len(part)))
		b = append(b, part...)
	}
	return b
}

// message takes handshake bytes out of their records.
func message(tb testing.TB, b []byte) (m []byte) {
	tb.Helper()
	for len(b) > 0 {
		n := int(binary.BigEndian.Uint16(b[3:]))
		m = append(m, b[5:5+n]...)
		b = b[5+n:]
	}
	return m
}

// capture is what a connection's client writes first.
type capture struct {
	net.Conn
	got []byte
}

func (c *capture) Write(b []byte) (int, error) {
	c.got = append(c.got, b...)
	return 0, net.ErrClosed
}

// hello is the ClientHello of crypto/tls.
func hello(tb testing.TB, cfg *tls.Config) []byte {
	tb.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	c := &capture{Conn: a}
	_ = tls.Client(c, cfg).Handshake()
	if len(c.got) == 0 {
		tb.Fatal("no ClientHello")
	}
	return c.got
}

// echConfigs is an ECHConfigList (RFC 9849, 4) for a key that no server has.
func echConfigs(tb testing.TB, public string) []byte {
	tb.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	body := []byte{7, 0x00, 0x20} // config id, KEM X25519
	body = append(body, 0, 32)
	body = append(body, key.PublicKey().Bytes()...)
	body = append(body, 0, 4, 0, 1, 0, 1, 64) // HKDF-SHA256 with AES-128-GCM, longest name
	body = append(body, byte(len(public)))
	body = append(body, public...)
	body = append(body, 0, 0)
	config := append([]byte{0xfe, 0x0d, byte(len(body) >> 8), byte(len(body))}, body...)
	return append([]byte{byte(len(config) >> 8), byte(len(config))}, config...)
}

// hellos are real ones, by what they are.
func hellos(tb testing.TB) map[string]struct {
	b    []byte
	want Hello
} {
	all := []uint16{tls.VersionTLS13, tls.VersionTLS12} // what crypto/tls offers as it comes
	type sample = struct {
		b    []byte
		want Hello
	}
	classic := []tls.CurveID{tls.X25519}
	return map[string]sample{
		"classic": {hello(tb, &tls.Config{ServerName: "Www.Example.ORG", NextProtos: []string{"h2", "http/1.1"}, CurvePreferences: classic}),
			Hello{ServerName: "www.example.org", SupportedProtos: []string{"h2", "http/1.1"}, SupportedVersions: all}},
		"pq": {hello(tb, &tls.Config{ServerName: "pq.example.org", NextProtos: []string{"h2"}, CurvePreferences: []tls.CurveID{tls.X25519MLKEM768}}),
			Hello{ServerName: "pq.example.org", SupportedProtos: []string{"h2"}, SupportedVersions: all}},
		"pq-large": {hello(tb, &tls.Config{ServerName: "pq.example.org", CurvePreferences: []tls.CurveID{tls.SecP384r1MLKEM1024}}),
			Hello{ServerName: "pq.example.org", SupportedVersions: all}},
		"tls12": {hello(tb, &tls.Config{ServerName: "old.example.org", MaxVersion: tls.VersionTLS12}),
			Hello{ServerName: "old.example.org", SupportedVersions: all[1:]}},
		"no-name": {hello(tb, &tls.Config{InsecureSkipVerify: true}), Hello{SupportedVersions: all}},
		"ech": {hello(tb, &tls.Config{ServerName: "secret.example.org", MinVersion: tls.VersionTLS13,
			EncryptedClientHelloConfigList: echConfigs(tb, "public.example.org")}),
			Hello{ServerName: "public.example.org", SupportedVersions: all[:1], ECH: true}},
	}
}

func sameHello(a, b Hello) bool {
	return slices.Equal(a.SupportedVersions, b.SupportedVersions) && a.ServerName == b.ServerName && slices.Equal(a.SupportedProtos, b.SupportedProtos) && a.ECH == b.ECH
}

// Cut after every byte, the answer is "more" until the last one, and the same
// whatever follows.
func TestHelloCutAtEveryByte(t *testing.T) {
	for name, c := range hellos(t) {
		if name == "pq-large" && len(c.b) < 1700 {
			t.Errorf("%s has only %d bytes", name, len(c.b))
		}
		for n := range c.b {
			if h, more, err := parse(c.b[:n]); !more || err != nil {
				t.Fatalf("%s, %d of %d bytes: %+v, %v, %v", name, n, len(c.b), h, more, err)
			}
		}
		for _, tail := range []string{"", "\x16\x03\x01", "GET /"} {
			h, more, err := parse(append(slices.Clone(c.b), tail...))
			if err != nil || more || !sameHello(h, c.want) {
				t.Errorf("%s: %+v, %v, %v, want %+v", name, h, more, err, c.want)
			}
		}
	}
}

// Put into records of every size, it is the same hello.
func TestHelloInRecordsOfEverySize(t *testing.T) {
	for name, c := range hellos(t) {
		m := message(t, c.b)
		for size := 1; size <= len(m); size++ {
			b := recordOf(m, size)
			if h, more, err := parse(b); err != nil || more || !sameHello(h, c.want) {
				t.Fatalf("%s in records of %d: %+v, %v, %v, want %+v", name, size, h, more, err, c.want)
			}
			if _, more, err := parse(b[:len(b)-1]); err != nil || !more {
				t.Fatalf("%s in records of %d, without the last byte: %v, %v", name, size, more, err)
			}
		}
	}
}

// openssl has another order, other extensions and other sizes.
func TestHelloOfOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	for _, args := range [][]string{
		{"-servername", "S_client.Example.Org", "-alpn", "h2,imap"},
		{"-servername", "S_client.Example.Org", "-alpn", "h2,imap", "-tls1_2"},
		{"-noservername"},
	} {
		l := testnet.Listen(t, "tcp4")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, openssl, append([]string{"s_client", "-connect", l.Addr().String()}, args...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		var got []byte
		var h Hello
		for more := true; more && err == nil; {
			var n int
			buf := make([]byte, 100)
			if n, err = c.Read(buf); err == nil {
				got = append(got, buf[:n]...)
				h, more, err = parse(got)
			}
		}
		want := Hello{SupportedVersions: []uint16{tls.VersionTLS13, tls.VersionTLS12, tls.VersionTLS11, tls.VersionTLS10}}
		if args[0] == "-servername" {
			want.ServerName, want.SupportedProtos = "s_client.example.org", []string{"h2", "imap"}
		}
		if slices.Contains(args, "-tls1_2") {
			want.SupportedVersions = want.SupportedVersions[1:]
		}
		if len(h.SupportedVersions) == len(want.SupportedVersions)-2 { // the system's OpenSSL has none before TLS 1.2
			want.SupportedVersions = want.SupportedVersions[:len(h.SupportedVersions)]
		}
		if err != nil || !sameHello(h, want) {
			t.Errorf("%v: %+v, %v, want %+v", args, h, err, want)
		}
		c.Close()
		l.Close()
		_ = cmd.Wait() // it fails, because there is no answer
	}
}

// made is a hello with the extensions given, as type, bytes.
func made(extensions ...any) []byte {
	var ext []byte
	for i := 0; i < len(extensions); i += 2 {
		kind, body := extensions[i].(int), extensions[i+1].(string)
		ext = append(ext, byte(kind>>8), byte(kind), byte(len(body)>>8), byte(len(body)))
		ext = append(ext, body...)
	}
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0) // no session, one suite, no compression
	body = append(body, byte(len(ext)>>8), byte(len(ext)))
	body = append(body, ext...)
	return recordOf(append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...), recordMax)
}

// names is the body of a server_name extension.
func names(list ...string) string {
	var b []byte
	for _, s := range list {
		b = append(b, 0, byte(len(s)>>8), byte(len(s)))
		b = append(b, s...)
	}
	return string([]byte{byte(len(b) >> 8), byte(len(b))}) + string(b)
}

func TestHelloNames(t *testing.T) {
	long := strings.Repeat("a", 63)
	full := strings.Repeat(long+".", 3) + strings.Repeat("b", 61) // 253
	for name, want := range map[string]any{
		"example.org":                    "example.org",
		"EXAMPLE.org.":                   "example.org",
		"xn--bcher-kva.test":             "xn--bcher-kva.test",
		"_dmarc.example.org":             "_dmarc.example.org",
		"localhost":                      "localhost",
		"1.example":                      "1.example",
		long + ".test":                   long + ".test",
		full:                             full,
		full + ".":                       full,
		full + "b":                       errName,
		long + "a.test":                  errName,
		strings.Repeat("a.", 127) + "ab": errName, // 256
		"":                               errName,
		".":                              errName,
		"..":                             errName,
		".example.org":                   errName,
		"a..example":                     errName,
		"a b":                            errName,
		"a\x00b":                         errName,
		"b\xc3\xbccher":                  errName,
		"*.example.org":                  errName,
		"a/b":                            errName,
		"example.org:1":                  errName,
		"192.0.2.1":                      errLiteral,
		"192.0.2.1.":                     errLiteral,
		"2130706433":                     errLiteral,
		"2001:db8::1":                    errLiteral,
		"[2001:db8::1]":                  errName,
	} {
		h, more, err := parse(made(extensionServerName, names(name)))
		if refused, ok := want.(error); ok {
			if err != refused || h.ServerName != "" {
				t.Errorf("%q: %q, %v, want %v", name, h.ServerName, err, refused)
			}
		} else if err != nil || more || h.ServerName != want {
			t.Errorf("%q: %q, %v, %v, want %v", name, h.ServerName, more, err, want)
		}
	}
}

func TestHelloBad(t *testing.T) {
	good := made(extensionServerName, names("a.test"))
	edit := func(at int, to byte) []byte {
		b := slices.Clone(good)
		b[at] = to
		return b
	}
	huge := recordOf(append([]byte{1, 1, 0, 0}, make([]byte, 1<<16)...), recordMax)
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"http":                    {[]byte("G"), ErrNotTLS},
		"ssh":                     {[]byte("SSH-2.0"), ErrNotTLS},
		"SSLv2":                   {[]byte{0x80, 0x2e, 1, 0, 2}, ErrNotTLS},
		"an alert":                {[]byte{21}, ErrNotTLS},
		"a control character":     {[]byte{22, 13}, ErrNotTLS},
		"a ServerHello":           {edit(5, 2), ErrNotTLS},
		"an empty record":         {[]byte{22, 3, 1, 0, 0}, errRecord},
		"a large record":          {[]byte{22, 3, 1, 0x40, 1}, errRecord},
		"another record between":  {append(recordOf([]byte{1, 0}, 2), 23, 3, 3, 0, 1), errRecord},
		"a large message":         {recordOf([]byte{1, 2, 0, 0}, 4), errSize},
		"large with its records":  {huge, errSize},
		"large while it arrives":  {huge[:MaxSize], errSize},
		"a short message":         {recordOf([]byte{1, 0, 0, 2, 3, 3}, 9), errLength},
		"extensions too long":     {edit(5+4+2+32+7+1, 99), errLength},
		"bytes behind":            {edit(5+4+2+32+7+1, 3), errLength},
		"a name too long":         {made(extensionServerName, "\x00\x05\x00\x00\x03a"), errLength},
		"no list of names":        {made(extensionServerName, ""), errLength},
		"an empty list":           {made(extensionServerName, "\x00\x00"), errLength},
		"bytes behind the list":   {made(extensionServerName, names("a.test")+"x"), errLength},
		"two names":               {made(extensionServerName, names("a.test", "b.test")), errTwice},
		"two lists of names":      {made(extensionServerName, names("a.test"), extensionServerName, names("b.test")), errTwice},
		"two lists of versions":   {made(extensionVersions, "\x02\x03\x04", extensionVersions, "\x02\x03\x04"), errTwice},
		"no version":              {made(extensionVersions, "\x00"), errLength},
		"half a version":          {made(extensionVersions, "\x03\x03\x04\x03"), errLength},
		"bytes behind versions":   {made(extensionVersions, "\x02\x03\x04\x00"), errLength},
		"two lists of protocols":  {made(extensionALPN, "\x00\x03\x02h2", extensionALPN, "\x00\x03\x02h2"), errTwice},
		"an empty protocol":       {made(extensionALPN, "\x00\x01\x00"), errProtocol},
		"65 protocols":            {made(extensionALPN, "\x00\x82"+strings.Repeat("\x01x", 65)), errProtocol},
		"a protocol too long":     {made(extensionALPN, "\x00\x03\x03h2"), errLength},
		"an empty protocol list":  {made(extensionALPN, "\x00\x00"), errLength},
		"no list of protocols":    {made(extensionALPN, "\x00"), errLength},
		"an extension cut short":  {made(extensionECH, "\x00")[:0], nil},
		"an IP address and a dot": {made(extensionServerName, names("127.1.")), errLiteral},
	} {
		h, more, err := parse(c.b)
		if err != nil && err != ErrNotTLS && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v is of no kind", name, err)
		}
		if !errors.Is(err, c.want) || more != (c.want == nil) || !sameHello(h, Hello{}) {
			t.Errorf("%s: %+v, %v, %v, want %v", name, h, more, err, c.want)
		}
	}
}

// GREASE (RFC 8701), unknown extensions, names of other kinds and a hello without
// extensions are no error.
func TestHelloUnknown(t *testing.T) {
	h, more, err := parse(made(0x0a0a, "", 0x1234, "xyz",
		extensionServerName, "\x00\x10"+"\x07\x00\x04\x00\xff\x00\xff"+names("a.test")[2:],
		extensionALPN, "\x00\x06\x02\x0a\x0a\x02h3", extensionECH, "", extensionVersions, "\x04\x0a\x0a\x03\x04", 0xfafa, "\x00"))
	if want := (Hello{ServerName: "a.test", SupportedProtos: []string{"\x0a\x0a", "h3"}, SupportedVersions: []uint16{0x0a0a, tls.VersionTLS13}, ECH: true}); err != nil || more || !sameHello(h, want) {
		t.Errorf("%+v, %v, %v, want %+v", h, more, err, want)
	}
	bare := made()
	m := message(t, bare)
	m = m[:len(m)-2]
	m[3] -= 2
	if h, more, err := parse(recordOf(m, 100)); err != nil || more || !sameHello(h, Hello{SupportedVersions: []uint16{tls.VersionTLS12, tls.VersionTLS11, tls.VersionTLS10}}) {
		t.Errorf("without extensions: %+v, %v, %v", h, more, err)
	}
}

func TestHelloAllocates(t *testing.T) {
	for name, c := range hellos(t) {
		if n := testing.AllocsPerRun(100, func() { parse(c.b[:len(c.b)-1]) }); n != 0 {
			t.Errorf("%s, not all there: %v allocations", name, n)
		}
		want := 1.0 // SupportedVersions
		if c.want.ServerName != "" {
			want++
		}
		if c.want.SupportedProtos != nil {
			want += 2
		}
		if n := testing.AllocsPerRun(100, func() { parse(c.b) }); n != want {
			t.Errorf("%s: %v allocations, want %v", name, n, want)
		}
	}
	get := []byte("GET / HTTP/1.1\r\n")
	if n := testing.AllocsPerRun(100, func() { Parse(get) }); n != 0 {
		t.Errorf("not TLS: %v allocations", n)
	}
}

// Whatever comes, a prefix that was refused stays refused, one that asks for more
// gets its answer in the end, and records do not matter. What crypto/tls takes
// for a hello has the same name and protocols here.
func FuzzHello(f *testing.F) {
	for _, c := range hellos(f) {
		f.Add(message(f, c.b), uint16(100))
	}
	f.Add(message(f, made(extensionServerName, names("a.test"), extensionALPN, "\x00\x03\x02h2")), uint16(1))
	f.Add([]byte{1, 0, 0, 2, 3, 3}, uint16(9))
	f.Fuzz(func(t *testing.T, m []byte, size uint16) {
		b := recordOf(m, min(recordMax, 1+int(size)))
		h, more, err := parse(b)
		if (err != nil || more) && !sameHello(h, Hello{}) || err != nil && more {
			t.Fatalf("%+v, %v, %v", h, more, err)
		}
		one, moreOne, errOne := parse(recordOf(m, recordMax))
		if len(b) <= MaxSize && (!sameHello(one, h) || moreOne != more || errOne != err) {
			t.Fatalf("in records of %d: %+v, %v, %v; of the largest: %+v, %v, %v", size, h, more, err, one, moreOne, errOne)
		}
		if h.ServerName != strings.ToLower(h.ServerName) || strings.HasSuffix(h.ServerName, ".") || len(h.ServerName) > 253 {
			t.Fatalf("name %q", h.ServerName)
		}
		for n := 0; n < len(b); n += 1 + len(b)/50 {
			if _, _, errCut := parse(b[:n]); errCut != nil && err != errCut {
				t.Fatalf("%d of %d bytes: %v, then %v", n, len(b), errCut, err)
			}
		}
		if err != nil || more {
			return
		}
		if info := asServer(b); info != nil {
			if strings.ToLower(info.ServerName) != h.ServerName || !slices.Equal(info.SupportedProtos, h.SupportedProtos) {
				t.Fatalf("%+v, crypto/tls has %q %q", h, info.ServerName, info.SupportedProtos)
			}
			// Without a list crypto/tls also takes a version above TLS 1.2 for what it says.
			if theirs := info.SupportedVersions; !slices.Equal(theirs, h.SupportedVersions) && !(len(theirs) > 0 && slices.Equal(theirs[1:], h.SupportedVersions)) {
				t.Fatalf("%+v, crypto/tls has versions %x", h, theirs)
			}
		}
	})
}

// asServer is what a server of crypto/tls understands; nil if nothing.
func asServer(b []byte) (info *tls.ClientHelloInfo) {
	refused := errors.New("refused")
	_ = tls.Server(&reading{r: bytes.NewReader(b)}, &tls.Config{GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
		info = i
		return nil, refused
	}}).Handshake()
	return info
}

type reading struct {
	net.Conn
	r *bytes.Reader
}

func (c *reading) Read(b []byte) (int, error)  { return c.r.Read(b) }
func (c *reading) Write(b []byte) (int, error) { return len(b), nil }
func (c *reading) RemoteAddr() net.Addr        { return &net.TCPAddr{} }
func (c *reading) LocalAddr() net.Addr         { return &net.TCPAddr{} }
func (c *reading) Close() error                { return nil }

func BenchmarkParse(b *testing.B) {
	for name, c := range hellos(b) {
		for _, size := range []string{"one", "100B"} {
			in := c.b
			if size == "100B" {
				in = recordOf(message(b, in), 100)
			}
			b.Run("hello="+name+"/records="+size, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					Parse(in)
				}
			})
		}
	}
}

// A message as QUIC carries it.
func TestParseMessage(t *testing.T) {
	m := message(t, hello(t, &tls.Config{ServerName: "www.example.org"}))
	h, err := ParseMessage(m)
	if want, _ := Parse(recordOf(m, 1000)); err != nil || h.ServerName == "" || h.ServerName != want.ServerName {
		t.Errorf("%+v, %v", h, err)
	}
	other := slices.Clone(m)
	other[0] = 2
	long := append([]byte{1, 1, 0, 0}, make([]byte, MaxSize)...)
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"nothing": {nil, ErrMalformed}, "its header": {m[:4], errLength}, "all but a byte": {m[:len(m)-1], errLength}, "a byte more": {append(slices.Clone(m), 0), errLength},
		"a ServerHello": {other, ErrNotTLS}, "too long": {long, errSize},
	} {
		t.Run(name, func(t *testing.T) {
			if h, err := ParseMessage(c.b); !errors.Is(err, c.want) || h.ServerName != "" {
				t.Errorf("%+v, %v", h, err)
			}
		})
	}
}
