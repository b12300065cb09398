package offline

import (
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
)

// Schema is the command schema.
type Schema struct{}

// Run runs the command.
func (Schema) Run(call Call) int {
	call.Stdout.Write(config.Schema())
	return cli.ExitOK
}
