package relay

import (
	"sync"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/simkernel"
)

// Simulations have the same memory one after the other: the kernel would need longer to give it, and to take it back, than they need for the rest.

// simScratch is memory into which peers read.
var simScratch = sync.Pool{New: func() any { return new([simPeriod]byte) }}

// simMemory is how much memory a test may have before the collector runs more often. What is in the pools of an engine that has ended is garbage
// only when the collector has run twice since, and the heap may double meanwhile: without a limit it doubles again and again.
const simMemory = 1 << 30

// newEmptySimulation returns one of a world in which there is nothing. Its memory is lent until giveBack.
func newEmptySimulation() *simulation {
	s := &simulation{world: simkernel.New(), scratch: simScratch.Get().(*[simPeriod]byte)}
	s.world.Wipe = func(b []byte) {
		if s.spoiled[&b[0]] {
			b[0] ^= 0xff // or nobody knows what to clear
			delete(s.spoiled, &b[0])
		}
		ledger.Wipe(b)
	}
	return s
}

func (s *simulation) giveBack() {
	s.world.End()
	simScratch.Put(s.scratch)
}

// forget lets go of what an engine has that nobody uses any more: its pools keep it until the collector has run a few times.
func forget(c *core) {
	c.kernel, c.cfg, c.holding = nil, Config{}, nil
	c.loops, c.stats, c.listeners, c.ledgers, c.earlier = nil, nil, nil, nil, earlierHeld{}
	c.streams.all, c.streams.pipes, c.datagrams.all = nil, nil, nil
	c.descriptors = descriptorBudget{}
}
