//go:build linux

package proc

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Pin binds the calling thread, and what it starts, to the CPUs of a list such
// as "0" or "0,1".
func Pin(cpus string) error {
	var set unix.CPUSet
	for s := range strings.SplitSeq(cpus, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return fmt.Errorf("CPU list %q: want numbers with commas between them, such as 0,1", cpus)
		}
		set.Set(n)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to the CPUs %s: %w", cpus, err)
	}
	return nil
}
