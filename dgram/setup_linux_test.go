package dgram

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// TestSwitchedOff: a socket that was given GRO or a segment size before does
// without them if the Config says so.
func TestSwitchedOff(t *testing.T) {
	const solUDP, udpSegment = 17, 103 // udp(7)
	t.Run("GRO", func(t *testing.T) {
		p := newPath(t, "v4")
		bestLevel.conn(t, p.recv) // has switched it on
		send, recv := bestLevel.conn(t, p.send), noGRO.conn(t, p.recv)
		var ms []Message
		for i := range 5 {
			ms = append(ms, Message{Buf: payload(i, 1200), Addr: p.to})
		}
		mustWrite(t, send, ms)
		in := MakeMessages(8)
		for i := range in {
			in[i].Buf = in[i].Buf[:1500]
		}
		for got := 0; got < len(ms); {
			n, err := recv.ReadBatch(in)
			if err != nil {
				t.Fatalf("after %d of %d datagrams: %v", got, len(ms), err)
			}
			for _, m := range in[:n] {
				if m.N != 1200 || m.Segment != 0 || m.Flags != 0 {
					t.Errorf("%d bytes came, segment %d, flags %b; want datagrams of 1,200", m.N, m.Segment, m.Flags)
				}
			}
			got += n
		}
	})
	t.Run("GSO", func(t *testing.T) {
		p := newPath(t, "v4")
		send, recv := noGSO, neither.conn(t, p.recv)
		raw, err := p.send.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			if e := sys.SetInt(int(fd), solUDP, udpSegment, 10); e != 0 {
				t.Error(e)
			}
		})
		ms := []Message{{Buf: payload(0, 100), Addr: p.to}}
		mustWrite(t, send.conn(t, p.send), ms)
		if diff := sameDatagrams(collect(t, recv, 1), datagrams(ms)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTryReadBatch(t *testing.T) {
	for _, l := range batchLevels {
		for _, batch := range []int{1, 4} {
			p := newPath(t, "v4")
			send, recv := l.conn(t, p.send), l.conn(t, p.recv)
			ms := MakeMessages(batch)
			p.recv.SetReadDeadline(time.Time{}) // a call that waited would wait for ever
			if n, err := recv.TryReadBatch(ms); n != 0 || err != nil {
				t.Errorf("of an empty socket: %d, %v", n, err)
			}
			if n, err := recv.TryReadBatch(nil); n != 0 || err != nil {
				t.Errorf("into nothing: %d, %v", n, err)
			}
			mustWrite(t, send, []Message{{Buf: []byte("x"), Addr: p.to}})
			if n, err := recv.TryReadBatch(ms); n != 1 || err != nil || ms[0].N != 1 {
				t.Errorf("with a datagram there: %d, %v", n, err)
			}
			k := recv.driver.(*kernel)
			k.raw = &failingOnce{k.raw, 1}
			if n, err := recv.TryReadBatch(ms); n != 0 || err != nil {
				t.Errorf("without the netpoller: %d, %v", n, err)
			}
			p.recv.SetReadDeadline(time.Now().Add(-time.Second))
			if n, err := recv.TryReadBatch(ms); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("past the deadline: %d, %v", n, err)
			}
		}
	}
	p := newPath(t, "v4")
	if n, err := portableLevel.conn(t, p.recv).TryReadBatch(MakeMessages(1)); n != 0 || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("one by one: %d, %v", n, err)
	}
}
