package admit

import (
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A client has its own limits, beside those of its source, and they outlive a configuration.
func TestAdmitClient(t *testing.T) {
	limited := spec.Listener{Limits: spec.Limits{Client: spec.SourceLimits{Flows: 2, NewFlows: 1, Burst: 3}}}
	total, g := gate(spec.Limits{}, limited)
	now := time.Now()
	admit := func(g *Controller, who string, at time.Time, want spec.Reason) Client {
		t.Helper()
		c, why := g.AdmitClient(who, at)
		if why != want {
			t.Fatalf("%s: %v, want %v", who, why, want)
		}
		return c
	}
	a, b := admit(g, "one", now, spec.ReasonNone), admit(g, "one", now, spec.ReasonNone)
	admit(g, "one", now, spec.ReasonClientFlows)
	admit(g, "another", now, spec.ReasonNone)
	a.Release()
	a.Release()
	next := NewController(total, &limited, nil, g)
	c := admit(next, "one", now, spec.ReasonNone)
	admit(next, "one", now, spec.ReasonClientFlows) // a and b count, and only once
	b.Release()
	c.Release()
	admit(next, "one", now, spec.ReasonClientRate)
	d := admit(next, "one", now.Add(time.Second), spec.ReasonNone)
	if d.Release(); next.clients.len() != 2 {
		t.Errorf("%d clients are remembered", next.clients.len())
	}
	// Without a limit nothing counts, and nothing is released that did not count.
	free := NewController(total, &spec.Listener{}, nil, next)
	if g.clients != next.clients || free.clients != next.clients {
		t.Error("a configuration has lost what was counted")
	}
	e := admit(free, "one", now, spec.ReasonNone)
	e.Release()
	x, y := admit(next, "one", now.Add(time.Hour), spec.ReasonNone), admit(next, "one", now.Add(time.Hour), spec.ReasonNone)
	admit(next, "one", now.Add(time.Hour), spec.ReasonClientFlows)
	x.Release()
	y.Release()
}
