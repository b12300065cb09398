package dgram

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestRoundTrip sends random batches over every kind of path and at every
// level, and expects the same datagrams in the same order.
func TestRoundTrip(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	eachLevel(t, func(t *testing.T, l level) {
		for _, kind := range pathKinds {
			t.Run("path="+kind, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 0))
				p := newPath(t, kind)
				send, recv := l.conn(t, p.send), l.conn(t, p.recv)
				for range 25 {
					ms := randomBatch(rnd, p)
					want := datagrams(ms)
					mustWrite(t, send, ms)
					came := collect(t, recv, len(want))
					if diff := sameDatagrams(came, want); diff != "" {
						t.Fatal(diff)
					}
					for i, g := range came {
						if g.m.Addr != p.from || g.m.Flags != 0 {
							t.Fatalf("datagram %d from %s with flags %b, want %s", i, g.m.Addr, g.m.Flags, p.from)
						}
					}
					for i, m := range ms {
						if m.N != len(m.Buf) {
							t.Fatalf("message %d: N = %d of %d", i, m.N, len(m.Buf))
						}
					}
				}
				checkBalance(t, send, recv)
			})
		}
	})
}

// checkBalance compares what one side says it sent with what the other received.
func checkBalance(t *testing.T, send, recv *Conn) {
	t.Helper()
	s, r := send.Stats(), recv.Stats()
	if s.WriteDatagrams != r.ReadDatagrams || s.WriteBytes != r.ReadBytes || r.Truncated != 0 || r.Lost != 0 {
		t.Errorf("sent     %+v\nreceived %+v", s, r)
	}
}

// randomBatch is a few hundred kilobytes at most, so that it fits the receive
// buffer whole.
func randomBatch(rnd *rand.Rand, p path) (ms []Message) {
	sizes := []int{0, 1, 100, 100, 1200, 1200, 1200, 1452, 9000, p.max, rnd.IntN(p.max + 1)}
	seq := rnd.IntN(1000)
	for total := 0; total < 200_000 && len(ms) < 100; {
		m := Message{Addr: p.to}
		n := sizes[rnd.IntN(len(sizes))]
		if rnd.IntN(3) == 0 { // a run, perhaps longer than the kernel takes at once
			m.Segment = 1 + rnd.IntN(3000)
			n = rnd.IntN(80 * m.Segment)
		}
		repeat := 1 + rnd.IntN(8)
		for range repeat {
			m.Buf = payload(seq, n)
			seq++
			total += n
			ms = append(ms, m)
		}
	}
	return ms
}

// TestManyMessagesACall proves that the fast path ran: calls and runs are counted.
func TestManyMessagesACall(t *testing.T) {
	eachLevel(t, func(t *testing.T, l level) {
		p := newPath(t, "v4")
		send, recv := l.conn(t, p.send), l.conn(t, p.recv)
		ms := make([]Message, 128)
		for i := range ms {
			ms[i] = Message{Buf: payload(i, 500), Addr: p.to}
		}
		mustWrite(t, send, ms)
		collect(t, recv, len(ms))
		s, r := send.Stats(), recv.Stats()
		var wantCalls, wantRuns, wantMessages int64
		switch mode := send.Mode(); {
		case l.name == "refused":
			wantCalls, wantRuns, wantMessages = 3, 0, 128 // refused once, 64 alone, and then the route is known
		case mode.GSO:
			wantCalls, wantRuns, wantMessages = 1, 2, 2
		case mode.Batch:
			wantCalls, wantRuns, wantMessages = 1, 0, 128
		default:
			wantCalls, wantRuns, wantMessages = 128, 0, 128
		}
		if !recv.Mode().GRO {
			wantMessages = 128
		}
		if s.WriteCalls != wantCalls || s.Runs != wantRuns || r.ReadMessages != wantMessages {
			t.Errorf("%d calls, %d runs, %d messages received; want %d, %d, %d", s.WriteCalls, s.Runs, r.ReadMessages, wantCalls, wantRuns, wantMessages)
		}
		if s.WriteMessages != 128 || s.WriteDatagrams != 128 || r.ReadDatagrams != 128 {
			t.Errorf("sent %+v\nreceived %+v", s, r)
		}
	})
}
