//go:build linux

package world

import (
	"math/rand/v2"
	"time"
)

// plan is what one side of a flow sends, and how it reads.
type plan struct {
	quiet  bool             // it sends nothing
	sizes  [2]int           // of a write, least and most
	pauses [2]time.Duration // after a burst of writes
	burst  int              // writes between two pauses
	early  float64          // it ends its stream after this part of the flow's life; 0: all of it

	readSizes  [2]int           // of a read; 0: as much as there is
	readPauses [2]time.Duration // after a read, while the flow lives
}

// Shape is a kind of stream flow.
type Shape struct {
	name     string
	client   plan
	upstream plan
	talk     bool             // messages and answers of equal length, of client.sizes, instead of both at once
	reset    bool             // one side, at random, resets the connection at the end
	life     [2]time.Duration // least and most
	elder    bool             // it lives as long as the run
}

const (
	kib = 1 << 10
	mib = 1 << 20
	ms  = time.Millisecond
)

var (
	bulk = plan{sizes: [2]int{4 * kib, 128 * kib}, burst: 24, pauses: [2]time.Duration{0, 200 * ms}}
	// Around the sizes of reads at which a direction begins and ends to splice, in bursts and alone.
	around = plan{sizes: [2]int{6 * kib, 24 * kib}, burst: 5, pauses: [2]time.Duration{0, 20 * ms}}
	slow   = plan{sizes: [2]int{1, 2 * kib}, burst: 2, pauses: [2]time.Duration{10 * ms, 80 * ms},
		readSizes: [2]int{512, 48 * kib}, readPauses: [2]time.Duration{2 * ms, 60 * ms}}
	quiet = plan{quiet: true}
	beats = plan{sizes: [2]int{1, 200}, burst: 1, pauses: [2]time.Duration{500 * ms, 4 * time.Second}}
	once  = plan{sizes: [2]int{1, 3 * kib}, burst: 1}
)

func (p plan) until(part float64) plan { p.early = part; return p }

var (
	lives  = [2]time.Duration{2 * time.Second, 25 * time.Second}
	shapes = []*Shape{
		{name: "bulk both ways", client: bulk, upstream: bulk, life: lives},
		{name: "bulk up", client: bulk, upstream: quiet, life: lives},
		{name: "bulk down", client: quiet, upstream: bulk, life: lives},
		{name: "ping-pong", client: plan{sizes: [2]int{1, 64 * kib}}, talk: true, life: lives},
		{name: "small ping-pong", client: plan{sizes: [2]int{1, 200}, burst: 1, pauses: [2]time.Duration{0, 5 * ms}}, talk: true, life: lives},
		{name: "slow upstream", client: bulk, upstream: slow, life: lives},
		{name: "slow client", client: slow, upstream: bulk, life: lives},
		{name: "half-closed up", client: around.until(0.2), upstream: bulk, life: lives},
		{name: "half-closed down", client: bulk, upstream: around.until(0.2), life: lives},
		{name: "idle", client: beats, upstream: beats, life: lives},
		{name: "sizes", client: around, upstream: around, life: lives},
		{name: "bulk reset", client: bulk, upstream: bulk, reset: true, life: lives},
		{name: "slow reset", client: bulk, upstream: slow, reset: true, life: lives},
		{name: "idle reset", client: beats, upstream: beats, reset: true, life: lives},
		{name: "elder idle", client: beats, upstream: beats, elder: true},
		{name: "elder ping-pong", client: plan{sizes: [2]int{1, 4 * kib}, burst: 1, pauses: [2]time.Duration{0, 20 * ms}}, talk: true, elder: true},
		{name: "elder slow", client: bulk, upstream: slow, elder: true},
	}
	newcomer = &Shape{name: "new client", client: once, upstream: once}
)

// between returns a number between the two, small ones as often as large ones.
func between(r *rand.Rand, least, most int) int {
	if most <= least {
		return least
	}
	if r.IntN(4) == 0 {
		return least + r.IntN(most-least+1)
	}
	octaves := 0
	for most>>octaves > least && most>>octaves > 1 {
		octaves++
	}
	top := max(most>>r.IntN(octaves+1), least)
	return least + r.IntN(top-least+1)
}

func pauseBetween(r *rand.Rand, p [2]time.Duration) time.Duration {
	if p[1] <= p[0] {
		return p[0]
	}
	return p[0] + time.Duration(r.Int64N(int64(p[1]-p[0])))
}
