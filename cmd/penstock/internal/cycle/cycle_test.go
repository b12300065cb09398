package cycle

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// Any port of a member's range may lead back to a listener. A listener on an interface other than
// lo accepts nothing from this host.
func TestCheckCycles(t *testing.T) {
	parse := func(parse func(string) (spec.Endpoint, error), s string) spec.Endpoint {
		t.Helper()
		e, err := parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for _, c := range []struct {
		listen, on, member string
		cycle              bool
	}{
		{"tcp://127.0.0.1:7003", "", "tcp://127.0.0.1:7003", true},
		{"tcp://127.0.0.1:7003", "", "tcp://127.0.0.1:7001-7003", true},
		{"tcp://127.0.0.1:7003", "", "tcp://127.0.0.1:7000-7002", false},
		{"tcp://127.0.0.1:7001-7003", "", "tcp://127.0.0.1:7003", true},
		{"tcp://127.0.0.1:7003", "", "udp://127.0.0.1:7003", false},
		{"tcp://:7003", "", "tcp://127.0.0.1:7003", true},
		{"tcp://:7003", "lo", "tcp://127.0.0.1:7003", true},
		{"tcp://:7003", "eth9", "tcp://127.0.0.1:7003", false},
	} {
		g := &spec.Group{Name: "g", Members: []spec.Member{{To: parse(spec.ParseUpstream, c.member)}}}
		l := []*spec.Listener{{Name: "l", Listen: parse(spec.ParseListener, c.listen), Interface: c.on, Routes: []*spec.Route{{Name: "g", To: spec.Only(g)}}}}
		if err := Check(NewListeners(l, ConfiguredAddrs), l); (err != nil) != c.cycle {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Addresses of this host come and go, as those of VRRP do, without a reload. They are asked for once a second at most, and only where a listener
// takes what comes to any of them.
func TestHostAddressComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(text string) relay.Addr {
			return relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort(text)}
		}
		all, one := &spec.Listener{Name: "all"}, &spec.Listener{Name: "one"}
		d := NewListeners([]*spec.Listener{all, one}, func(l *spec.Listener) []relay.Addr {
			if l == all {
				return []relay.Addr{at("0.0.0.0:443")}
			}
			return []relay.Addr{at("192.0.2.1:80")}
		})
		asked, has := 0, map[netip.Addr]bool{netip.MustParseAddr("192.0.2.1"): true}
		d.addrsOf = func() map[netip.Addr]bool { asked++; return has }
		is := func(to, want string, times int) {
			t.Helper()
			if got := d.ListenerAt(at(to)); got != want || asked != times {
				t.Errorf("%s is the address of %q, want %q; asked %d times, want %d", to, got, want, asked, times)
			}
		}
		is("192.0.2.1:80", "one", 0)
		is("192.0.2.7:80", "", 0)
		is("127.0.0.1:443", "all", 0)
		is("192.0.2.1:443", "all", 1)
		is("192.0.2.7:443", "", 1)
		has = map[netip.Addr]bool{netip.MustParseAddr("192.0.2.7"): true}
		is("192.0.2.7:443", "", 1)
		time.Sleep(addrsHold)
		is("192.0.2.7:443", "all", 2)
		is("192.0.2.1:443", "", 2)
		is("192.0.2.7:80", "", 2)
	})
}
