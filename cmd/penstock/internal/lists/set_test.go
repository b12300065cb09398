package lists

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// addresses draws addresses that are near to each other, at the ends of ranges and of the index, too.
func draw(rnd *rand.Rand) netip.Addr {
	if rnd.IntN(2) == 0 {
		b := [4]byte{byte(rnd.IntN(3)) * 127, byte(rnd.IntN(3)) * 127, byte(rnd.IntN(256)), byte(rnd.IntN(256))}
		if rnd.IntN(8) == 0 {
			b = [4]byte{255, 255, 255, 255}
		}
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	for i := range b {
		b[i] = []byte{0, 0, 0, 1, 255}[rnd.IntN(5)]
	}
	b[0] = []byte{0x20, 0xff, 0}[rnd.IntN(3)]
	if a := netip.AddrFrom16(b); !a.Is4In6() {
		return a
	}
	return netip.IPv6Unspecified()
}

// A set says what asking each network in turn says, and names the widest.
func TestSetIsTheNaiveLoop(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		var list []Entry
		for i := range rnd.IntN(40) {
			a := draw(rnd)
			least := 0
			if rnd.IntN(4) > 0 {
				least = 9
			}
			p, _ := a.Prefix(least + rnd.IntN(a.BitLen()+1-least))
			list = append(list, Entry{p, uint32(i)})
		}
		s := NewSet(slices.Clone(list))
		for range 300 {
			a := draw(rnd)
			want, found := Entry{}, false
			for _, e := range list {
				if e.Network.Contains(a) && (!found || e.Network.Bits() < want.Network.Bits()) {
					want, found = e, true
				}
			}
			if got, ok := s.Lookup(a); ok != found || got != want {
				t.Fatalf("%v: %v %v, want %v %v, of %v", a, got, ok, want, found, list)
			}
			if a.Is4() && s.Contains(netip.AddrFrom16(a.As16())) != found {
				t.Fatalf("%v: as an IPv4-mapped address it is another one", a)
			}
		}
	}
}

func TestEmptySet(t *testing.T) {
	for _, s := range []*Set{{}, NewSet(nil)} {
		if s.Len() != 0 || s.Contains(netip.MustParseAddr("::1")) || s.Contains(netip.MustParseAddr("10.0.0.1")) || s.Contains(netip.Addr{}) {
			t.Error("an empty set contains something")
		}
	}
}

func TestParse(t *testing.T) {
	text := "\xef\xbb\xbf# Spamhaus\r\n10.0.0.0/8 ; SBL1\r\n\n 2001:db8::1\t# one\n::ffff:192.0.2.0/120\nnonsense\n10.1.2.3\n192.0.2.77/24\n198.51.100.1\n198.51.100.2\n198.51.100.3\n198.51.100.4\n198.51.100.5"
	s, r, err := Parse([]byte(text))
	if err != nil || r.Bad != 1 || !slices.Equal(r.Named, []string{`line 6: "nonsense" is neither an address nor a network`}) || r.Entries != 10 || s.Len() != 8 {
		t.Fatalf("%+v, %d networks, %v", r, s.Len(), err)
	}
	for a, want := range map[string]Entry{
		"10.1.2.3":    {netip.MustParsePrefix("10.0.0.0/8"), 2},
		"192.0.2.200": {netip.MustParsePrefix("192.0.2.0/24"), 5},
		"2001:db8::1": {netip.MustParsePrefix("2001:db8::1/128"), 4},
	} {
		if got, ok := s.Lookup(netip.MustParseAddr(a)); !ok || got != want {
			t.Errorf("%s: %v, want %v", a, got, want)
		}
	}
	if _, _, err := Parse([]byte("<html>\n<body>\n404\n10.0.0.1\n")); err == nil || !strings.HasPrefix(err.Error(), `3 of 4 lines are not networks: line 1: "<html>"`) {
		t.Errorf("a page of HTML: %v", err)
	}
	if s, _, err := Parse(nil); err != nil || s.Len() != 0 {
		t.Errorf("an empty text: %v", err)
	}
	for _, bad := range []string{"::ffff:0:0/95", "fe80::1%eth0", "10.0.0.0/33", "10.0.0", "1.2.3.4-1.2.3.9", strings.Repeat("1", 5000)} {
		if _, _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%.20s: no error", bad)
		}
	}
}

