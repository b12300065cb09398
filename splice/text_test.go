package splice

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/penstock/penstock/datapath"
)

// TestText: outcomes have the same text everywhere, and are found again by it.
func TestText(t *testing.T) {
	for c := range Outcome(len(outcomeNames)) {
		var again Outcome
		text, _ := c.MarshalText()
		if err := again.UnmarshalText(text); err != nil || again != c || c.String() != string(text) {
			t.Errorf("%d: %q, %v, %v", c, text, again, err)
		}
	}
	if Outcome(200).String() != "unknown" {
		t.Error("an unknown value has a name")
	}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("over", "outcome", OutcomeAReset, "path", datapath.Splice, "why", datapath.WhyOff)
	if !strings.HasSuffix(b.String(), `"outcome":"a-reset","path":"splice","why":"switched off"}`+"\n") {
		t.Errorf("logged as %s", b.String())
	}
	b.Reset()
	slog.New(slog.NewTextHandler(&b, nil)).Info("over", "outcome", OutcomeAReset, "path", datapath.Splice, "why", datapath.WhyOff)
	if !strings.HasSuffix(b.String(), ` outcome=a-reset path=splice why="switched off"`+"\n") {
		t.Errorf("logged as %s", b.String())
	}
	if text, err := json.Marshal(Result{Up: Transfer{Path: datapath.Copy, Why: datapath.WhySmall}, Outcome: OutcomeIdle}); err != nil || !strings.Contains(string(text), `"Path":"copy","Why":"small reads"`) || !strings.Contains(string(text), `"Outcome":"idle"`) {
		t.Errorf("in JSON: %s, %v", text, err)
	}
}
