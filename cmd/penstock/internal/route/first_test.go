package route

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/firstbytes"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// begun is what clients send in these tests, and the server name of those that speak TLS.
var begun = []struct{ bytes, sni string }{
	{"SSH-2.0-x\r\n", ""}, {"GET / HTTP/1.1\r\nHost: a.b\r\n\r\n", ""}, {"PUT / HTTP/1.1\r\nHost: c\r\n\r\n", ""}, {"GET / HTTP/1.0\r\n\r\n", ""},
	{"\x16\x03\x01\x00\x05\x01\x00\x00\x01a", "a.b"}, {"\x16\x03\x01\x00\x05\x01\x00\x00\x01c", ""}, {"ab", ""}, {"abcdef", ""}, {"MAIL x\r\n", ""}, {"", ""},
}

func (d draw) firstRoute(i int) *spec.Route {
	r := &spec.Route{Name: fmt.Sprint("r", i)}
	switch d.next(6) {
	case 0:
		r.Protocols = []string{spec.Protocols[d.next(3)], spec.Protocols[d.next(len(spec.Protocols))]}
	case 1:
		r.Prefixes = [][]byte{[]byte([]string{"a", "abc", "SSH-1", "GET / H", "\x16"}[d.next(5)]), []byte("abcdefgh")}
	case 2:
		r.Hosts = []string{[]string{"a.b", "*.b", "c", "x"}[d.next(4)]}
	case 3:
		r.SNI = []string{[]string{"a.b", "*.b", "x"}[d.next(3)]}
	case 4:
		r.Silence = time.Duration(1+d.next(3)) * time.Second
	}
	if d.next(3) == 0 {
		r.From = []spec.Network{{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(d.next(3))}), 16)}}
	}
	if d.next(4) == 0 && len(r.Hosts) > 0 {
		r.Protocols = []string{"http"}
	}
	return r
}

// seenOf returns what is known of a client when n of its bytes have come, and no more will if over is true.
func seenOf(from netip.Addr, bytes, sni string, n int, over bool) Meta {
	m := Meta{Client: from, First: firstbytes.New()}
	m.First.Add([]byte(bytes[:n]), over)
	switch hello := n > 0 && bytes[0] == 22; {
	case hello && n == len(bytes):
		m.SNI = sni
	case hello || n == 0:
		m.Halting = !over
	}
	return m
}

// What Find returns is what the routes say, one by one; and once Pending says that no more bytes are needed, more do not change it.
func TestFirstBytes(t *testing.T) {
	seed := rand.Uint64()
	d := draw{rand.New(rand.NewPCG(seed, 1)).IntN}
	early := 0
	for range 20_000 {
		l := &spec.Listener{}
		for i := range 1 + d.next(6) {
			l.Routes = append(l.Routes, d.firstRoute(i))
		}
		if d.next(2) == 0 {
			l.Default = &spec.Route{Name: "default"}
		}
		table := New(l, nil)
		from := netip.AddrFrom4([4]byte{10, byte(d.next(3)), 0, 1})
		c := begun[d.next(len(begun))]
		want, found := table.Find(seenOf(from, c.bytes, c.sni, len(c.bytes), true))
		for n := range len(c.bytes) + 1 {
			m := seenOf(from, c.bytes, c.sni, n, false)
			r, ok := table.Find(m)
			if e := table.Explain(m); e.Route != r || ok != (e.Route != nil) {
				t.Fatalf("seed %d: %d of %q: Find says %v, Explain %v", seed, n, c.bytes, r, e.Route)
			}
			if table.Pending(m) {
				continue
			}
			if r != want || ok != found {
				t.Fatalf("seed %d: %d of %q from %v: certainly %v, and then %v\n%v", seed, n, c.bytes, from, r, want, l.Routes)
			}
			if n < len(c.bytes) {
				early++
			}
		}
		if !table.Needs(from) {
			if r, _ := table.Find(Meta{Client: from}); r != want {
				t.Fatalf("seed %d: %q from %v needs no byte, and has %v, want %v", seed, c.bytes, from, r, want)
			}
		}
	}
	if early == 0 {
		t.Error("no decision was taken early")
	}
}

// A client that sends nothing takes the first route for that as soon as it has been silent for long enough, whatever could still come.
func TestSilence(t *testing.T) {
	table := New(&spec.Listener{Routes: []*spec.Route{
		{Name: "ssh", Protocols: []string{"ssh"}}, {Name: "late", Silence: 2 * time.Second, From: []spec.Network{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}}}, {Name: "soon", Silence: time.Second},
		{Name: "again", Silence: 2 * time.Second},
	}}, nil)
	if all := table.Silences(); !slices.Equal(all, []time.Duration{time.Second, 2 * time.Second}) {
		t.Fatal(all)
	}
	for _, c := range []struct {
		sent   string
		silent time.Duration
		route  string // empty: it is waited for
	}{{"", 0, ""}, {"", time.Second, "soon"}, {"", 2 * time.Second, "late"}, {"S", 0, ""}, {"SSH-", 0, "ssh"}} {
		m := Meta{Client: netip.MustParseAddr("10.0.0.1"), First: firstbytes.New()}
		m.First.Add([]byte(c.sent), false)
		m.First.Wait(c.silent)
		r, ok := table.Find(m)
		if table.Pending(m) != (c.route == "") || ok && r.Name != c.route {
			t.Errorf("%q, silent for %v: %v, pending %v", c.sent, c.silent, r, table.Pending(m))
		}
	}
}

// Looking a client up allocates nothing, with conditions on first bytes, too.
func TestFirstAllocates(t *testing.T) {
	l := &spec.Listener{Routes: []*spec.Route{{Name: "http", Hosts: []string{"a.test"}}, {Name: "ssh", Protocols: []string{"ssh"}}, {Name: "p", Prefixes: [][]byte{[]byte("xyz")}}}}
	table := New(l, nil)
	m := Meta{Client: netip.MustParseAddr("10.0.0.1"), First: firstbytes.New()}
	m.First.Add([]byte("SSH-2.0-x\r\n"), false)
	if n := testing.AllocsPerRun(100, func() { table.Find(m); table.Pending(m) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
