package pool

import (
	"testing"
	"unsafe"
)

// While a goroutine is in a generation, another CPU may open a wider one: there
// are more CPUs than before. A goroutine that looks for an object in the old one
// then stays within it. Behind its two shards the test has put two more, which
// belong to something else.
func TestStealStaysInItsGeneration(t *testing.T) {
	var memory [4]shard[*int]
	var counts [2]counts
	for i := range counts {
		memory[i].counts = &counts[i]
	}
	for i := range memory[2:] {
		memory[2+i].chain.push([]*int{new(int)})
	}
	var p Pool[*int]
	p.local.Store(&memory[0])
	p.size.Store(2)
	_, generation, s := p.enterShard(0)
	p.size.Store(4) // by open, on another CPU
	if x, found := s.steal(generation, 0); found {
		t.Errorf("stole %p from behind the generation", x)
	}
	raceLeave(unsafe.Pointer(s))
}
