package hold_test

import (
	"fmt"

	"github.com/penstock/penstock/relay/hold"
)

// What is encoded in one process is decoded in the next one, in the same order. The whole of a server
// whose connections outlive it is the example of package keeper.
func ExampleEncoder() {
	var e hold.Encoder
	e.Uint(1) // the version of what follows
	e.String("tenant-a")

	d := hold.NewDecoder(e.Encoded())
	version, tenant := d.Uint(), d.String()
	fmt.Println(version, tenant, d.Err())
	// Output: 1 tenant-a <nil>
}
