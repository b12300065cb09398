//go:build !attack || !linux

package app

import "github.com/penstock/penstock/sandbox"

// attack does nothing in binaries that are not for tests.
func attack(*lifecycle) {}

// narrow does nothing, either.
func narrow(*sandbox.Policy) {}
