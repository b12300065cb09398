package admit

import (
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// bound bounds flows at once and new flows a second.
type flowLimit struct {
	*flowCount
	max              int64         // 0: none
	rate             *rate.Limiter // nil: none
	tooMany, tooFast spec.Reason   // what to say when one is reached
}

// tally counts flows. All loops write it, so it has cache lines of its own.
type flowCount struct {
	_     [64]byte
	flows atomic.Int64
	_     [64]byte
}

// newBound takes over the count of old, and what its bucket has, if it is not nil.
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

// burst is what comes at once: by default a second's worth, one at least.
func burst(perSecond float64, n int) int {
	if n > 0 {
		return n
	}
	return int(min(max(1, math.Ceil(perSecond)), math.MaxInt32))
}

// enter counts one more, or says why not. What was over the bound for a moment is
// never let in.
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
