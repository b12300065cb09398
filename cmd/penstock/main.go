// Command penstock is a layer-4 relay for TCP, UDP and Unix sockets.
package main

import (
	"os"

	"github.com/penstock/penstock/cmd/penstock/internal/app"
)

func main() { os.Exit(app.Main(os.Args[1:], os.Stdout, os.Stderr)) }
