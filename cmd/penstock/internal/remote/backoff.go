package remote

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Backoff spreads attempts after failures: each wait is a random share of a bound that doubles with
// every attempt, so that many clients of a server that went away do not come back at the same time. The
// zero value is ready. It is for one goroutine.
type Backoff struct {
	Min     time.Duration // the first bound; 0: 500 ms
	Max     time.Duration // the last bound; 0: 30 s
	Healthy time.Duration // what works for this long begins anew when it fails; 0: 10 s

	bound   time.Duration
	working time.Time // since when it has worked; zero: it does not
}

// Working notes that an attempt has succeeded. The bound stays until it has worked for Healthy, because a
// server that accepts and fails at once would otherwise be asked without end.
func (b *Backoff) Working() {
	if b.working.IsZero() {
		b.working = time.Now()
	}
}

// Next returns how long to wait before the next attempt, now that one has failed: at least a tenth of the bound.
func (b *Backoff) Next() time.Duration {
	lo, hi, healthy := orDefault(b.Min, 500*time.Millisecond), orDefault(b.Max, 30*time.Second), orDefault(b.Healthy, 10*time.Second)
	if !b.working.IsZero() && time.Since(b.working) >= healthy {
		b.bound = 0
	}
	b.working = time.Time{}
	if b.bound *= 2; b.bound < lo {
		b.bound = lo
	}
	b.bound = min(b.bound, hi)
	return b.bound/10 + rand.N(b.bound-b.bound/10)
}

// Wait waits for what Next returns, or until ctx ends, and then returns its error.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Sleep waits for d, or until ctx ends, and then returns its error.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// orDefault returns d, or def if d is not positive.
func orDefault(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}
