package dgram

import (
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// BenchmarkOwnWork is what this package itself does for a batch of 64, with the
// system call left out. The whole way is measured in bench/dgram.
func BenchmarkOwnWork(b *testing.B) {
	const n = 64
	perDatagram := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/datagram")
	}
	for _, l := range []level{bestLevel, neither} {
		b.Run("op=write/level="+l.name, func(b *testing.B) {
			p := newPath(b, "v4")
			l.open = seam(func(_ *writer, _ *sys.Vector, _ uintptr, from, to int) (int, sys.Errno) { return to - from, 0 })
			c := l.conn(b, p.send)
			ms := make([]Message, n)
			for i := range ms {
				ms[i] = Message{Buf: make([]byte, 1200), Addr: p.to}
			}
			for b.Loop() {
				mustWrite(b, c, ms)
			}
			perDatagram(b)
		})
	}
	b.Run("op=read/level=neither", func(b *testing.B) {
		p := newPath(b, "v4")
		send, recv := neither.conn(b, p.send), neither.conn(b, p.recv)
		out, in := make([]Message, n), make([]Message, n)
		for i := range out {
			out[i] = Message{Buf: make([]byte, 1200), Addr: p.to}
			in[i] = Message{Buf: make([]byte, 1200)}
		}
		mustWrite(b, send, out)
		if k, err := recv.ReadBatch(in); k != n || err != nil {
			b.Fatal(k, err)
		}
		r := &recv.driver.(*kernel).reader
		for b.Loop() {
			r.take(in)
		}
		perDatagram(b)
	})
}
