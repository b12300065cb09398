//go:build linux

package main

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if is, err := parts.Play(os.Args[1:]); is {
		exit(err)
	}
	os.Exit(m.Run())
}

// TestEveryCaseCarries runs each implementation once on each pair of networks.
func TestEveryCaseCarries(t *testing.T) {
	for _, net := range nets {
		for _, m := range impls {
			if _, err := (bench{net, 4096}).run(m, 300); err != nil {
				t.Error(err)
			}
		}
	}
}

func BenchmarkSplice(b *testing.B) {
	for _, net := range nets {
		for _, size := range sizes() {
			for _, m := range impls {
				b.Run(fmt.Sprintf("net=%s/size=%d/impl=%s", net, size, m.name), func(b *testing.B) {
					// This is one transfer of b.N chunks, so b.Loop does not fit; starting the ends
					// is not counted.
					s, err := bench{net, size}.run(m, b.N)
					if err != nil {
						b.Fatal(err)
					}
					b.SetBytes(int64(size))
					b.ReportMetric(perOp(s.wall, b.N), "ns/op")
					b.ReportMetric(float64(b.N)*float64(size)/1e6/s.wall.Seconds(), "MB/s")
					b.ReportMetric(perOp(s.cpu, b.N), "cpu-ns/op")
				})
			}
		}
	}
}
