package relay

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/relay/stats"
)

// textual is what each named value can do.
type textual interface {
	fmt.Stringer
	encoding.TextMarshaler
}

// TestText: every value has the same text in a log of either form, in JSON and
// as text, and is found again by it.
func TestText(t *testing.T) {
	ip := netip.MustParseAddrPort("[2001:db8::1]:53")
	texts := map[textual]string{
		CauseNone: "open", CauseClientReset: "client-reset", CauseKilled: "killed",
		Network(0): "", TCP: "tcp", Unix: "unix", Echo: "echo", Discard: "discard", UDP: "udp", Unixgram: "unixgram",
		stats.DropFull: "full", stats.DropEnded: "ended",
		Addr{}:                                  "",
		Addr{Network: TCP, AddrPort: ip}:        "tcp://[2001:db8::1]:53",
		Addr{Network: UDP, AddrPort: ip}:        "udp://[2001:db8::1]:53",
		Addr{Network: Unix, Path: "/run/a b"}:   "unix:///run/a b",
		Addr{Network: Unix, Path: "@a"}:         "unix:@a",
		Addr{Network: Unix}:                     "unix:",
		Addr{Network: Unixgram, Path: "/run/a"}: "unixgram:///run/a",
		Addr{Network: Echo}:                     "echo:",
		Addr{Network: Discard}:                  "discard:",
	}
	for v, want := range texts {
		if v.String() != want || fmt.Sprint(v) != want || slog.AnyValue(v).String() != want {
			t.Errorf("%T %#v is %q, and %q in a log; want %q", v, v, v.String(), slog.AnyValue(v), want)
		}
		again := reflect.New(reflect.TypeOf(v))
		text, err := v.MarshalText()
		if string(text) != want || err != nil {
			t.Errorf("%T %q: MarshalText gives %q, %v", v, want, text, err)
		}
		if err := again.Interface().(encoding.TextUnmarshaler).UnmarshalText(text); err != nil || again.Elem().Interface() != v {
			t.Errorf("%T %q is read as %#v, %v", v, text, again.Elem().Interface(), err)
		}
		if got, err := json.Marshal(v); err != nil || string(got) != fmt.Sprintf("%q", want) {
			t.Errorf("%T %q is %s in JSON, %v", v, want, got, err)
		}
		if got := logged(slog.Any("v", v)); got != fmt.Sprintf(`{"v":%q}`, want) {
			t.Errorf("%T %q is logged as %s", v, want, got)
		}
	}
}

// TestUnknownText: what has no name is called unknown, which names nothing.
func TestUnknownText(t *testing.T) {
	for _, v := range []textual{Cause(200), Network(200), stats.Drop(200)} {
		if v.String() != "unknown" {
			t.Errorf("%T 200 is %q", v, v.String())
		}
		again := reflect.New(reflect.TypeOf(v))
		err := again.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte("unknown"))
		if err == nil || !strings.Contains(err.Error(), `"unknown"; known: `) || !again.Elem().IsZero() {
			t.Errorf("%T: %v, %v", v, again.Elem().Interface(), err)
		}
	}
}

func TestParseAddr(t *testing.T) {
	ap := netip.MustParseAddrPort
	for url, want := range map[string]Addr{
		"tcp://10.0.0.1:80":    {Network: TCP, AddrPort: ap("10.0.0.1:80")},
		"udp://[fe80::1%e0]:0": {Network: UDP, AddrPort: ap("[fe80::1%e0]:0")},
		"unix:///run/app":      {Network: Unix, Path: "/run/app"},
		"unix:@app":            {Network: Unix, Path: "@app"},
		"unix:":                {Network: Unix},
		"unixgram:///run/log":  {Network: Unixgram, Path: "/run/log"},
		"echo:":                {Network: Echo},
		"discard:":             {Network: Discard},
	} {
		if a, err := ParseAddr(url); a != want || err != nil || a.String() != url {
			t.Errorf("%q is %#v, which is %q, %v", url, a, a, err)
		}
	}
	for _, url := range []string{"", "tcp", "tcp:", "tcp:10.0.0.1:80", "tcp://host:80", "10.0.0.1:80", ":", "echo:x", "ftp://10.0.0.1:80", "tcp://10.0.0.1"} {
		if a, err := ParseAddr(url); a != (Addr{}) || err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%q is %#v, %v", url, a, err)
		}
		a := Addr{Network: Echo}
		if err := a.UnmarshalText([]byte(url)); (err == nil) != (url == "") || err != nil && a.Network != Echo {
			t.Errorf("%q is unmarshalled to %#v, %v", url, a, err)
		}
	}
}

