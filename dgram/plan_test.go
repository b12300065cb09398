package dgram

import (
	"bytes"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/segment"
)

// wire is one datagram with what the header says of it.
type wire struct {
	data []byte
	addr netip.AddrPort
	ecn  ECN
	at   time.Time
}

// FuzzWritePlan plans random batches, as WriteBatch does, and expects that what
// leaves is what was given, in order, in runs that the kernel takes.
func FuzzWritePlan(f *testing.F) {
	f.Add(uint8(64), uint16(65507), true, []byte("\x0a\x00\x00\x0a\x00\x00\x0a\x00\x01\x05\x00\x00"))
	f.Add(uint8(1), uint16(9), false, []byte("\xff\x02\x00\xff\x02\x08"))
	f.Fuzz(func(t *testing.T, count uint8, size uint16, pace bool, script []byte) {
		r := rules{limit: segment.Limit{Count: max(1, int(count)), Bytes: int(size)}, pace: pace}
		var ms []Message
		var want []wire
		for ; len(script) >= 3 && len(ms) < 50; script = script[3:] {
			m := Message{
				Buf:     bytes.Repeat([]byte{byte(len(ms))}, 3*int(script[0])),
				Segment: 2 * int(script[1]),
				Addr:    netip.AddrPortFrom(netip.IPv6Loopback(), uint16(script[2]&1)),
				ECN:     ECN(script[2] >> 1 & 1),
				Time:    time.Unix(int64(script[2]>>2&1), 0),
			}
			if script[2]&0x80 != 0 {
				m.Control = []byte{1}
			}
			ms = append(ms, m)
			for _, d := range datagrams([]Message{m}) {
				want = append(want, wire{d, m.Addr, m.ECN, m.Time})
			}
		}
		var came []wire
		for at := (position{}); at.msg < len(ms); {
			var e entry
			r.plan(&e, ms, at)
			if e.begin != at || !at.before(e.end) {
				t.Fatalf("entry %+v does not go on from %+v", e, at)
			}
			var sizes []int
			first := ms[at.msg]
			for i := at.msg; i < e.end.msg || i == e.end.msg && e.end.off > 0; i++ {
				b := ms[i].Buf
				if i == e.end.msg {
					b = b[:e.end.off]
				}
				if i == at.msg {
					b = b[at.off:]
				} else if len(first.Control) > 0 || len(ms[i].Control) > 0 {
					t.Fatal("messages with control bytes share a header")
				}
				for _, d := range datagrams([]Message{{Buf: b, Segment: ms[i].Segment}}) {
					sizes = append(sizes, len(d))
					came = append(came, wire{d, first.Addr, first.ECN, ms[i].Time})
					if pace {
						came[len(came)-1].at = first.Time
					}
				}
			}
			if e.run.Count != len(sizes) || e.run.Size != sizes[0] {
				t.Fatalf("run %+v, datagrams %v", e.run, sizes)
			}
			if !lawful(sizes, r.limit) {
				t.Fatalf("limit %+v: run of %v", r.limit, sizes)
			}
			at = e.end
		}
		if len(came) != len(want) {
			t.Fatalf("%d datagrams, want %d", len(came), len(want))
		}
		for i := range came {
			if !bytes.Equal(came[i].data, want[i].data) || came[i].addr != want[i].addr || came[i].ecn != want[i].ecn || !came[i].at.Equal(want[i].at) {
				t.Fatalf("datagram %d is %v, want %v", i, came[i], want[i])
			}
		}
	})
}

// lawful is the kernel's rule for a run.
func lawful(sizes []int, l segment.Limit) bool {
	total := 0
	for i, n := range sizes {
		total += n
		if n > sizes[0] || n < sizes[0] && i < len(sizes)-1 || n == 0 && len(sizes) > 1 {
			return false
		}
	}
	return len(sizes) == 1 || len(sizes) <= l.Count && total <= l.Bytes
}

// TestAlike: messages that differ in anything that a header says do not share one.
func TestAlike(t *testing.T) {
	other := Message{
		Addr:      netip.MustParseAddrPort("192.0.2.1:1"),
		Local:     netip.MustParseAddr("192.0.2.2"),
		Interface: 3,
		ECN:       CE,
		Time:      time.Unix(4, 0),
		Control:   []byte{5},
	}
	// The header says nothing of these, or the run's arithmetic looks at them.
	free := map[string]bool{"Buf": true, "N": true, "Path": true, "Segment": true, "Flags": true}
	fields := reflect.TypeFor[Message]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		if free[name] {
			continue
		}
		for _, pace := range []bool{false, true} {
			ms := make([]Message, 3)
			for j := range ms {
				ms[j].Buf = make([]byte, 10)
			}
			value := reflect.ValueOf(other).Field(i)
			if value.IsZero() {
				t.Fatalf("%s is new: give it a value here", name)
			}
			reflect.ValueOf(&ms[1]).Elem().Field(i).Set(value)
			r := rules{limit: segment.Limit{Count: 64, Bytes: 65507}, pace: pace}
			var e entry
			r.plan(&e, ms, position{})
			want := 1
			if name == "Time" && !pace {
				want = 3
			}
			if e.end.msg != want {
				t.Errorf("pace %t: a run of %d messages, the second with another %s; want %d", pace, e.end.msg, name, want)
			}
		}
	}
}
