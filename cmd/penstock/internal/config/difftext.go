package config

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// String returns the difference for people: a line for each part and each key, with the values
// in columns.
func (d Diff) String() string {
	if d.Empty() {
		return "no difference\n"
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	list := func(indent string, changes []Change) {
		for _, c := range changes {
			fmt.Fprintf(w, "%s%s\t%s -> %s\n", indent, c.Key, c.Old, c.New)
		}
	}
	if len(d.Restart) > 0 {
		fmt.Fprintf(w, "engine\tchanged; takes effect on the next start\n")
		list("  ", d.Restart)
	}
	if len(d.Settings) > 0 {
		fmt.Fprintf(w, "settings\tchanged\n")
		list("  ", d.Settings)
	}
	for _, l := range d.Listeners {
		text := l.What
		if l.Rebinds && l.What == Changed {
			text += "; is bound again"
		}
		fmt.Fprintf(w, "listener %s\t%s\n", l.Name, text)
		list("  ", l.Changes)
		for _, r := range l.Routes {
			text := r.What
			if r.Live != "" {
				text += "; live flows: " + r.Live
			}
			fmt.Fprintf(w, "  route %s\t%s\n", r.Name, text)
			list("    ", r.Changes)
		}
	}
	for _, g := range d.Groups {
		fmt.Fprintf(w, "group %s\t%s\n", g.Name, g.What)
		list("  ", g.Changes)
		for _, m := range g.Members {
			fmt.Fprintf(w, "  member %s\t%s\n", m.Name, m.What)
			list("    ", m.Changes)
		}
	}
	w.Flush()
	return b.String()
}
