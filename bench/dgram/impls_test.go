//go:build linux

package main

import (
	"fmt"
	"testing"
)

// BenchmarkUDP has the shape of x/net's benchmark of that name: a socket writes n datagrams to
// itself and reads them. Use the program for figures, because it interleaves the implementations;
// the check runs this benchmark once.
func BenchmarkUDP(b *testing.B) {
	for _, size := range []int{64, 1200} {
		for n := 1; n <= 512; n *= 8 {
			for _, w := range impls {
				b.Run(fmt.Sprintf("impl=%s/n=%d/size=%d", w.name, n, size), func(b *testing.B) {
					c, err := socket()
					if err != nil {
						b.Fatal(err)
					}
					defer c.Close()
					x, err := w.open(c, n, size)
					if err != nil {
						b.Fatal(err)
					}
					defer x.end()
					b.ReportAllocs()
					for b.Loop() {
						if err := x.once(); err != nil {
							b.Fatal(err)
						}
					}
					per := float64(b.N * n)
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/per, "ns/datagram")
					b.ReportMetric(float64(x.calls())/per, "calls/datagram")
				})
			}
		}
	}
}
