package datapath_test

import (
	"fmt"

	"github.com/penstock/penstock/datapath"
)

// Paths and reasons have names, by which they are found again.
func Example() {
	var path datapath.Path
	err := path.UnmarshalText([]byte("copy"))
	fmt.Println(path == datapath.Copy, err)
	fmt.Println(datapath.Splice, "or", datapath.WhySmall)
	// Output:
	// true <nil>
	// splice or small reads
}
