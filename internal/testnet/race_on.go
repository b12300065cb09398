//go:build race

package testnet

// RaceEnabled reports whether the test binary was built with -race.
const RaceEnabled = true
