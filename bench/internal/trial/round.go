//go:build linux

package trial

import (
	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/proc"
)

// Round runs this program again for one round, in a place, as a child whose part is word, and reads its result.
func Round(word string, what any, place proc.Place, result any) error {
	return place.Run(func(*proc.Hosts) error {
		cmd, err := child.Command(word, what)
		if err != nil {
			return err
		}
		return child.Run(cmd, 0, result)
	})
}
