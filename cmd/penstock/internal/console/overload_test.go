package console

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

func TestStatusOfOverload(t *testing.T) {
	d := newDaemon()
	d.status.Overload = api.Overload{
		Resources: []api.OverloadResource{
			{Name: "memory", Limit: 96 << 20, Use: 48 << 20, Pressure: 0.5},
			{Name: "descriptors", Limit: 1000, Use: 100, Pressure: 0.1},
		},
		Actions: []api.OverloadAction{{Name: "no-new-streams", Resource: "memory", Threshold: 0.85, Count: 3}},
	}
	r := newRig(t, d)
	if text := r.good("status"); strings.Contains(text, "overload") {
		t.Errorf("nothing is short, and status says:\n%s", text)
	}
	d.mu.Lock()
	d.status.Overload.Resources[0] = api.OverloadResource{Name: "memory", Limit: 96 << 20, Use: 88 << 20, Pressure: 0.92, Source: "memory.max of /a", Error: "memory.stat cannot be read"}
	d.status.Overload.Actions[0].Active = true
	d.mu.Unlock()
	text := r.good("status")
	for _, want := range []string{"overload", "memory: 88.0 MiB of 96.0 MiB (92%), limited by memory.max of /a; memory.stat cannot be read", "no-new-streams: active at 85% of memory, 3 so far"} {
		if !strings.Contains(text, want) {
			t.Errorf("status lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "descriptors:") {
		t.Errorf("status tells about descriptors:\n%s", text)
	}
	l := overloadLine(&d.status.Overload)
	var line strings.Builder
	for _, p := range l {
		line.WriteString(p.text)
	}
	if want := "overload memory 92%, no-new-streams"; line.String() != want {
		t.Errorf("the overview says %q, want %q", line.String(), want)
	}
}
