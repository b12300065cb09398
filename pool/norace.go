//go:build !race

package pool

import "unsafe"

const raceEnabled = false

func raceEnter(unsafe.Pointer) {}
func raceLeave(unsafe.Pointer) {}
