//go:build linux

package trial

import (
	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/proc"
)

// Round runs this program again for one round, as a child process in a place, and reads its result. word says which of the
// program's parts the child runs.
func Round(word string, what any, place proc.Place, result any) error {
	return place.Run(func(*proc.Hosts) error {
		cmd, err := child.Command(word, what)
		if err != nil {
			return err
		}
		return child.Run(cmd, 0, result)
	})
}
