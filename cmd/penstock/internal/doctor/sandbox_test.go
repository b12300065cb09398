package doctor

import (
	"testing"

	"github.com/penstock/penstock/sandbox"
)

// Each layer is a finding. One that cannot be held is a warning with its cost and what to do; another user is only for root.
func TestSandboxed(t *testing.T) {
	var r sandbox.Report
	for l := range sandbox.Calls + 1 {
		r.Layers = append(r.Layers, sandbox.Status{Layer: l, Wanted: true, Why: "no"})
	}
	for _, f := range sandboxed(r) {
		if warns := f.Status == Warn && f.Cost != "" && f.Fix != ""; warns != (f.Name != "user") {
			t.Errorf("%+v", f)
		}
	}
	for _, f := range sandboxed(sandbox.Available()) {
		if f.Name == "" || f.Found == "" {
			t.Errorf("%+v", f)
		}
	}
}
