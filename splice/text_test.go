package splice

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/pump"
)

// TestText: causes, paths and reasons have the same text everywhere, and are found again by it.
func TestText(t *testing.T) {
	for c := range Cause(len(causeNames)) {
		var again Cause
		text, _ := c.MarshalText()
		if err := again.UnmarshalText(text); err != nil || again != c || c.String() != string(text) {
			t.Errorf("%d: %q, %v, %v", c, text, again, err)
		}
	}
	for p := range PathSplice + 1 {
		var again Path
		text, _ := p.MarshalText()
		if err := again.UnmarshalText(text); err != nil || again != p || pump.Path(p).String() != string(text) {
			t.Errorf("%d: %q, %v, %v", p, text, again, err)
		}
	}
	for w := range WhyNotSocket + 1 {
		var again Why
		text, _ := w.MarshalText()
		if err := again.UnmarshalText(text); err != nil || again != w || pump.Why(w).String() != string(text) {
			t.Errorf("%d: %q, %v, %v", w, text, again, err)
		}
	}
	if Path(PathSplice) != Path(pump.PathSplice) || WhyNotSocket != Why(pump.WhyNotSocket) || Cause(200).String() != "unknown" {
		t.Error("values differ from the pump's, or an unknown one has a name")
	}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("over", "cause", CauseAReset, "path", PathSplice, "why", WhyOff)
	if !strings.HasSuffix(b.String(), `"cause":"a-reset","path":"splice","why":"switched off"}`+"\n") {
		t.Errorf("logged as %s", b.String())
	}
	b.Reset()
	slog.New(slog.NewTextHandler(&b, nil)).Info("over", "cause", CauseAReset, "path", PathSplice, "why", WhyOff)
	if !strings.HasSuffix(b.String(), ` cause=a-reset path=splice why="switched off"`+"\n") {
		t.Errorf("logged as %s", b.String())
	}
	if text, err := json.Marshal(Result{Up: Transfer{Path: PathCopy, Why: WhySmall}, Cause: CauseIdle}); err != nil || !strings.Contains(string(text), `"Path":"copy","Why":"small reads"`) || !strings.Contains(string(text), `"Cause":"idle"`) {
		t.Errorf("in JSON: %s, %v", text, err)
	}
}
