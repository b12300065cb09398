//go:build !race

package pool

// A counter is written only in a section of its shard, and read by any goroutine at any
// time. It is one machine word and not atomic, because an atomic store would cost as much
// as the rest of a Put. By the Go memory model, a racing read of a word returns some value
// that was written there, and any recent one is good enough for statistics. With the race
// detector it is atomic.
type counter uint

func (c *counter) inc() { *c++ }

func (c *counter) load() uint64 { return uint64(*c) }
