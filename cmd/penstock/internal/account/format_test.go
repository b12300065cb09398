package account

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/stats"
)

func line(t testing.TB, format string, e *Entry) string {
	t.Helper()
	f, err := newFormatter(format)
	if err != nil {
		t.Fatal(err)
	}
	return string(f(nil, e))
}

func TestGoldenLines(t *testing.T) {
	empty := &Entry{}
	hostile := &Entry{SNI: "a\"b\\c\n}\x00\x1b\x7f\u0085é\xff", Record: relay.Record{Err: errors.New("line\r\nline")}}
	secured := &Entry{Identity: Identity{Subject: "CN=ops,O=Example", Names: "spiffe://example.org/ops,ops.example", Serial: "1f"}, Record: relay.Record{
		ClientTLS:   &stats.TLS{Version: tls.VersionTLS13, CipherSuite: tls.TLS_AES_128_GCM_SHA256, Protocol: "h2", Resumed: true, Handshake: 2 * time.Millisecond, Received: 100, Sent: 200},
		UpstreamTLS: &stats.TLS{Version: tls.VersionTLS12, CipherSuite: tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, Handshake: 3 * time.Millisecond, Received: 30, Sent: 40},
	}}
	asked := &Entry{StartTLS: "request", JA4: "t13d1516h2_8daaf6152771_e5627efa2ab1"}
	moved := &Entry{QUIC: QUIC{Version: "2", ID: "0a0b", Came: "learned"}}
	failed := &Entry{Record: relay.Record{ClientTLS: &stats.TLS{Received: 5}}}
	for _, c := range []struct {
		format string
		e      *Entry
		want   string
	}{
		{JSON, entry(), `{"time":"2026-11-21T08:00:00.123456Z","id":"72057594037927943","listener":"https","route":"api","group":"app","member":"app-1",` +
			`"client":"tcp://192.0.2.1:1000","client_ip":"192.0.2.1","peer":"tcp://[2001:db8::1]:443","local":"tcp://192.0.2.9:443","upstream":"unix:///run/app.sock",` +
			`"sni":"example.org","alpn":"h2,http/1.1","cause":"upstream-reset","reason":"killed","error":"read: \"reset\"",` +
			`"bytes_up":10,"bytes_down":20,"bytes_dropped":10,"datagrams_up":4,"datagrams_down":5,"datagrams_dropped":1,` +
			`"queued":1.000000,"connect":0.001500,"first_byte":0.025000,"duration":61.020000,"retries":2,` +
			`"path_up":"copy","why_up":"small reads","path_down":"splice"}`},
		{JSON, empty, `{"time":"0001-01-01T00:00:00Z","id":"0","cause":"open","bytes_up":0,"bytes_down":0,"duration":0.000000,"path_up":"none","path_down":"none"}`},
		{JSON, secured, `{"time":"0001-01-01T00:00:00Z","id":"0","client_subject":"CN=ops,O=Example","client_names":"spiffe://example.org/ops,ops.example","client_serial":"1f",` +
			`"cause":"open","bytes_up":0,"bytes_down":0,"duration":0.000000,"path_up":"none","path_down":"none",` +
			`"tls":"1.3","tls_cipher":"TLS_AES_128_GCM_SHA256","tls_protocol":"h2","tls_resumed":true,"tls_handshake":0.002000,"tls_wire_up":100,"tls_wire_down":200,` +
			`"upstream_tls":"1.2","upstream_tls_cipher":"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256","upstream_tls_resumed":false,"upstream_tls_handshake":0.003000,"upstream_tls_wire_up":40,"upstream_tls_wire_down":30}`},
		{"{tls} {tls_cipher} {tls_resumed} {tls_wire_up} {client_subject}", failed, "- - - 5 -"},
		{"{starttls} {sni} {ja4}", asked, "request - t13d1516h2_8daaf6152771_e5627efa2ab1"},
		{"{quic_version} {quic_id} {quic_came}", moved, "2 0a0b learned"},
		{"{client} {listener} {bytes_up}", entry(), "tcp://192.0.2.1:1000 https 10"},
		{"{client} {sni} {connect} {duration}", empty, "- - - 0.000000"},
		{"{{{id}}}\t\"{error}\"", entry(), "{72057594037927943}\t\"read: \\x22reset\\x22\""},
		{"{sni} {error}", hostile, `a\x22b\x5cc\x0a}\x00\x1b\x7f\xc2\x85\xc3\xa9\xff line\x0d\x0aline`},
		{JSON, hostile, `{"time":"0001-01-01T00:00:00Z","id":"0","sni":"a\"b\\c\u000a}\u0000\u001b\u007f\u0085é\ufffd","cause":"open","error":"line\u000d\u000aline",` +
			`"bytes_up":0,"bytes_down":0,"duration":0.000000,"path_up":"none","path_down":"none"}`},
	} {
		if got := line(t, c.format, c.e); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.format, got, c.want)
		}
	}
}

