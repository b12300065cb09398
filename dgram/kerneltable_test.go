package dgram

import (
	"fmt"
	"testing"
)

// TestKernelTable sends each row of the kernel's self-test (tools/testing/
// selftests/net/udpgso.c, Linux 6.18) to a socket that takes datagrams one by
// one. Rows that one system call could not send leave in several.
func TestKernelTable(t *testing.T) {
	const mss4, mss6, max4, max6 = 1500 - 28, 1500 - 48, 65507, 65527
	eachLevel(t, func(t *testing.T, l level) {
		for _, row := range []struct {
			path                 string
			total, segment       int
			full, last, messages int
		}{
			{"v4", 1, 0, 0, 1, 1},
			{"v4", mss4, 0, 0, mss4, 1},
			{"v4", mss4, mss4, 1, 0, 1},
			{"v4", mss4 + 1, mss4, 1, 1, 1},
			{"v4", 2 * mss4, mss4, 2, 0, 1},
			{"v4", 2*mss4 + 1, mss4, 2, 1, 1},
			{"v4", 65535 / mss4 * mss4, mss4, 44, 0, 1},
			{"v4", max4, mss4, 44, max4 - 44*mss4, 1},
			{"v4", max4 + 1, mss4, 44, max4 + 1 - 44*mss4, 2},
			{"v4", 1, 1, 1, 0, 1},
			{"v4", 2, 1, 2, 0, 1},
			{"v4", 5, 2, 2, 1, 1},
			{"v4", 128, 1, 128, 0, 2},
			{"v4", 129, 1, 129, 0, 3},
			{"v6", 1, 0, 0, 1, 1},
			{"v6", mss6, 0, 0, mss6, 1},
			{"v6", mss6, mss6, 1, 0, 1},
			{"v6", mss6 + 1, mss6, 1, 1, 1},
			{"v6", 2 * mss6, mss6, 2, 0, 1},
			{"v6", 2*mss6 + 1, mss6, 2, 1, 1},
			{"v6", 65535 / mss6 * mss6, mss6, 45, 0, 1},
			{"v6", max6, mss6, 45, max6 - 45*mss6, 1},
			{"v6", max6 + 1, mss6, 45, max6 + 1 - 45*mss6, 2},
			{"v6", 1, 1, 1, 0, 1},
			{"v6", 2, 1, 2, 0, 1},
			{"v6", 5, 2, 2, 1, 1},
			{"v6", 128, 1, 128, 0, 2},
			{"v6", 129, 1, 129, 0, 3},
		} {
			t.Run(fmt.Sprintf("%s/total=%d/segment=%d", row.path, row.total, row.segment), func(t *testing.T) {
				p := newPath(t, row.path)
				send := l.conn(t, p.send)
				recv := l.with(func(c *Config) { c.NoGRO = true }).conn(t, p.recv)
				ms := []Message{{Buf: payload(1, row.total), Segment: row.segment, Addr: p.to}}
				mustWrite(t, send, ms)
				want := row.full
				if row.last > 0 {
					want++
				}
				came := collect(t, recv, want)
				for i, g := range came {
					size := row.segment
					if i == want-1 && row.last > 0 {
						size = row.last
					}
					if len(g.data) != size {
						t.Errorf("datagram %d has %d bytes, want %d", i, len(g.data), size)
					}
				}
				if s := send.Stats(); l.name == "best" {
					if s.WriteDatagrams != int64(want) || s.Runs > int64(row.messages) || want > 1 && s.Runs == 0 {
						t.Errorf("%+v, want %d runs at most", s, row.messages)
					}
				}
			})
		}
	})
}
