package relay

import "time"

// pace bounds the bandwidth of both directions: each has a bucket of tokens, a
// byte each, that fills with time.
type pace struct {
	rate   int64 // bytes a second; 0: no bound
	bucket [2]struct {
		tokens float64
		at     time.Duration // when it was filled up last
	}
}

const (
	// paceBurst is how much of its bandwidth a direction may use at once. It is
	// above the tick in which a flow that has used its share is looked at again.
	paceBurst = 100 * time.Millisecond
	// turnBudget is how many bytes a direction moves in a turn, at the most.
	turnBudget = 1 << 20
	// paceLeast is the least burst, in bytes.
	paceLeast = 16 << 10
)

// SetBandwidth limits each direction of the flow to the given rate, with bursts of a
// tenth of a second's worth, or of 16 KiB if that is more. A rate of zero or less is no
// limit. A direction of a stream that is over the limit pauses; datagrams over the
// limit are dropped, as stats.DropLimited. SetBandwidth may be called in every hook until a
// stream is connected, Hooks.Connected included, and returns [ErrStage] afterwards.
func (f *Flow) SetBandwidth(bytesPerSecond int64) error {
	if f.owner == nil {
		return stageError("SetBandwidth", "of a stream that relays", "hooks before that")
	}
	p := f.owner.limit(f)
	if p == nil {
		return stageError("SetBandwidth", "of a stream that relays", "hooks before that")
	}
	p.rate = max(bytesPerSecond, 0)
	p.start(f.owner.base().loop.Now, 0)
	return nil
}

func (p *pace) burst() float64 {
	return max(float64(p.rate)*paceBurst.Seconds(), paceLeast)
}

// start fills the buckets, except for what the direction up holds already.
func (p *pace) start(now time.Duration, held int) {
	for i := range p.bucket {
		p.bucket[i].tokens, p.bucket[i].at = p.burst(), now
	}
	p.bucket[up].tokens -= float64(held)
}

// left returns how many bytes a direction may move now.
func (p *pace) left(direction int, now time.Duration) int {
	b := &p.bucket[direction]
	b.tokens = min(p.burst(), b.tokens+float64(p.rate)*(now-b.at).Seconds())
	b.at = now
	return max(0, int(min(b.tokens, turnBudget)))
}

func (p *pace) spend(direction int, n int64) { p.bucket[direction].tokens -= float64(n) }
