// Package manual writes the manual pages and the shell completion of the command
// line. They are made from the grammar that kong parses with, so that they cannot
// differ from it.
package manual

import (
	"cmp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// entry is one command, or the program itself.
type entry struct {
	path     []string // of the command, without the program's name
	help     string
	detail   string
	synopsis string
	flags    []flag
	args     []arg
	children []*entry
}

// flag is a flag of a command.
type flag struct {
	name, short, help string
	value             string // what it takes, as in --help; empty for a switch
	words             []string
}

// arg is a positional argument.
type arg struct{ name, help string }

// page returns the name of the command's manual page.
func (e *entry) page(program string) string {
	return strings.Join(append([]string{program}, e.path...), "-")
}

// entries returns the program and all its commands, the parents first.
func entries(app *kong.Application) []*entry {
	var all []*entry
	var walk func(n *kong.Node, path []string) *entry
	walk = func(n *kong.Node, path []string) *entry {
		e := &entry{path: path, help: n.Help, detail: n.Detail, synopsis: n.Summary()}
		all = append(all, e)
		for _, f := range n.Flags {
			if !f.Hidden {
				e.flags = append(e.flags, newFlag(f))
			}
		}
		for _, p := range n.Positional {
			e.args = append(e.args, arg{p.Summary(), p.Help})
		}
		for _, c := range n.Children {
			if !c.Hidden && c.Type == kong.CommandNode {
				e.children = append(e.children, walk(c, append(slices.Clip(path), c.Name)))
			}
		}
		return e
	}
	walk(app.Node, nil)
	return all
}

func newFlag(f *kong.Flag) flag {
	g := flag{name: f.Name, help: f.Help}
	if f.Short != 0 {
		g.short = string(f.Short)
	}
	if !f.IsBool() && !f.IsCounter() {
		g.value = cmp.Or(f.PlaceHolder, strings.ToUpper(f.Name))
	}
	for _, word := range strings.Split(f.Enum, ",") {
		if word = strings.TrimSpace(word); word != "" {
			g.words = append(g.words, word)
		}
	}
	return g
}

// takesFile reports whether a value is the name of a file.
func takesFile(value string) bool {
	return strings.Contains(value, "FILE") || strings.Contains(value, "FOLDER") || strings.Contains(value, "RUNNING")
}
