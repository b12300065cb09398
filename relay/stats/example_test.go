package stats_test

import (
	"fmt"

	"github.com/penstock/penstock/relay/stats"
)

// All has each reason that this version knows, and 0 for those that did not occur.
func ExampleCounts() {
	var dropped stats.Counts[stats.Drop] // as in Datagrams.Dropped
	dropped.Add(stats.DropFull, 3)
	for reason, n := range dropped.All() {
		if n > 0 {
			fmt.Println(reason, n)
		}
	}
	fmt.Println(dropped.Get(stats.DropTooBig))
	// Output:
	// full 3
	// 0
}
