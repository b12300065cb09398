//go:build !penstock_portable

package pool

import (
	"runtime"
	_ "unsafe" // for linkname
)

// A gate lets one goroutine at a time into each shard.
//
// Here each shard belongs to a P of Go's scheduler. Pinning keeps a goroutine on its P, so
// sections of one shard follow each other. The runtime permits the use of these two
// functions ("do not remove or change the type signature", golang.org/issue/67401). With
// the build tag penstock_portable they are not used.
//
// A pinned goroutine must not block, panic, or call functions of the user.
type gate struct{}

//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// enter returns the number of the shard that the caller is in until leave.
func (*gate) enter() int { return procPin() }

func (*gate) leave(int) { procUnpin() }

// width returns the number of shards. It may grow.
func (*gate) width() int { return runtime.GOMAXPROCS(0) }
