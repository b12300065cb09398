package datapath

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/enum"
)

// Paths and reasons have the same text everywhere, and are found again by it.
func TestText(t *testing.T) {
	for p := range GSO + 1 {
		var again Path
		text, _ := p.MarshalText()
		if err := again.UnmarshalText(text); err != nil || again != p || p.String() != string(text) || p.String() == enum.Unknown {
			t.Errorf("%d: %q, %v, %v", p, text, again, err)
		}
	}
	for w := range WhyTLS + 1 {
		var again Why
		text, _ := w.MarshalText()
		if err := again.UnmarshalText(text); err != nil || again != w || w.String() != string(text) || w.String() == enum.Unknown {
			t.Errorf("%d: %q, %v, %v", w, text, again, err)
		}
	}
	if p, w := GSO+1, WhyTLS+1; p.String() != enum.Unknown || w.String() != enum.Unknown {
		t.Errorf("values that there are not are %v and %v", p, w)
	}
	if err := new(Path).UnmarshalText([]byte("fast")); err == nil || err.Error() != `unknown data path "fast"; known: none, copy, splice, gso` {
		t.Error(err)
	}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("over", "path", Splice, "why", WhyOff)
	if !strings.HasSuffix(b.String(), `"path":"splice","why":"switched off"}`+"\n") {
		t.Errorf("logged as %s", b.String())
	}
	b.Reset()
	slog.New(slog.NewTextHandler(&b, nil)).Info("over", "path", Splice, "why", WhyOff)
	if !strings.HasSuffix(b.String(), ` path=splice why="switched off"`+"\n") {
		t.Errorf("logged as %s", b.String())
	}
	if text, err := json.Marshal(map[string]any{"path": Copy, "why": WhySmall}); err != nil || string(text) != `{"path":"copy","why":"small reads"}` {
		t.Errorf("in JSON: %s, %v", text, err)
	}
}
