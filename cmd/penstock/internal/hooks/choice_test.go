package hooks

import (
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A client that its part refuses may be gone before it is told so, and may be there when the configuration changes: its target has no group.
func TestTargetOfPartThatRefuses(t *testing.T) {
	r := &spec.Route{Name: "r", To: []spec.Part{{Refuse: true, Weight: 1}}}
	l := &spec.Listener{Name: "l", Default: r}
	p := &State{plan: NewPlan(l, nil, nil, nil, nil, nil)}
	w := newChoice(r, l, nil, nil).target(nil, p)
	p.target.Store(w)
	if err := new(Hooks).explainAnswer(p, syscall.ECONNRESET); err != syscall.ECONNRESET {
		t.Errorf("error %v", err)
	}
	for _, to := range [][]spec.Part{r.To, spec.Only(&spec.Group{Name: "blue"})} {
		if !w.In(&spec.Route{Name: "r", To: to}) {
			t.Errorf("it is removed where the route leads to %v", to)
		}
	}
	blue := &Target{Route: r, To: &spec.Group{Name: "blue"}}
	if blue.In(r) || !blue.In(&spec.Route{Name: "r", To: spec.Only(&spec.Group{Name: "blue"})}) {
		t.Error("a target with a group is where its group is, and nowhere else")
	}
}
