package manual

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Pages returns the manual pages by the names of their files: one of the program,
// and one of each command.
func Pages(app *kong.Application, version string) map[string][]byte {
	pages := map[string][]byte{}
	all := entries(app)
	for _, e := range all {
		pages[e.page(app.Name)+".1"] = e.man(app.Name, version, all[0])
	}
	return pages
}

// man writes a page with the macros of man(7).
func (e *entry) man(program, version string, root *entry) []byte {
	var b strings.Builder
	macro := func(name string, args ...string) {
		b.WriteString("." + name)
		for _, a := range args {
			b.WriteString(` "` + strings.ReplaceAll(escape(a), `"`, `\(dq`) + `"`)
		}
		b.WriteByte('\n')
	}
	text := func(s string) {
		for i, paragraph := range strings.Split(strings.TrimSpace(s), "\n\n") {
			if i > 0 {
				macro("PP")
			}
			for line := range strings.Lines(paragraph + "\n") {
				b.WriteString(lineStart(escape(strings.TrimSpace(line))) + "\n")
			}
		}
	}
	page := e.page(program)
	macro("TH", strings.ToUpper(page), "1", "", program+" "+version, "Penstock")
	macro("SH", "NAME")
	help, rest, _ := strings.Cut(e.help, "\n\n")
	text(page + " - " + strings.ToLower(help[:min(1, len(help))]) + strings.TrimSuffix(help[min(1, len(help)):], "."))
	macro("SH", "SYNOPSIS")
	if e == root {
		b.WriteString(`\fB` + escape(program) + `\fP \fICOMMAND\fP [\fIflags\fP]` + "\n")
	} else {
		text(program + " " + e.synopsis)
	}
	if more := strings.TrimSpace(rest + "\n\n" + e.detail); more != "" {
		macro("SH", "DESCRIPTION")
		text(more)
	}
	if len(e.children) > 0 {
		macro("SH", "COMMANDS")
		for _, c := range e.children {
			macro("TP")
			fmt.Fprintf(&b, "\\fB%s\\fP(1)\n", escape(c.page(program)))
			text(c.help)
		}
	}
	if len(e.args) > 0 {
		macro("SH", "ARGUMENTS")
		for _, a := range e.args {
			macro("TP")
			fmt.Fprintf(&b, "\\fI%s\\fP\n", escape(a.name))
			text(a.help)
		}
	}
	macro("SH", "OPTIONS")
	for _, f := range e.flags {
		macro("TP")
		if f.short != "" {
			fmt.Fprintf(&b, "\\fB%s\\fP, ", escape("-"+f.short))
		}
		fmt.Fprintf(&b, "\\fB%s\\fP", escape("--"+f.name))
		if f.value != "" {
			fmt.Fprintf(&b, "=\\fI%s\\fP", escape(f.value))
		}
		b.WriteByte('\n')
		text(f.help)
	}
	macro("SH", "SEE ALSO")
	if e == root {
		text("https://github.com/penstock/penstock")
	} else {
		fmt.Fprintf(&b, "\\fB%s\\fP(1)\n", escape(program))
	}
	return []byte(b.String())
}

// escape writes text for roff: characters that it would read otherwise, and those
// beyond ASCII.
func escape(s string) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case c == '\\':
			b.WriteString(`\e`)
		case c == '-':
			b.WriteString(`\-`)
		case c == '\'':
			b.WriteString(`\(aq`)
		case c == '`':
			b.WriteString(`\(ga`)
		case c == '^':
			b.WriteString(`\(ha`)
		case c == '~':
			b.WriteString(`\(ti`)
		case c < 128:
			b.WriteRune(c)
		default:
			fmt.Fprintf(&b, `\[u%04X]`, c)
		}
	}
	return b.String()
}

// lineStart protects a line that would begin with a control character.
func lineStart(s string) string {
	if strings.HasPrefix(s, ".") {
		return `\&` + s
	}
	return s
}
