package offline

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/manual"
)

// Completion is the command completion.
type Completion struct {
	Shell string `arg:"" name:"SHELL" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help returns the text that penstock completion --help prints below the flags.
func (Completion) Help() string {
	return "For the running shell: source <(penstock completion bash), or penstock completion fish | source. Packages install the scripts for all users."
}

// Run runs the command.
func (c *Completion) Run(call Call) int {
	call.Stdout.Write(manual.Completion(call.Grammar, c.Shell))
	return cli.ExitOK
}

// Manual is the hidden command manual, with which packages are made.
type Manual struct {
	Folder string `arg:"" name:"FOLDER" help:"Where the manual pages are written."`
}

// Run runs the command.
func (c *Manual) Run(call Call) int {
	for name, text := range manual.Pages(call.Grammar, call.Version) {
		if err := os.WriteFile(filepath.Join(c.Folder, name), text, 0o644); err != nil {
			fmt.Fprintln(call.Stderr, "penstock:", err)
			return cli.ExitFailed
		}
	}
	return cli.ExitOK
}
