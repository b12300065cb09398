package console

import (
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// sandboxText says in one line what holds, and what does not.
func sandboxText(s *api.Sandbox) string {
	var held, not []string
	for _, l := range s.Layers {
		text := l.Name
		if l.Why != "" {
			text += " (" + l.Why + ")"
		}
		switch {
		case l.Held:
			held = append(held, text)
		case l.Wanted || l.Name == "user":
			not = append(not, text)
		}
	}
	text := "nothing holds"
	if len(held) > 0 {
		text = strings.Join(held, ", ")
	}
	if s.Mode == "log" {
		text = "only logging: " + text
	}
	if len(not) > 0 {
		text += "; not held: " + strings.Join(not, ", ")
	}
	return printable(text)
}
