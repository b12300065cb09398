package admit

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// MaxSources bounds the sources that a listener remembers. Each has about 40 bytes.
const MaxSources = 1 << 20

// sourceBound bounds what one source does. Its bucket is told by one number, the
// time at which it is full again: a new flow puts that off by one interval, and may
// come in if it is not further away than a burst. That is a token bucket in 8
// bytes, where a rate.Limiter has 80 and pointers for the garbage collector.
type sourceLimit struct {
	flows    int32 // 0: none
	interval int64 // between new flows, in ns; 0: no bound
	burst    int64 // of intervals, in ns; 30 years at most
}

func newSourceLimit(l spec.SourceLimits) sourceLimit {
	b := sourceLimit{flows: int32(min(l.Flows, math.MaxInt32))}
	if l.NewFlows > 0 {
		const forever = 1e18 // ns, 30 years: far from overflow
		b.interval = int64(min(max(1, 1e9/l.NewFlows), forever))
		b.burst = int64(min(float64(b.interval)*float64(burst(l.NewFlows, l.Burst)), forever))
	}
	return b
}

func (b sourceLimit) any() bool { return b.flows > 0 || b.interval > 0 }

// sourceOf is what counts as one source: an IPv4 address, or the /64 of an IPv6
// address, for that is what one customer has. IPv4 stands where multicast is in
// IPv6, which is nobody's source.
func sourceKey(a netip.Addr) uint64 {
	if a.Is4() {
		b := a.As4()
		return 0xffffffff<<32 | uint64(binary.BigEndian.Uint32(b[:]))
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8])
}

// sources has what each source does. It is in shards, so that loops seldom meet,
// and nobody outside can tell which source is in which.
type sourceTable struct {
	epoch  time.Time // the zero of all times
	seed   maphash.Seed
	max    int // of a shard
	shards [64]shard
}

type shard struct {
	mu      sync.Mutex
	sources map[uint64]sourceState
	latest  int64 // the latest time that it knows
	peak    int   // the most that all has had
	_       [64]byte
}

// source says nothing, and so need not be remembered, if it has no flows and its
// bucket is full.
type sourceState struct {
	fullAt int64 // when its bucket is full again
	flows  int32
}

func (s sourceState) idle(now int64) bool { return s.flows == 0 && s.fullAt <= now }

func newSourceTable(max int) *sourceTable {
	t := &sourceTable{epoch: time.Now(), seed: maphash.MakeSeed()}
	t.max = max / len(t.shards)
	for i := range t.shards {
		t.shards[i].sources = map[uint64]sourceState{}
	}
	return t
}

func (t *sourceTable) shard(key uint64) *shard {
	return &t.shards[maphash.Comparable(t.seed, key)%uint64(len(t.shards))]
}

// enter counts one more flow of a source, or says why not.
func (t *sourceTable) enter(key uint64, b sourceLimit, now time.Time) spec.Reason {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = max(s.latest, int64(now.Sub(t.epoch)))
	src, known := s.sources[key]
	if !known {
		if s.forgetIdle(); len(s.sources) >= t.max {
			return spec.ReasonSourceTable
		}
	}
	if b.flows > 0 && src.flows >= b.flows {
		return spec.ReasonSourceFlows
	}
	if b.interval > 0 {
		// No debt is longer than a burst, also one from a stricter configuration.
		src.fullAt = max(min(src.fullAt, s.latest+b.burst), s.latest)
		if src.fullAt+b.interval-s.latest > b.burst {
			s.sources[key] = src
			return spec.ReasonSourceRate
		}
		src.fullAt += b.interval
	}
	src.flows++
	s.sources[key] = src
	s.peak = max(s.peak, len(s.sources))
	return spec.ReasonNone
}

func (t *sourceTable) leave(key uint64) {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	src := s.sources[key]
	src.flows--
	if !src.idle(s.latest) {
		s.sources[key] = src
		return
	}
	s.forget(key)
}

// sweep looks at a few sources wherever a map's iteration begins, which is
// anywhere, and forgets those that say nothing. As every new source looks at more
// than one, those are never more than the others for long.
func (s *shard) forgetIdle() {
	looks := 4
	for key, src := range s.sources {
		if src.idle(s.latest) {
			s.forget(key)
		}
		if looks--; looks == 0 {
			return
		}
	}
}

// forget also gives the memory back, once nothing is left of much: a map does not.
func (s *shard) forget(key uint64) {
	delete(s.sources, key)
	if len(s.sources) == 0 && s.peak > 1000 {
		s.sources, s.peak = map[uint64]sourceState{}, 0
	}
}

func (t *sourceTable) len() (n int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += len(s.sources)
		s.mu.Unlock()
	}
	return n
}
