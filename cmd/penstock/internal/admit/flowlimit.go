package admit

import (
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A flowLimit limits open flows and new flows per second.
type flowLimit struct {
	*flowCount
	max              int64         // 0: no limit
	rate             *rate.Limiter // nil: no limit
	tooMany, tooFast spec.Reason   // reasons when a limit is reached
}

// A flowCount counts flows. All loops write it, so it has cache lines of its own.
type flowCount struct {
	_     [64]byte
	flows atomic.Int64
	_     [64]byte
}

// newFlowLimit returns a limit that takes over the count and the tokens of old, if it is not nil.
func newFlowLimit(l spec.Limits, full, fast spec.Reason, old *flowLimit) flowLimit {
	b := flowLimit{max: int64(l.Flows), tooMany: full, tooFast: fast}
	if l.NewFlows > 0 {
		b.rate = rate.NewLimiter(rate.Limit(l.NewFlows), burst(l.NewFlows, l.Burst))
	}
	if old == nil {
		b.flowCount = new(flowCount)
		return b
	}
	b.flowCount = old.flowCount
	if now := time.Now(); b.rate != nil && old.rate != nil {
		b.rate.AllowN(now, b.rate.Burst()-min(b.rate.Burst(), max(0, int(old.rate.TokensAt(now)))))
	}
	return b
}

// burst returns the size of a burst: n, or by default a second's worth, at least one.
func burst(perSecond float64, n int) int {
	if n > 0 {
		return n
	}
	return int(min(max(1, math.Ceil(perSecond)), math.MaxInt32))
}

// enter counts one more flow, or returns why it may not be accepted. A flow beyond the limit is
// counted only for a moment.
func (b *flowLimit) enter(now time.Time) spec.Reason {
	if n := b.flows.Add(1); b.max > 0 && n > b.max {
		b.flows.Add(-1)
		return b.tooMany
	}
	if b.rate != nil && !b.rate.AllowN(now, 1) {
		b.flows.Add(-1)
		return b.tooFast
	}
	return spec.ReasonNone
}