func TestRecordText(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:4000")
	r := Record{
		ID: 7, Client: Addr{Network: TCP, AddrPort: at}, Upstream: Addr{Network: Unix, Path: "/run/app"}, Attempts: 2,
		Up: Transfer{Read: 12, Written: 10, Path: datapath.Copy, Why: datapath.WhySmall}, Down: Transfer{Read: 20, Written: 20, Spliced: 20, Path: datapath.Splice},
		Duration: 1500 * time.Millisecond, Cause: CauseUpstreamFailed, Err: errors.New("broken"),
	}
	const line = "tcp://192.0.2.1:4000 to unix:///run/app: upstream-failed: broken; 10 bytes up, 20 down in 1.5s"
	if r.String() != line {
		t.Errorf("the record is %q", r)
	}
	if got, want := (&Record{Cause: CauseRefused, Client: r.Client}).String(), "tcp://192.0.2.1:4000 to no upstream: refused; 0 bytes up, 0 down in 0s"; got != want {
		t.Errorf("the record is %q, want %q", got, want)
	}
	const object = `{"id":"7","cause":"upstream-failed","client":"tcp://192.0.2.1:4000","upstream":"unix:///run/app","bytes_up":10,"bytes_down":20,"duration":1500000000,"bytes_dropped":2,"attempts":2,"path_up":"copy: small reads","path_down":"splice","error":"broken"}`
	for _, v := range []any{r, &r} { // Done has a pointer
		if got := logged(slog.Any("flow", v)); got != `{"flow":`+object+`}` {
			t.Errorf("logged as %s", got)
		}
		var want, got map[string]any
		text, err := json.Marshal(v)
		if err != nil || json.Unmarshal([]byte(object), &want) != nil || json.Unmarshal(text, &got) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("in JSON: %s, %v", text, err)
		}
	}
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, bare)).Info("over", "flow", &r)
	if want := "msg=over flow.id=7 flow.cause=upstream-failed flow.client=tcp://192.0.2.1:4000 flow.upstream=unix:///run/app flow.bytes_up=10 flow.bytes_down=20 flow.duration=1.5s flow.bytes_dropped=2 flow.attempts=2" +
		` flow.path_up="copy: small reads" flow.path_down=splice flow.error=broken` + "\n"; b.String() != want {
		t.Errorf("logged as %s", b.String())
	}
}

// TestLoggedAsText: slog's handler for text shows names as well.
func TestLoggedAsText(t *testing.T) {
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, bare)).Info("m", "cause", CauseClientReset, "path", datapath.GSO, "why", datapath.WhySingle, "network", UDP, "drop", stats.DropTooBig, "addr", Addr{Network: Echo})
	if want := `msg=m cause=client-reset path=gso why="single datagrams" network=udp drop=too-big addr=echo:` + "\n"; b.String() != want {
		t.Errorf("logged as %s", b.String())
	}
}

// bare leaves time and level out.
var bare = &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey && a.Value.String() == "") {
		return slog.Attr{}
	}
	return a
}}

// logged is how slog's handler for JSON writes an attribute.
func logged(a slog.Attr) string {
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, bare)).Info("", a)
	return strings.TrimSpace(b.String())
}

// What the built-in upstreams are for both kinds of flow, a value that is not a
// network is for neither.
func TestNetworkKinds(t *testing.T) {
	for _, c := range []struct {
		n                  Network
		streams, datagrams bool
	}{{0, false, false}, {TCP, true, false}, {Unix, true, false}, {Echo, true, true}, {Discard, true, true}, {UDP, false, true}, {Unixgram, false, true}, {Unixgram + 1, false, false}} {
		if c.n.Streams() != c.streams || c.n.Datagrams() != c.datagrams {
			t.Errorf("%d %q: streams %v, datagrams %v", c.n, c.n, c.n.Streams(), c.n.Datagrams())
		}
	}
}

func FuzzAddr(f *testing.F) {
	for _, s := range []string{"", "tcp://10.0.0.1:80", "udp://[fe80::1%e0]:53", "unix:///a", "unix:@a", "unix:a", "unix:////", "echo:", "tcp://"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var a, b Addr
		if a.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := b.UnmarshalText([]byte(a.String())); err != nil || a != b {
			t.Errorf("%q: %#v, then %q: %#v, %v", text, a, a, b, err)
		}
	})
}
