package testwait

import (
	"fmt"
	"strings"
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

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, time.Microsecond, time.Second, Patience - time.Second, 2 * Patience} {
			start, r := time.Now(), &recorder{TB: t}
			Until(r, "later", func() bool { return time.Since(start) >= after })
			took := time.Since(start)
			if after <= Patience && (r.failed != "" || took > after+10*time.Millisecond) {
				t.Errorf("what happens after %v is seen after %v; failed: %q", after, took, r.failed)
			}
			if after > Patience && (!strings.Contains(r.failed, "later") || took < Patience || took > Patience+time.Second) {
				t.Errorf("gives up after %v: %q", took, r.failed)
			}
		}
	})
}
