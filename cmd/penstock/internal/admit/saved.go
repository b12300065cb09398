package admit

import (
	"encoding/binary"
	"time"
)

// SavedLimits are the rates of a listener, or of all together, as they are at one moment, for the next
// process. It is written as JSON. The counts of open flows are not part of it: they come with the
// flows, see Controller.Restore.
type SavedLimits struct {
	At     time.Time `json:"at"`
	Tokens float64   `json:"tokens,omitempty"` // of new flows
	// Sources has 16 bytes for each source whose bucket is not full: its key, and when it is full, in
	// nanoseconds since 1970. Both are little-endian.
	Sources []byte `json:"sources,omitempty"`
}

const savedSource = 16

// Save returns the rates of the listener. most bounds the sources.
func (g *Controller) Save(now time.Time, most int) SavedLimits {
	s := g.listener.save(now)
	if g.source.interval > 0 {
		s.Sources = g.counts.sources.save(now, most)
	}
	return s
}

// Save returns the rate of all listeners.
func (t *Total) Save(now time.Time) SavedLimits { return t.save(now) }

// RestoreLimits continues rates that another process has saved.
func (g *Controller) RestoreLimits(s SavedLimits, now time.Time) {
	g.listener.restore(s, now)
	if g.source.interval > 0 {
		g.counts.sources.restoreBuckets(s.Sources, g.source, now)
	}
}

// RestoreLimits continues a rate that another process has saved.
func (t *Total) RestoreLimits(s SavedLimits, now time.Time) { t.restore(s, now) }

// Saves reports whether there is anything that changes with each flow and that Save would return.
func (g *Controller) Saves() bool { return g.listener.rate != nil || g.source.interval > 0 }

// Saves reports whether there is a rate.
func (t *Total) Saves() bool { return t.rate != nil }

func (b *flowLimit) save(now time.Time) SavedLimits {
	s := SavedLimits{At: now}
	if b.rate != nil {
		s.Tokens = b.rate.TokensAt(now)
	}
	return s
}

// restore takes the tokens that were not there, except for those that have come since.
func (b *flowLimit) restore(s SavedLimits, now time.Time) {
	if b.rate == nil || s.At.IsZero() || s.At.After(now) {
		return
	}
	tokens := s.Tokens + now.Sub(s.At).Seconds()*float64(b.rate.Limit())
	missing := float64(b.rate.Burst()) - max(0, tokens)
	if missing >= 1 {
		b.rate.AllowN(now, min(b.rate.Burst(), int(missing)))
	}
}

// save returns the sources whose buckets are not full. It locks each shard for the time of at most
// its share of most.
func (t *sourceTable) save(now time.Time, most int) (out []byte) {
	at := int64(now.Sub(t.epoch))
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		looks := most / len(t.shards)
		for key, src := range s.sources {
			if looks--; looks < 0 {
				break
			}
			if src.fullAt > at {
				out = binary.LittleEndian.AppendUint64(out, key)
				out = binary.LittleEndian.AppendUint64(out, uint64(t.epoch.UnixNano()+src.fullAt))
			}
		}
		s.mu.Unlock()
	}
	return out
}

// restoreBuckets adds the buckets that another process has saved, as far as there is room. No debt is
// longer than a burst.
func (t *sourceTable) restoreBuckets(saved []byte, b sourceLimit, now time.Time) {
	at, epoch := int64(now.Sub(t.epoch)), t.epoch.UnixNano()
	for ; len(saved) >= savedSource; saved = saved[savedSource:] {
		key, full := binary.LittleEndian.Uint64(saved), int64(binary.LittleEndian.Uint64(saved[8:]))
		if full <= epoch || full-epoch <= at {
			continue
		}
		s := t.shard(key)
		s.mu.Lock()
		s.latest = max(s.latest, at)
		src, known := s.sources[key]
		if known || len(s.sources) < t.max {
			src.fullAt = max(src.fullAt, min(full-epoch, at+b.burst))
			s.sources[key] = src
			s.peak = max(s.peak, len(s.sources))
		}
		s.mu.Unlock()
	}
}
