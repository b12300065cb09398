package lists

import (
	"testing"
	"time"
)

// BenchmarkBan: one ban more, when there are many.
func BenchmarkBan(b *testing.B) {
	for _, n := range []int{1000, MaxBans / 2} {
		b.Run("bans="+map[bool]string{true: "1000", false: "8192"}[n == 1000], func(b *testing.B) {
			var bans Bans
			now := time.Now()
			ban := func(i int) Ban { return banned(uint32(i) * 2654435761) }
			for i := range b.N {
				if i%(MaxBans/2) == 0 {
					b.StopTimer()
					bans.all, bans.latest = nil, nil
					for k := range n {
						bans.Change(now, []Ban{ban(b.N + k)}, nil)
					}
					b.StartTimer()
				}
				bans.Change(now, []Ban{ban(i)}, nil)
			}
		})
	}
}
