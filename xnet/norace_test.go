//go:build !race

package xnet

const raceEnabled = false
