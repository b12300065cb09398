package destination

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// Addresses that are kept already obey a max-age that a reload has lowered.
func TestLowerMaxAgeHoldsForWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lookups := 0
		c := NewCache(func(context.Context, string) ([]netip.Addr, time.Duration, error) {
			lookups++
			return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, time.Hour, nil
		}, DefaultLimits, nil)
		defer c.Close()
		source := netip.MustParseAddr("198.51.100.1")
		c.Ask("a.example", source, nil, nil)
		synctest.Wait()
		limits := DefaultLimits
		limits.MaxAge = 5 * time.Second
		c.SetLimits(limits)
		if _, status := c.Ask("a.example", source, nil, nil); status != Known {
			t.Fatalf("status %v before it is old", status)
		}
		time.Sleep(6 * time.Second) // of the bubble
		if _, status := c.Ask("a.example", source, nil, nil); status != Pending {
			t.Errorf("status %v 6s after max-age became 5s; %d lookups", status, lookups)
		}
		synctest.Wait()
	})
}
