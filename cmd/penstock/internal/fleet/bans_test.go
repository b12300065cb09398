package fleet

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

func TestBanKey(t *testing.T) {
	for _, s := range []string{"192.0.2.0/24", "2001:db8::/32", "10.0.0.1/32"} {
		p := netip.MustParsePrefix(s)
		if got, ok := networkOf(banKey("/f", p), bansPrefix("/f")); !ok || got != p {
			t.Errorf("%s: %v, %v", s, got, ok)
		}
	}
	for _, bad := range []string{"/f/bans/", "/f/bans/x", "/f/bans/10.0.0.0", "/f/bans/10.0.0.0_8/x", "/f/nodes/10.0.0.0_8"} {
		if p, ok := networkOf(bad, bansPrefix("/f")); ok {
			t.Errorf("%s: %v", bad, p)
		}
	}
}

func FuzzBan(f *testing.F) {
	f.Add(`{"network":"192.0.2.0/24","at":"2026-11-27T10:00:00Z","why":"x"}`)
	f.Add(`{"network":"0.0.0.0/0"}`)
	f.Add(`{"network":"192.0.2.1/24","why":"` + strings.Repeat("x", 300) + `"}`)
	f.Fuzz(func(t *testing.T, text string) {
		b, err := ParseBan([]byte(text))
		if err != nil {
			return
		}
		again, err := json.Marshal(&b)
		if err != nil {
			t.Skip() // a year of more than four digits
		}
		if c, err := ParseBan(again); err == nil && (c.Network != b.Network || !c.Until.Equal(b.Until)) || !b.Fleet || b.Network.Bits() == 0 {
			t.Fatalf("%+v, then %+v, %v", b, c, err)
		}
	})
}
