package segment

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// v4 and v6 are the limits of the kernel's own self-test, so that its table can be used unchanged.
var (
	v4 = Limit{Count: 128, Bytes: MaxBytes4}
	v6 = Limit{Count: 128, Bytes: MaxBytes6}
)

const (
	mss4 = 1500 - 20 - 8
	mss6 = 1500 - 40 - 8
)

// kernelTable is the table of tools/testing/selftests/net/udpgso.c (Linux 6.18): what is sent, how
// it is cut, and how many full datagrams and which last one must arrive. fails marks what the
// kernel refuses in one call; the planner must then start a second run.
var kernelTable = []struct {
	name                    string
	limit                   Limit
	total, segment          int
	fails                   bool
	full, last, beyondFirst int
}{
	{"v4 one byte, no gso", v4, 1, 0, false, 0, 1, 0},
	{"v4 one mss, no gso", v4, mss4, 0, false, 0, mss4, 0},
	{"v4 one mss", v4, mss4, mss4, false, 1, 0, 0},
	{"v4 mss + 1", v4, mss4 + 1, mss4, false, 1, 1, 0},
	{"v4 2 mss", v4, 2 * mss4, mss4, false, 2, 0, 0},
	{"v4 2 mss + 1", v4, 2*mss4 + 1, mss4, false, 2, 1, 0},
	{"v4 max segments", v4, 65535 / mss4 * mss4, mss4, false, 44, 0, 0},
	{"v4 max bytes", v4, MaxBytes4, mss4, false, 44, MaxBytes4 - 44*mss4, 0},
	{"v4 max bytes + 1", v4, MaxBytes4 + 1, mss4, true, 44, 0, MaxBytes4 + 1 - 44*mss4},
	{"v4 one 1-byte segment", v4, 1, 1, false, 1, 0, 0},
	{"v4 two 1-byte segments", v4, 2, 1, false, 2, 0, 0},
	{"v4 2+2+1", v4, 5, 2, false, 2, 1, 0},
	{"v4 max count", v4, 128, 1, false, 128, 0, 0},
	{"v4 max count + 1", v4, 129, 1, true, 128, 0, 1},
	{"v6 one byte, no gso", v6, 1, 0, false, 0, 1, 0},
	{"v6 one mss, no gso", v6, mss6, 0, false, 0, mss6, 0},
	{"v6 one mss", v6, mss6, mss6, false, 1, 0, 0},
	{"v6 mss + 1", v6, mss6 + 1, mss6, false, 1, 1, 0},
	{"v6 2 mss", v6, 2 * mss6, mss6, false, 2, 0, 0},
	{"v6 2 mss + 1", v6, 2*mss6 + 1, mss6, false, 2, 1, 0},
	{"v6 max segments", v6, 65575 / mss6 * mss6, mss6, false, 45, 0, 0},
	{"v6 max bytes", v6, MaxBytes6, mss6, false, 45, MaxBytes6 - 45*mss6, 0},
	{"v6 max bytes + 1", v6, MaxBytes6 + 1, mss6, true, 45, 0, MaxBytes6 + 1 - 45*mss6},
	{"v6 one 1-byte segment", v6, 1, 1, false, 1, 0, 0},
	{"v6 two 1-byte segments", v6, 2, 1, false, 2, 0, 0},
	{"v6 2+2+1", v6, 5, 2, false, 2, 1, 0},
	{"v6 max count", v6, 128, 1, false, 128, 0, 0},
	{"v6 max count + 1", v6, 129, 1, true, 128, 0, 1},
}

func TestKernelTable(t *testing.T) {
	for _, row := range kernelTable {
		t.Run(row.name, func(t *testing.T) {
			first := row.limit.Fit(row.total, row.segment)
			if fits := first == row.total; fits == row.fails {
				t.Fatalf("Fit = %d of %d, the kernel refuses it: %v", first, row.total, row.fails)
			}
			if got := row.total - first; got != row.beyondFirst {
				t.Errorf("left for a second run: %d bytes, want %d", got, row.beyondFirst)
			}
			var r Run
			r.Join(row.limit, first, row.segment)
			full, last := 0, 0
			for d := range All(make([]byte, first), row.segment) {
				if len(d) == row.segment {
					full++
				} else {
					last = len(d)
				}
			}
			if full != row.full || last != row.last {
				t.Errorf("got %d full and a last one of %d, want %d and %d", full, last, row.full, row.last)
			}
			if want := Count(first, row.segment); r.Count != want || r.Bytes != first {
				t.Errorf("run of %d datagrams and %d bytes, want %d and %d", r.Count, r.Bytes, want, first)
			}
			if r.Segmented() != (full+min(last, 1) > 1) {
				t.Errorf("Segmented = %v for %d+%d", r.Segmented(), full, last)
			}
		})
	}
}

// message is one input of the planner.
type message struct{ n, segment int }

// plan drives the planner as its users do: greedily, in order, with long messages in pieces. It
// returns the datagram sizes of each run.
func plan(l Limit, ms []message) (runs []Run, sizes [][]int) {
	var r Run
	var cur []int
	flush := func() {
		if r.Count > 0 {
			runs, sizes = append(runs, r), append(sizes, cur)
		}
		r, cur = Run{}, nil
	}
	for _, m := range ms {
		for {
			n := l.Fit(m.n, m.segment)
			if !r.Join(l, n, m.segment) {
				flush()
				r.Join(l, n, m.segment)
			}
			cur = append(cur, cutSlowly(n, m.segment)...)
			if n == m.n {
				break
			}
			m.n -= n
		}
	}
	flush()
	return runs, sizes
}

