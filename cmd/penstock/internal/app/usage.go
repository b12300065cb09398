package app

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/offline"
)

// translateHabits returns a command line with what people write by habit as kong has it, and reports whether it asks for the
// list of all commands.
func translateHabits(args []string) (meant []string, all bool) {
	switch {
	case len(args) == 0:
		return []string{"--help"}, false
	case len(args) == 1 && (args[0] == "--version" || args[0] == "-v" || args[0] == "-V"):
		return []string{"version"}, false
	case len(args) == 2 && (args[0] == "help" || args[0] == "--help") && args[1] == "--all":
		return []string{"--help"}, true
	case args[0] == "help":
		return append(args[1:len(args):len(args)], "--help"), false
	}
	return args, false
}

// helpPrinter returns what prints --help. Without a command it lists the commands of the first week, or all of them.
func helpPrinter(all bool) kong.HelpPrinter {
	return func(options kong.HelpOptions, ctx *kong.Context) error {
		if all || ctx.Selected() != nil {
			return kong.DefaultHelpPrinter(options, ctx)
		}
		others := 0
		for _, n := range ctx.Model.Leaves(true) {
			if !n.Tag.Has("first") {
				n.Hidden = true
				others++
			}
		}
		if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
			return err
		}
		_, err := fmt.Fprintf(ctx.Stdout, "Run \"penstock help --all\" for the other %d commands.\n", others)
		return err
	}
}

// habits are commands of other programs, with what to do here.
var habits = map[string]string{
	"start": runIt, "serve": runIt, "daemon": runIt, "server": runIt,
	"validate": checkIt, "verify": checkIt, "test": checkIt, "configtest": checkIt, "lint": checkIt, "config": checkIt,
	"stop": stopIt, "shutdown": stopIt, "quit": stopIt,
	"restart": "penstock upgrade, with which flows continue if there is a keeper, or systemctl restart penstock",
	"list":    lookIt, "ls": lookIt, "show": lookIt, "ps": lookIt, "stats": lookIt, "info": lookIt,
	"connections": "penstock flows", "conns": "penstock flows",
	"logs":   "penstock ended for the flows that ended last, or journalctl -u penstock",
	"import": "penstock convert FILE", "migrate": "penstock convert FILE",
}

const (
	runIt   = "penstock run -c FILE"
	checkIt = "penstock check -c FILE"
	stopIt  = "systemctl stop penstock, or SIGTERM, which drains; penstock drain takes a member out"
	lookIt  = "penstock status, penstock groups or penstock flows"
)

// commandInstead returns what to do instead of a command that there is not; "": nobody knows.
func commandInstead(word string) string {
	word = strings.ToLower(word)
	if use := habits[word]; use != "" {
		return use
	}
	if ours := config.Counterpart(word); ours == "groups" || ours == "members" {
		return "penstock groups"
	}
	return ""
}

// usageMessage returns the text of a parse error in one line, with what is
// allowed where kong does not say it. Kong's errors have no types of their own.
func usageMessage(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	var perr *kong.ParseError
	if !errors.As(err, &perr) {
		return text
	}
	var allowed []string
	node := perr.Context.Selected()
	word, unexpected := strings.CutPrefix(text, "unexpected argument ")
	word, near, _ := strings.Cut(word, ", did you mean ")
	switch {
	case strings.HasPrefix(text, "unknown flag"):
		for _, f := range perr.Context.Flags() {
			allowed = append(allowed, "--"+f.Name)
		}
	case unexpected && node == nil:
		switch use := commandInstead(word); {
		case use != "":
			return "unknown command " + word + "; use " + use
		case near != "":
			return "unknown command " + word + " (did you mean " + strings.Trim(near, "\"?") + "?)"
		}
		for _, c := range perr.Context.Model.Node.Children {
			if !c.Hidden {
				allowed = append(allowed, c.Name)
			}
		}
		text = "unknown command " + word
	case unexpected:
		for _, c := range node.Children {
			if !c.Hidden {
				allowed = append(allowed, c.Name)
			}
		}
		if len(allowed) == 0 {
			allowed = []string{"flags only"}
		}
		if hasFlag(node, "config") {
			allowed = []string{"penstock " + node.FullPath()[len("penstock "):] + " -c " + word}
		}
	case strings.HasPrefix(text, "missing flags: --config="):
		return node.Name + ": -c FILE is missing; packages have it at " + offline.PackagedConfig
	case strings.HasSuffix(text, `but got "EOL" (<EOL>)`):
		flag, _, _ := strings.Cut(text, ":")
		return flag + ": needs a value"
	case strings.Contains(text, " must be one of "):
		name, rest, _ := strings.Cut(text, " must be one of ")
		list, got, _ := strings.Cut(rest, " but got ")
		return name + ": unknown value " + got + "; allowed: " + strings.NewReplacer(`"`, "", ",", ", ").Replace(list)
	default:
		return text
	}
	return text + "; allowed: " + strings.Join(allowed, ", ")
}

// hasFlag reports whether a command has a flag of its own.
func hasFlag(node *kong.Node, name string) bool {
	for _, f := range node.Flags {
		if f.Name == name {
			return true
		}
	}
	return false
}
