//go:build !linux

package upstream

import (
	"syscall"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// control is for Linux.
func control(*spec.Dial) func(network, address string, c syscall.RawConn) error { return nil }