// cutSlowly returns the datagrams in a message, computed one byte at a time.
func cutSlowly(n, segment int) []int {
	var out []int
	cur := 0
	for range n {
		if cur++; cur == segment {
			out, cur = append(out, cur), 0
		}
	}
	if cur > 0 || len(out) == 0 {
		out = append(out, cur)
	}
	return out
}

// legal is the kernel's rule, written literally.
func legal(l Limit, sizes []int) bool {
	if len(sizes) == 1 {
		return true
	}
	total := 0
	for i, n := range sizes {
		total += n
		if n == 0 || n > sizes[0] || n < sizes[0] && i != len(sizes)-1 {
			return false
		}
	}
	return len(sizes) <= l.Count && total <= l.Bytes
}

func checkPlan(t *testing.T, l Limit, ms []message) {
	t.Helper()
	var want, got []int
	for _, m := range ms {
		want = append(want, cutSlowly(m.n, m.segment)...)
	}
	runs, sizes := plan(l, ms)
	for i, s := range sizes {
		got = append(got, s...)
		if !legal(l, s) {
			t.Fatalf("limit %v: run %d is not legal: %v", l, i, s)
		}
		total := 0
		for _, n := range s {
			total += n
		}
		if r := runs[i]; r.Size != s[0] || r.Count != len(s) || r.Bytes != total {
			t.Fatalf("limit %v: run %d says %+v, holds %v", l, i, r, s)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("limit %v: messages %v\nleave as %v\nwant     %v", l, ms, got, want)
	}
	// Greedy is enough: no run could have taken the whole message that opens
	// the next one. Pieces of a long message are exempt, they end at the limit.
	for i := 1; i < len(sizes); i++ {
		if one := sizes[i]; len(one) == 1 && legal(l, append(slices.Clone(sizes[i-1]), one...)) {
			t.Fatalf("limit %v: run %d %v left %v behind", l, i-1, sizes[i-1], one)
		}
	}
}

func TestPlanAgainstOracle(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	palette := []int{0, 1, 2, 3, 100, 100, 100, 1200, 1200, 1452, 9000, 65507}
	for range 1000 {
		l := Limit{Count: 1 + rnd.IntN(70), Bytes: 1500 + rnd.IntN(MaxBytes6)}
		ms := make([]message, rnd.IntN(40))
		for i := range ms {
			ms[i] = message{n: palette[rnd.IntN(len(palette))]}
			if rnd.IntN(4) == 0 {
				ms[i] = message{n: rnd.IntN(5000), segment: 1 + rnd.IntN(1500)}
			}
			if rnd.IntN(3) == 0 {
				ms[i].segment = palette[rnd.IntN(len(palette))]
			}
		}
		checkPlan(t, l, ms)
	}
}

func FuzzPlan(f *testing.F) {
	f.Add(uint8(64), uint16(65507), []byte{100, 0, 100, 0, 50, 0, 100, 7})
	f.Add(uint8(1), uint16(1), []byte{0, 0, 0, 0})
	f.Add(uint8(3), uint16(400), []byte{200, 60, 120, 60, 60, 0})
	f.Fuzz(func(t *testing.T, count uint8, size uint16, data []byte) {
		l := Limit{Count: max(1, int(count)), Bytes: int(size)}
		var ms []message
		for ; len(data) >= 2 && len(ms) < 64; data = data[2:] {
			ms = append(ms, message{n: int(data[0]) * 7, segment: int(data[1]) * 3})
		}
		checkPlan(t, l, ms)
	})
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte("abcdefg"), 3)
	f.Add([]byte{}, 0)
	f.Add([]byte("x"), -1)
	f.Fuzz(func(t *testing.T, b []byte, segment int) {
		var joined []byte
		count := 0
		for d := range All(b, segment) {
			if count++; len(d) == 0 && len(b) != 0 {
				t.Fatal("an empty datagram out of a message with bytes")
			}
			if segment > 0 && len(d) > segment {
				t.Fatalf("datagram of %d bytes, segment %d", len(d), segment)
			}
			if cap(d) > len(d) && len(joined)+len(d) < len(b) {
				t.Fatal("appending to a datagram would overwrite the next one")
			}
			joined = append(joined, d...)
		}
		if !bytes.Equal(joined, b) || count != Count(len(b), segment) {
			t.Fatalf("%d datagrams with %d bytes, want %d with %d", count, len(joined), Count(len(b), segment), len(b))
		}
		if n := (Limit{Count: 3, Bytes: 10}).Fit(len(b), segment); n > len(b) || n < min(len(b), max(segment, 0)) {
			t.Fatalf("Fit = %d of %d, segment %d", n, len(b), segment)
		}
	})
}

func TestAllStopsEarly(t *testing.T) {
	seen := 0
	for range All(make([]byte, 10), 3) {
		if seen++; seen == 2 {
			break
		}
	}
	if seen != 2 {
		t.Errorf("saw %d datagrams, want 2", seen)
	}
}

func TestNoAllocation(t *testing.T) {
	b := make([]byte, 64*1200)
	sum := 0
	if n := testing.AllocsPerRun(100, func() {
		var r Run
		for d := range All(b, 1200) {
			r.Join(v4, len(d), 0)
			sum += r.Count
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
