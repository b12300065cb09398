//go:build penstock_portable

package pool

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A gate lets one goroutine at a time into each shard.
//
// Here each shard has a lock, and a sync.Pool of locks remembers which P used
// which shard last. It needs nothing from the runtime, but each section costs a Get and a
// Put of a sync.Pool and a lock.
type gate struct {
	lanes atomic.Pointer[[]lane]
	last  sync.Pool // *lane
	next  atomic.Uint32
}

type lane struct {
	mu sync.Mutex
	id int
	_  [112]byte // the next lane is on another pair of cache lines
}

// enter returns the number of the shard that the caller is in until leave.
func (g *gate) enter() int {
	l, _ := g.last.Get().(*lane)
	if l == nil {
		lanes := g.all()
		l = &lanes[int(g.next.Add(1)-1)%len(lanes)]
	}
	l.mu.Lock()
	return l.id
}

func (g *gate) leave(id int) {
	l := &(*g.lanes.Load())[id]
	l.mu.Unlock()
	g.last.Put(l)
}

func (g *gate) all() []lane {
	for {
		if p := g.lanes.Load(); p != nil {
			return *p
		}
		lanes := make([]lane, runtime.GOMAXPROCS(0))
		for i := range lanes {
			lanes[i].id = i
		}
		g.lanes.CompareAndSwap(nil, &lanes)
	}
}

// width returns the number of shards.
func (g *gate) width() int { return len(g.all()) }