// What encoding/json reads back is what was written.
func TestJSONReadsBack(t *testing.T) {
	for _, s := range []string{"", "plain", "\x00\x01\x1f ~\x7f", `\"`, "é\u0085\u2028\u202e😀", "a\xffb\xc3", strings.Repeat("\n", 500)} {
		e := entry()
		e.SNI = s
		var got map[string]any
		if err := json.Unmarshal([]byte(line(t, JSON, e)), &got); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		want := strings.ToValidUTF8(s, "\ufffd")
		if have, _ := got["sni"].(string); have != want {
			t.Errorf("%q came back as %q", s, have)
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, a := range []relay.Addr{
		{}, tcp("192.0.2.1:1"), tcp("[fe80::1%eth0]:2"), {Network: relay.UDP, AddrPort: tcp("192.0.2.1:1").AddrPort},
		{Network: relay.Unix, Path: "/p"}, {Network: relay.Unix, Path: "@n"}, {Network: relay.Unix}, {Network: relay.Unixgram, Path: "/p"},
		{Network: relay.Echo}, {Network: relay.Discard},
	} {
		if got := string(appendAddr(nil, &a)); got != a.String() {
			t.Errorf("%q, want %q", got, a.String())
		}
	}
}

func TestCheckFormat(t *testing.T) {
	for format, want := range map[string]string{
		JSON:              "",
		"{time} {{x}} }}": "",
		"jsonn":           `"jsonn" has no field; allowed: json, or a template`,
		"":                `"" has no field`,
		"{tine}":          `column 1: unknown field "tine"; allowed: time, id,`,
		"a {time":         "column 3: { has no }",
		"{time} }":        "column 8: } has no {",
		"{time}\n":        "column 7: invalid control character",
	} {
		err := CheckFormat(format)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", format, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%q: %v, want %s", format, err, want)
		case err != nil && strings.ContainsAny(err.Error(), "\n\r"):
			t.Errorf("%q: %q is more than a line", format, err)
		}
	}
}

// No template and no value makes a line that is more than one, or that does
// something to a terminal.
func FuzzTemplate(f *testing.F) {
	f.Add("{client} {sni}", "example.org")
	f.Add("{{{sni}}}{error}", "\n\"\\\xff")
	f.Add("{", "")
	f.Add("{sni", "}")
	f.Fuzz(func(t *testing.T, format, value string) {
		e := entry()
		e.SNI, e.Member, e.Err = value, value, errors.New(value)
		e.Upstream = relay.Addr{Network: relay.Unix, Path: value}
		out := appendJSON(nil, e)
		var got map[string]any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		if have, _ := got["sni"].(string); have != strings.ToValidUTF8(value, "\ufffd") && have != replaced(value) {
			t.Errorf("%q came back as %q", value, have)
		}
		for _, r := range string(out) {
			if unicode.IsControl(r) || !utf8.Valid(out) {
				t.Fatalf("%q", out)
			}
		}
		make, err := newFormatter(format)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("%q: %q is more than a line", format, err)
			}
			return
		}
		text := make(nil, e)
		if bytes.ContainsFunc(bytes.ReplaceAll(text, []byte("\t"), nil), func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%q with %q: %q", format, value, text)
		}
		if n := strings.Count(format, `"`); format != JSON && bytes.Count(text, []byte(`"`)) != n {
			t.Errorf("%q with %q: %q has another number of quotes", format, value, text)
		}
	})
}

