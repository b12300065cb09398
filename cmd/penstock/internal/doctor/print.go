package doctor

import (
	"bytes"
	"fmt"
	"io"
)

var colours = map[Status]string{OK: "\033[32m", Warn: "\033[33m", Missing: "\033[31m"}

// print prints the report for people: a line per finding, with its cost and fix below.
func (r *Report) print(w io.Writer, colour bool) error {
	width := 0
	for _, f := range r.Findings {
		width = max(width, len(f.Name))
	}
	var b bytes.Buffer
	group := ""
	for _, f := range r.Findings {
		if f.Group != group {
			if group != "" {
				fmt.Fprintln(&b)
			}
			group = f.Group
			fmt.Fprintln(&b, group)
		}
		on, off := "", ""
		if colour {
			on, off = colours[f.Status], "\033[0m"
		}
		fmt.Fprintf(&b, "  %s%-7s%s  %-*s  %s\n", on, f.Status, off, width, f.Name, f.Found)
		if f.Cost != "" {
			fmt.Fprintf(&b, "  %-7s  %-*s  costs: %s\n", "", width, "", f.Cost)
		}
		if f.Fix != "" {
			fmt.Fprintf(&b, "  %-7s  %-*s  fix:   %s\n", "", width, "", f.Fix)
		}
	}
	fmt.Fprintf(&b, "\n%d checks: %d missing, %d warnings\n", len(r.Findings), r.Missing, r.Warnings)
	_, err := w.Write(b.Bytes())
	return err
}
