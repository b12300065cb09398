package manual

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Shells are those that Completion knows.
var Shells = []string{"bash", "zsh", "fish"}

// Completion returns the script that completes the command line in a shell; nil
// for a shell that is not one of Shells.
func Completion(app *kong.Application, shell string) []byte {
	all := entries(app)
	switch shell {
	case "bash":
		return bash(app.Name, all)
	case "zsh":
		return zsh(app.Name, all)
	case "fish":
		return fish(app.Name, all)
	}
	return nil
}

// words returns what can follow a command: its commands, and its flags.
func (e *entry) words() []string {
	var words []string
	for _, c := range e.children {
		words = append(words, c.path[len(c.path)-1])
	}
	for _, f := range e.flags {
		words = append(words, "--"+f.name)
	}
	return words
}

// bash writes two cases: the first finds the command that the words before the
// cursor name, the others what can follow it.
func bash(program string, all []*entry) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `# bash completion of %[1]s, written by "%[1]s completion bash".
_%[1]s() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path="" word
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case "$path $word" in
`, program)
	for _, e := range all[1:] {
		fmt.Fprintf(&b, "\t\t%s) path=%s ;;\n", single(" "+strings.Join(e.path, " ")), single(" "+strings.Join(e.path, " ")))
	}
	b.WriteString("\t\tesac\n\tdone\n\tcase \"$path $prev\" in\n")
	for _, e := range all {
		path := ""
		if len(e.path) > 0 {
			path = " " + strings.Join(e.path, " ")
		}
		for _, f := range e.flags {
			pattern := single(path + " --" + f.name)
			if f.short != "" {
				pattern += "|" + single(path+" -"+f.short)
			}
			switch {
			case f.value == "":
			case len(f.words) > 0:
				fmt.Fprintf(&b, "\t%s) COMPREPLY=($(compgen -W %s -- \"$cur\")); return ;;\n", pattern, single(strings.Join(f.words, " ")))
			case takesFile(f.value):
				fmt.Fprintf(&b, "\t%s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", pattern)
			default:
				fmt.Fprintf(&b, "\t%s) return ;;\n", pattern)
			}
		}
	}
	b.WriteString("\tesac\n\tcase \"$path\" in\n")
	for _, e := range all {
		path := ""
		if len(e.path) > 0 {
			path = " " + strings.Join(e.path, " ")
		}
		files := ""
		if e.takesFiles() {
			files = " $(compgen -f -- \"$cur\")"
		}
		fmt.Fprintf(&b, "\t%s) COMPREPLY=($(compgen -W %s -- \"$cur\")%s) ;;\n", single(path), single(strings.Join(e.words(), " ")), files)
	}
	fmt.Fprintf(&b, "\tesac\n}\ncomplete -o filenames -F _%[1]s %[1]s\n", program)
	return []byte(b.String())
}

// takesFiles reports whether an argument is a file.
func (e *entry) takesFiles() bool {
	for _, a := range e.args {
		if takesFile(a.name) {
			return true
		}
	}
	return false
}

func zsh(program string, all []*entry) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %[1]s\n# zsh completion of %[1]s, written by \"%[1]s completion zsh\".\n", program)
	for _, e := range all {
		fmt.Fprintf(&b, "_%s() {\n", ident(e.page(program)))
		if len(e.children) > 0 {
			b.WriteString("\tlocal curcontext=$curcontext state line\n\tlocal -a commands=(\n")
			for _, c := range e.children {
				fmt.Fprintf(&b, "\t\t%s\n", single(c.path[len(c.path)-1]+":"+zshText(c.help)))
			}
			b.WriteString("\t)\n")
		}
		b.WriteString("\t_arguments -s")
		if len(e.children) > 0 {
			b.WriteString(" -C")
		}
		for _, f := range e.flags {
			value := ""
			switch {
			case f.value == "":
			case len(f.words) > 0:
				value = ":" + zshText(f.value) + ":(" + strings.Join(f.words, " ") + ")"
			case takesFile(f.value):
				value = ":" + zshText(f.value) + ":_files"
			default:
				value = ":" + zshText(f.value) + ": "
			}
			equals := ""
			if value != "" {
				equals = "="
			}
			fmt.Fprintf(&b, " \\\n\t\t%s", single("--"+f.name+equals+"["+zshText(f.help)+"]"+value))
			if f.short != "" {
				fmt.Fprintf(&b, " \\\n\t\t%s", single("-"+f.short+"["+zshText(f.help)+"]"+value))
			}
		}
		switch {
		case len(e.children) > 0:
			b.WriteString(" \\\n\t\t'1:command:->command' '*::argument:->argument'\n\tcase $state in\n\tcommand) _describe command commands ;;\n\targument)\n\t\tcase $line[1] in\n")
			for _, c := range e.children {
				fmt.Fprintf(&b, "\t\t%s) _%s ;;\n", c.path[len(c.path)-1], ident(c.page(program)))
			}
			b.WriteString("\t\tesac ;;\n\tesac\n")
		case e.takesFiles():
			b.WriteString(" \\\n\t\t'*:file:_files'\n")
		default:
			b.WriteString("\n")
		}
		b.WriteString("}\n")
	}
	fmt.Fprintf(&b, "if [ \"$funcstack[1]\" = _%[1]s ]; then\n\t_%[1]s \"$@\"\nelse\n\tcompdef _%[1]s %[1]s\nfi\n", program)
	return []byte(b.String())
}

func fish(program string, all []*entry) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion of %[1]s, written by \"%[1]s completion fish\".\n", program)
	for _, e := range all {
		var names []string
		for _, c := range e.children {
			names = append(names, c.path[len(c.path)-1])
		}
		// seen is true where e is the command: its words were typed, and none of its commands.
		var seen []string
		for _, word := range e.path {
			seen = append(seen, "__fish_seen_subcommand_from "+word)
		}
		if len(names) > 0 {
			seen = append(seen, "not __fish_seen_subcommand_from "+strings.Join(names, " "))
		}
		condition := single(strings.Join(seen, "; and "))
		for _, c := range e.children {
			fmt.Fprintf(&b, "complete -c %s -n %s -f -a %s -d %s\n", program, condition, c.path[len(c.path)-1], fishText(c.help))
		}
		if len(e.path) > 0 && !e.takesFiles() {
			fmt.Fprintf(&b, "complete -c %s -n %s -f\n", program, condition)
		}
		for _, f := range e.flags {
			fmt.Fprintf(&b, "complete -c %s -n %s -l %s", program, condition, f.name)
			if f.short != "" {
				fmt.Fprintf(&b, " -s %s", f.short)
			}
			switch {
			case f.value == "":
			case len(f.words) > 0:
				fmt.Fprintf(&b, " -x -a %s", single(strings.Join(f.words, " ")))
			case takesFile(f.value):
				b.WriteString(" -r -F")
			default:
				b.WriteString(" -x")
			}
			fmt.Fprintf(&b, " -d %s\n", fishText(f.help))
		}
	}
	return []byte(b.String())
}

// single quotes a text for bash and zsh.
func single(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// fishText quotes a text for fish, where quotes and backslashes are escaped inside.
func fishText(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(firstLine(s)) + "'"
}

// zshText escapes what has a meaning in the descriptions of _arguments.
func zshText(s string) string {
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(firstLine(s))
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// ident makes a name of a function.
func ident(s string) string { return strings.ReplaceAll(s, "-", "_") }
