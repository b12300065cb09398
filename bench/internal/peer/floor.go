//go:build linux

package peer

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

//go:embed floor/relay.c
var floorSource []byte

// FloorName is the name of the peer that is only a yardstick.
const FloorName = "floor"

// BuildFloor compiles the floor to the file bin. Without a C compiler it does nothing, and the
// floor counts as not installed.
func BuildFloor(bin string) error {
	cc, err := exec.LookPath("gcc")
	if errors.Is(err, exec.ErrNotFound) {
		return nil
	}
	source := bin + ".c"
	if err := os.WriteFile(source, floorSource, 0o644); err != nil {
		return err
	}
	if out, err := exec.Command(cc, "-O2", "-pthread", "-o", bin, source).CombinedOutput(); err != nil {
		return fmt.Errorf("compile the floor: %w\n%s", err, out)
	}
	return nil
}

// floor is the yardstick of the TCP loads: an epoll relay in C without any features. What another
// relay costs beyond it is the price of that relay's features.
func floor(bin string) Peer {
	return Peer{
		Name: FloorName,
		Note: "a bare epoll relay in C, copies only",
		Ask:  []string{bin, "version"},
		plan: func(s Setup) Plan {
			return Plan{Argv: []string{bin, strconv.Itoa(s.Loops), s.Listen, s.Upstream}}
		},
	}
}
