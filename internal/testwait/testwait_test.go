package testwait

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a test that fails.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Helper()                        {}
func (r *recorder) Fatalf(format string, a ...any) { r.failed = fmt.Sprintf(format, a...) }

func TestGoroutines(t *testing.T) {
	const function = "testwait.lockIn("
	var mu sync.Mutex
	mu.Lock()
	if all, _ := Goroutines(function); all != 0 {
		t.Errorf("%d, and none has begun", all)
	}
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() { lockIn(&mu) })
	}
	Until(t, "all wait", func() bool { _, blocked := Goroutines(function); return blocked == 3 })
	if all, blocked := Goroutines("testwait.TestGoroutines("); all != 1 || blocked != 0 {
		t.Errorf("%d, of which %d are blocked: this one is not", all, blocked)
	}
	mu.Unlock()
	group.Wait()
	if all, _ := Goroutines(function); all != 0 {
		t.Errorf("%d, and all have ended", all)
	}
}

func lockIn(mu *sync.Mutex) { mu.Lock(); defer mu.Unlock() }

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, time.Microsecond, time.Second, Patience - time.Second, 2 * Patience} {
			start, r := time.Now(), &recorder{TB: t}
			Until(r, "later", func() bool { return time.Since(start) >= after })
			took := time.Since(start)
			if after <= Patience && (r.failed != "" || took > after+50*time.Millisecond) {
				t.Errorf("what happens after %v is seen after %v; failed: %q", after, took, r.failed)
			}
			if after > Patience && (!strings.Contains(r.failed, "later") || took < Patience || took > Patience+time.Second) {
				t.Errorf("gives up after %v: %q", took, r.failed)
			}
		}
	})
}