func TestLines(t *testing.T) {
	text := "# nginx\ndeny 192.0.2.0/24;\r\n\tdeny\t 2001:db8::/32 ; # one\ndeny 198.51.100.7;\n;\n"
	for more, bad := range map[string]string{
		"": "", "deny 203.0.113.7": "", "allow 203.0.113.7;": `"allow 203.0.113.7;" is not "deny *"`, "203.0.113.7;": `"203.0.113.7;" is not "deny *"`, "deny all;": `"all" is neither`,
		"deny 203.0.113.7; deny 203.0.113.8;": `is not "deny *"`, "deny 203.0.113.7 1;": `is not "deny *"`, "deny": `"deny" is not "deny *"`, "denyx 203.0.113.7": "is not",
	} {
		many := strings.Repeat("deny 10.0.0.1;\n", 20)
		s, r, err := parseAll(strings.NewReader(text+many+more), &spec.List{Lines: "deny *"})
		if err != nil || (r.Bad == 1) != (bad != "") || !strings.Contains(strings.Join(r.Named, ""), bad) || !s.Contains(netip.MustParseAddr("2001:db8::5")) || s.Contains(netip.MustParseAddr("203.0.113.7")) != (more == "deny 203.0.113.7") {
			t.Errorf("%q: %+v %v", more, r, err)
		}
	}
	if s, r, err := parseAll(strings.NewReader("10.0.0.0/8 internal;\n10.1.0.0/16\tinternal ;\n"), &spec.List{Lines: "* internal"}); err != nil || r.Bad != 0 || s.Len() != 1 {
		t.Errorf("geo: %+v %v", r, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("10.0.0.0/8\n# x\n2001:db8::/32 ; y\n::ffff:10.0.0.1\nbad\n0.0.0.0/0\n::/0"), uint32(0x0a000001))
	f.Fuzz(func(t *testing.T, text []byte, n uint32) {
		set := &Set{}
		r, err := set.parse(bytes.NewReader(text), &spec.List{})
		if err != nil {
			return
		}
		list := slices.Collect(set.All())
		if len(list) != r.Entries {
			t.Fatalf("%d networks, said to be %d", len(list), r.Entries)
		}
		for line := range bytes.Lines(text) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			fast, ok := plain4(line)
			if slow, err := ParseNetwork(string(line)); ok && (err != nil || slow != fast) {
				t.Fatalf("%q: %v, want %v, %v", line, fast, slow, err)
			} else if _, plain := netip.ParseAddr(string(line)); !ok && plain == nil && slow.Addr().Is4() && bytes.IndexByte(line, ':') < 0 {
				t.Fatalf("%q is not plain", line)
			}
		}
		var deny bytes.Buffer // the same, as nginx has it
		for line := range bytes.Lines(text) {
			line, _, _ = bytes.Cut(line, []byte("#"))
			line, _, _ = bytes.Cut(line, []byte(";"))
			if words := bytes.Fields(line); len(words) == 1 {
				fmt.Fprintf(&deny, "\tdeny  %s ;# one\n", words[0])
			} else {
				deny.WriteString("\n")
			}
		}
		denied := &Set{}
		if _, err := denied.parse(bytes.NewReader(deny.Bytes()), &spec.List{Lines: "deny *"}); err == nil && !slices.Equal(slices.Collect(denied.All()), list) {
			t.Fatalf("as deny ...; %v, want %v", slices.Collect(denied.All()), list)
		}
		set.finish()
		for _, a := range []netip.Addr{address4(n), address6{uint64(n) << 32, uint64(n)}.address()} {
			want := slices.ContainsFunc(list, func(e Entry) bool { return e.Network.Contains(a.Unmap()) })
			if set.Contains(a) != want {
				t.Fatalf("%v: %v", a, !want)
			}
		}
	})
}

// million is a million networks of one family.
func million(v6 bool) []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for range 1_000_000 {
		if v6 {
			var a [16]byte
			binary.BigEndian.PutUint64(a[:], 0x2000<<48|rnd.Uint64()>>3)
			fmt.Fprintf(&b, "%v/64\n", netip.AddrFrom16(a))
		} else {
			fmt.Fprintf(&b, "%v\n", address4(rnd.Uint32()))
		}
	}
	return []byte(b.String())
}

func BenchmarkSet(b *testing.B) {
	for _, v6 := range []bool{false, true} {
		name := map[bool]string{false: "ipv4", true: "ipv6"}[v6]
		text := million(v6)
		start := time.Now()
		s, _, err := Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		took := time.Since(start)
		rnd := rand.New(rand.NewPCG(3, 4))
		var asked [4096]netip.Addr
		for i := range asked {
			if asked[i] = address4(rnd.Uint32()); v6 {
				asked[i] = address6{0x2000<<48 | rnd.Uint64()>>3, rnd.Uint64()}.address()
			}
		}
		b.Run("net="+name+"/networks=1000000", func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				s.Contains(asked[i%len(asked)])
			}
			b.ReportMetric(float64(s.Bytes())/float64(s.Len()), "B/network")
			b.ReportMetric(took.Seconds(), "s-to-load")
		})
	}
}
