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

// MaxSources is the maximum number of sources that a listener remembers. Each takes about 40
// bytes.
const MaxSources = 1 << 20

// A sourceLimit limits one source. Its token bucket is stored as one number, the time at which it
// is full again: a new flow moves that time by one interval, and is allowed if the time is not
// more than a burst away. That is a token bucket in 8 bytes, where a rate.Limiter takes 80 and
// pointers for the garbage collector.
type sourceLimit struct {
	flows    int32 // 0: no limit
	interval int64 // between new flows, in ns; 0: no limit
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

// sourceKey returns the key of a client's source: an IPv4 address, or the /64 of an IPv6 address,
// because that is what one customer has. IPv4 addresses are mapped to where IPv6 has multicast
// addresses, which are never a source.
func sourceKey(a netip.Addr) uint64 {
	if a.Is4() {
		b := a.As4()
		return 0xffffffff<<32 | uint64(binary.BigEndian.Uint32(b[:]))
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8])
}

// A sourceTable holds the state of each source. It is divided into shards, so that loops seldom
// contend, by a keyed hash, so that clients cannot choose their shard.
type sourceTable struct {
	epoch  time.Time // the zero of all times
	seed   maphash.Seed
	max    int // sources per shard
	shards [64]shard
}

type shard struct {
	mu      sync.Mutex
	sources map[uint64]sourceState
	latest  int64 // the latest time seen
	peak    int   // the largest size of the map
	_       [64]byte
}

// A sourceState that has no flows and a full bucket need not be remembered.
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

// enter counts one more flow of a source, or returns why it may not be accepted.
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
		// No debt is longer than a burst, even one from a stricter configuration.
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

// restore counts a flow of a source without any check.
func (t *sourceTable) restore(key uint64) {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	src := s.sources[key]
	src.flows++
	s.sources[key] = src
	s.peak = max(s.peak, len(s.sources))
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

// forgetIdle looks at a few sources wherever the map's iteration begins, which is random, and
// removes the idle ones. Since every new source looks at more than one, idle ones never outnumber
// the others for long.
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

// forget removes a source. When the map becomes empty it is replaced, because a map does not
// shrink.
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
