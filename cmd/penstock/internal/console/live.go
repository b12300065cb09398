package console

import (
	"fmt"
	"os"

	"github.com/charmbracelet/x/term"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// EraseLine returns to the start of the line and erases it (ECMA-48 EL).
const EraseLine = "\r\x1b[K"

// TerminalWidth returns the width of the terminal f in cells, or 0 if f is not a terminal.
func TerminalWidth(f *os.File) int {
	if !term.IsTerminal(f.Fd()) {
		return 0
	}
	if width, _, err := term.GetSize(f.Fd()); err == nil && width > 0 {
		return width
	}
	return 80
}

// LiveLine returns one line of at most width cells about what happens between two samples.
func LiveLine(before, after *api.Sample, width int) string {
	n := &after.Totals
	r, _ := ratesOf(before, after)
	line := fmt.Sprintf("%s open, %s/s new, %s up, %s down", plural(n.Flows, "flow"), perSecond(r.Totals.Begun), rate(r.Totals.Up), rate(r.Totals.Down))
	if n.Refused > 0 {
		line += fmt.Sprintf(", %s refused (%s/s)", count(n.Refused), perSecond(r.Totals.Refused))
	}
	if n.Failed > 0 {
		line += fmt.Sprintf(", %s failed (%s/s)", count(n.Failed), perSecond(r.Totals.Failed))
	}
	if after.State == api.StateDraining {
		line = "draining: " + line
	}
	return line[:min(len(line), max(0, width))]
}

// Printable returns s with everything that is not printable ASCII escaped, for a terminal.
func Printable(s string) string { return printable(s) }
