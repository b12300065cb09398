//go:build !race

package pool

// A counter is written only by whoever is in its shard, and read by anybody at
// any time. It is one machine word and not atomic, because an atomic store
// would cost as much as all the rest of a Put: the Go memory model lets a racing
// read of a word return some value that was written there, and for statistics
// any recent one will do. The race detector gets the atomic twin.
type counter uint

func (c *counter) inc() { *c++ }

func (c *counter) load() uint64 { return uint64(*c) }
