//go:build race

package pool

import "sync/atomic"

// A counter is written only in a section of its shard, and read by any goroutine at any
// time. With the race detector it is atomic.
type counter struct{ v atomic.Uint64 }

func (c *counter) inc() { c.v.Add(1) }

func (c *counter) load() uint64 { return c.v.Load() }
