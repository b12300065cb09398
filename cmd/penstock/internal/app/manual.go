package app

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"

	"github.com/penstock/penstock/cmd/penstock/internal/manual"
)

// completionCmd is the command completion.
type completionCmd struct {
	Shell string `arg:"" name:"SHELL" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help returns the text that penstock completion --help prints below the flags.
func (completionCmd) Help() string {
	return "For the running shell: source <(penstock completion bash), or penstock completion fish | source. Packages install the scripts for all users."
}

func (c *completionCmd) run(app *kong.Application, stdout *os.File) int {
	stdout.Write(manual.Completion(app, c.Shell))
	return exitOK
}

// manualCmd is the hidden command manual, with which packages are made.
type manualCmd struct {
	Folder string `arg:"" name:"FOLDER" help:"Where the manual pages are written."`
}

func (c *manualCmd) run(app *kong.Application, stderr *os.File) int {
	for name, text := range manual.Pages(app, version()) {
		if err := os.WriteFile(filepath.Join(c.Folder, name), text, 0o644); err != nil {
			fmt.Fprintln(stderr, "penstock:", err)
			return exitFailed
		}
	}
	return exitOK
}
