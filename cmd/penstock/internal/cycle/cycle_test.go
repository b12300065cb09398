package cycle

import (
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
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
