//go:build !attack || !linux

package app

// attack does nothing in binaries that are not for tests.
func attack(*lifecycle) {}
