package packets

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
)

// takes reports whether a filter takes a packet.
func takes(t testing.TB, terms []Term, b []byte) bool {
	vm, err := bpf.NewVM(filter(terms))
	if err != nil {
		t.Fatal(err)
	}
	n, err := vm.Run(b)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

// TestFilter compares filters with what the terms say of the headers, over packets of a few addresses.
func TestFilter(t *testing.T) {
	addrs := []string{"192.0.2.1", "192.0.2.2", "192.0.3.1", "2001:db8::1", "2001:db8::2", "2001:db8:1::1"}
	networks := []string{"", "0.0.0.0/0", "192.0.2.0/24", "192.0.2.1/32", "192.0.2.0/31", "::/0", "2001:db8::/48", "2001:db8::1/128", "2001:db8::/33"}
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(l []string) string { return l[r.IntN(len(l))] }
	end := func() (e End) {
		if n := pick(networks); n != "" {
			e.Network = netip.MustParsePrefix(n)
		}
		e.Port = uint16(r.IntN(3))
		return e
	}
	taken := 0
	for range 20_000 {
		terms := make([]Term, r.IntN(4))
		for i := range terms {
			terms[i] = Term{end(), end()}
		}
		from := pick(addrs)
		to := pick(addrs)
		if netip.MustParseAddr(from).Is4() != netip.MustParseAddr(to).Is4() {
			continue
		}
		a, b := netip.AddrPortFrom(netip.MustParseAddr(from), uint16(r.IntN(3))), netip.AddrPortFrom(netip.MustParseAddr(to), uint16(r.IntN(3)))
		p := segment([]uint8{TCP, UDP, 1}[r.IntN(3)], a.String(), b.String(), 0, "text of it")
		if a.Addr().Is4() && r.IntN(4) == 0 {
			p[7] = byte(r.IntN(2)) // a fragment
		}
		want := false
		if h, ok := parseHeader(p); ok {
			for _, term := range terms {
				if n := term.A.Network; n.IsValid() && n.Addr().Is4() != a.Addr().Is4() {
					continue
				}
				want = want || covers([]Term{term}, h.from, h.to)
			}
		}
		if got := takes(t, terms, p); got != want {
			t.Fatalf("%v: %v -> %v: %v, want %v", terms, a, b, got, want)
		}
		if want {
			taken++
		}
	}
	if taken < 500 {
		t.Errorf("only %d packets were taken", taken)
	}
}

// More terms than the kernel takes are all packets.
func TestManyTerms(t *testing.T) {
	var terms []Term
	for i := range 1000 {
		terms = append(terms, Term{A: At(netip.MustParseAddrPort(fmt.Sprintf("10.1.%d.%d:80", i/250, i%250)))})
	}
	if n := len(filter(terms)); n >= maxInstructions {
		t.Errorf("%d instructions", n)
	}
	if !takes(t, terms, segment(UDP, "192.0.2.1:1", "192.0.2.2:2", 0, "")) || takes(t, terms, segment(1, "192.0.2.1:1", "192.0.2.2:2", 0, "")) {
		t.Error("a filter of too many terms does not take all of TCP and UDP, and nothing else")
	}
	if takes(t, nil, segment(UDP, "192.0.2.1:1", "192.0.2.2:2", 0, "")) {
		t.Error("a filter without terms takes a packet")
	}
}

// FuzzHeader reads any packet, and has the filter of its own addresses take it.
func FuzzHeader(f *testing.F) {
	f.Add(segment(TCP, "192.0.2.1:1", "192.0.2.2:2", flagSYN, "text"))
	f.Add(segment(UDP, "[2001:db8::1]:1", "[2001:db8::2]:2", 0, ""))
	f.Add([]byte{0x4f})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := parseHeader(b)
		if ok != (h.from.IsValid() && h.to.IsValid()) {
			t.Errorf("%+v, %v", h, ok)
		}
		if !ok || h.from.Addr().IsUnspecified() || h.to.Addr().IsUnspecified() {
			return
		}
		if terms := []Term{{At(h.from), At(h.to)}}; h.from.Addr() == h.from.Addr().Unmap() && h.to.Addr() == h.to.Addr().Unmap() && !takes(t, terms, b) {
			t.Errorf("%+v is not taken by the filter of its addresses", h)
		}
	})
}

// FuzzFile writes packets and texts, and reads them back.
func FuzzFile(f *testing.F) {
	f.Add([]byte("data"), "a comment", "a name", uint64(1<<60))
	f.Add([]byte{}, "\xff\x00\n", "", uint64(0))
	f.Add([]byte{}, strings.Repeat("\xff0", maxText/3), "", uint64(0)) // fits, until its bytes that are no text are replaced
	f.Fuzz(func(t *testing.T, data []byte, comment, name string, at uint64) {
		s := newScript(nil, nil)
		on := s.w.addInterface(name, comment, name)
		when := epoch
		s.w.packet(on, when, len(data)+1, data, inbound, comment)
		s.w.statistics(on, when, int64(at>>1), 2, 3, comment)
		all, err := read(s.out.Bytes())
		if err != nil || len(all) != 4 {
			t.Fatalf("%d blocks, %v", len(all), err)
		}
		p := all[2]
		if string(p.data) != string(data) || p.length != len(data)+1 || !p.at.Equal(when) || p.on != on {
			t.Errorf("%+v", p)
		}
		if n := len(p.options[optionComment]); n > maxText || (n == 0) != (comment == "") {
			t.Errorf("a comment of %d bytes, of %d", n, len(comment))
		}
		if got := binary.LittleEndian.Uint64([]byte(all[3].options[statisticsReceived])); got != at>>1 {
			t.Errorf("%d received", got)
		}
	})
}

// A capture of very many flows, whose members are at addresses that become known with them, looks at each of its sides once, and asks for
// no further filter once it takes everything.
func TestManyFlows(t *testing.T) {
	s := newScript(t, func(c *Config) { c.MaxFlows = 1000 })
	var terms []Term
	changes := 0
	for i := range 1000 {
		f := web(uint64(i+1), fmt.Sprintf("192.0.2.1:%d", 10_000+i), 5000, 0)
		f.Upstream = tcp(fmt.Sprintf("10.1.%d.%d:80", i/250, i%250))
		s.Tell(f)
		if len(s.fresh) > 2 {
			t.Fatalf("%d sides are looked at for one flow", len(s.fresh))
		}
		if more := s.Uncovered(terms); len(more) > 0 {
			terms = Join(terms, more)
			changes++
		}
		if !takes(t, terms, segment(TCP, f.UpstreamLocal.AddrPort.String(), f.Upstream.AddrPort.String(), flagSYN, "")) {
			t.Fatalf("flow %d is not taken", i)
		}
	}
	if changes == 0 || changes > 150 || len(terms) != 1 {
		t.Errorf("%d filters, the last one of %d terms", changes, len(terms))
	}
}
