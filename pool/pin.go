//go:build !penstock_portable

package pool

import (
	"runtime"
	_ "unsafe" // for linkname
)

// A gate lets one goroutine at a time into each shard.
//
// Here a shard belongs to a P of Go's scheduler, and whoever runs on that P is
// in it: pinning keeps the goroutine on the P, so sections of one shard follow
// each other. The runtime tolerates these two names for users (they are on the
// list of golang.org/issue/67401, "do not remove or change the type
// signature"). Build with the tag penstock_portable to do without them.
//
// A pinned goroutine must not block, panic or call what users gave us.
type gate struct{}

//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// enter returns the number of the shard that the caller is in until leave.
func (*gate) enter() int { return procPin() }

func (*gate) leave(int) { procUnpin() }

// width returns how many shards there may be. It can grow.
func (*gate) width() int { return runtime.GOMAXPROCS(0) }