// replaced is s with each byte that is no UTF-8 replaced by itself;
// strings.ToValidUTF8 replaces runs.
func replaced(s string) string { return string([]rune(s)) }

func TestFormatsAllocateNothing(t *testing.T) {
	e := entry()
	e.SNI = "needs\nescapes"
	buf := make([]byte, 0, 4096)
	for _, format := range []string{JSON, "{time} {client} {sni} {bytes_up} {duration}"} {
		f, err := newFormatter(format)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() { buf = f(buf[:0], e) }); n != 0 {
			t.Errorf("%s: %v allocations", format, n)
		}
	}
}

// Every field is documented, and what is documented is a field.
func TestFieldsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/observing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Access log\n")
	if !ok {
		t.Fatal("docs/observing.md has no section Access log")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| ((?:`[a-z0-9_]+`(?:, )?)+) \\|").FindAllStringSubmatch(section, -1) {
		documented = append(documented, regexp.MustCompile("[a-z0-9_]+").FindAllString(row[1], -1)...)
	}
	if got := strings.Join(documented, ", "); got != FieldNames() {
		t.Errorf("documented, in order:\n%s\nwant:\n%s", got, FieldNames())
	}
}

// The daemon asks for the local address only if a log writes the field.
func TestWantsLocal(t *testing.T) {
	for format, want := range map[string]bool{JSON: true, "{client} {local}": true, "{client}": false, "{{local}} {id}": false} {
		l, err := Open(spec.AccessLog{To: filepath.Join(t.TempDir(), "log"), Format: format, Mode: 0o600}, slog.New(slog.DiscardHandler), Progress{}, Opening{})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.WantsLocal(); got != want {
			t.Errorf("%s: %v, want %v", format, got, want)
		}
		l.Close()
	}
	if (*Log)(nil).WantsLocal() {
		t.Error("no log wants it")
	}
}

func BenchmarkLine(b *testing.B) {
	for _, c := range []struct{ name, format string }{{"json", JSON}, {"template", "{time} {client} {listener} {cause} {bytes_up} {bytes_down} {duration}"}} {
		b.Run("format="+c.name, func(b *testing.B) {
			f, err := newFormatter(c.format)
			if err != nil {
				b.Fatal(err)
			}
			e := entry()
			e.Err, e.Reason = nil, 0
			buf := make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				buf = f(buf[:0], e)
			}
			b.ReportMetric(float64(len(buf)), "B/line")
		})
	}
	b.Run("format=encoding-json", func(b *testing.B) {
		// What the standard library would cost for the same object.
		var v map[string]any
		if err := json.Unmarshal([]byte(line(b, JSON, entry())), &v); err != nil {
			b.Fatal(err)
		}
		type object struct {
			Time, ID, Listener, Route, Group, Member, Client, ClientIP, Peer, Local, Upstream, SNI, ALPN, Cause, PathUp, WhyUp, PathDown string
			BytesUp, BytesDown, BytesDropped, DatagramsUp, DatagramsDown, DatagramsDropped, Retries                                      int64
			Queued, Connect, FirstByte, Duration                                                                                         float64
		}
		o := object{"2026-11-21T08:00:00.123456Z", "72057594037927943", "https", "api", "app", "app-1", "tcp://192.0.2.1:1000", "192.0.2.1", "tcp://[2001:db8::1]:443",
			"tcp://192.0.2.9:443", "unix:///run/app.sock", "example.org", "h2,http/1.1", "upstream-reset", "copy", "small reads", "splice", 10, 20, 10, 4, 5, 1, 2, 1, .0015, .025, 61.02}
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		b.ReportAllocs()
		for b.Loop() {
			out.Reset()
			if err := enc.Encode(&o); err != nil {
				b.Fatal(err)
			}
		}
	})
}
