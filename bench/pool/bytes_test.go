package pool

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/valyala/bytebufferpool"
	"google.golang.org/grpc/mem"

	"github.com/penstock/penstock/pool"
)

// One 4 KiB buffer is taken and put back. A sync.Pool of []byte allocates a header for each Put;
// with *[]byte, the user has to keep the header.
func BenchmarkPoolBytes(b *testing.B) {
	const size = 4096
	b.Run("impl=sync-pointer", func(b *testing.B) {
		p := sync.Pool{New: func() any { x := make([]byte, size); return &x }}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				x := p.Get().(*[]byte)
				(*x)[0]++
				p.Put(x)
			}
		})
	})
	b.Run("impl=sync-value", func(b *testing.B) {
		p := sync.Pool{New: func() any { return make([]byte, size) }}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				x := p.Get().([]byte)
				x[0]++
				//lint:ignore SA6002 this row shows that Put allocates a slice header
				p.Put(x)
			}
		})
	})
	b.Run("impl=penstock", func(b *testing.B) {
		p := pool.Pool[[]byte]{New: func() []byte { return make([]byte, size) }}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				x := p.Get()
				x[0]++
				p.Put(x)
			}
		})
	})
}

// Buffers of mixed lengths, 64 bytes to 64 KiB. waste is the excess of the capacity over the
// requested length, in percent.
func BenchmarkBuffers(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 2))
	lengths := make([]int, 1024)
	for i := range lengths {
		lengths[i] = 64<<rnd.IntN(10) + rnd.IntN(64)
	}
	run := func(name string, use func(n int) int) {
		b.Run("impl="+name, func(b *testing.B) {
			asked, given := 0, 0
			for _, n := range lengths {
				asked, given = asked+n, given+use(n)
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					use(lengths[i%len(lengths)])
				}
			})
			b.ReportMetric(100*float64(given-asked)/float64(asked), "waste-%")
		})
	}
	var buffers pool.Buffers
	run("penstock", func(n int) int {
		x := buffers.Get(n)
		x[0]++
		buffers.Put(x)
		return cap(x)
	})
	grpc := mem.DefaultBufferPool()
	run("grpc-mem", func(n int) int {
		x := grpc.Get(n)
		(*x)[0]++
		grpc.Put(x)
		return cap(*x)
	})
	// bytebufferpool takes no length: the buffer grows as it is written to.
	var valyala bytebufferpool.Pool
	run("bytebufferpool", func(n int) int {
		x := valyala.Get()
		if cap(x.B) < n {
			x.B = make([]byte, n)
		}
		x.B = x.B[:n]
		x.B[0]++
		given := cap(x.B)
		valyala.Put(x)
		return given
	})
}
