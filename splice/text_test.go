package splice

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/penstock/penstock/datapath"
)

// TestText: causes have the same text everywhere, and are found again by it.
func TestText(t *testing.T) {
	for c := range Cause(len(causeNames)) {
		var again Cause
		text, _ := c.MarshalText()
		if err := again.UnmarshalText(text); err != nil || again != c || c.String() != string(text) {
			t.Errorf("%d: %q, %v, %v", c, text, again, err)
		}
	}
	if Cause(200).String() != "unknown" {
		t.Error("an unknown value has a name")
	}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("over", "cause", CauseAReset, "path", datapath.Splice, "why", datapath.WhyOff)
	if !strings.HasSuffix(b.String(), `"cause":"a-reset","path":"splice","why":"switched off"}`+"\n") {
		t.Errorf("logged as %s", b.String())
	}
	b.Reset()
	slog.New(slog.NewTextHandler(&b, nil)).Info("over", "cause", CauseAReset, "path", datapath.Splice, "why", datapath.WhyOff)
	if !strings.HasSuffix(b.String(), ` cause=a-reset path=splice why="switched off"`+"\n") {
		t.Errorf("logged as %s", b.String())
	}
	if text, err := json.Marshal(Result{Up: Transfer{Path: datapath.Copy, Why: datapath.WhySmall}, Cause: CauseIdle}); err != nil || !strings.Contains(string(text), `"Path":"copy","Why":"small reads"`) || !strings.Contains(string(text), `"Cause":"idle"`) {
		t.Errorf("in JSON: %s, %v", text, err)
	}
}
