//go:build !race

package testnet

// RaceEnabled reports whether the test binary was built with -race.
const RaceEnabled = false

// RaceFlags are the flags that build a program as the test binary was built.
var RaceFlags []string
