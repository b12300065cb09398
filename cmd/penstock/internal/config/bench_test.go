package config

import (
	"fmt"
	"strings"
	"testing"
)

// maxCount is a file with n routes and n members.
func manyOf(n int) []byte {
	var b strings.Builder
	b.WriteString("listeners:\n  web:\n    listen: tcp://:443\n    routes:\n")
	for i := range n {
		fmt.Fprintf(&b, "      - {name: r%d, sni: [n%d.example.org, \"*.n%d.example.org\"], from: 10.0.0.0/8, to: g}\n", i, i, i)
	}
	b.WriteString("groups:\n  g:\n    members:\n")
	for i := range n {
		fmt.Fprintf(&b, "      - {to: tcp://10.1.%d.%d:443, name: m%d, weight: 2}\n", i/250, i%250+1, i)
	}
	return []byte(b.String())
}

func BenchmarkParse(b *testing.B) {
	text := manyOf(1000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	b.Run("routes=1000/members=1000", func(b *testing.B) {
		for b.Loop() {
			if _, err := Parse("bench.yaml", text); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCompare(b *testing.B) {
	old, err := Parse("old.yaml", manyOf(1000))
	if err != nil {
		b.Fatal(err)
	}
	new, err := Parse("new.yaml", manyOf(900))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("routes=1000/members=1000", func(b *testing.B) {
		for b.Loop() {
			if d := Compare(old, new); d.Empty() {
				b.Fatal("nothing changed")
			}
		}
	})
}
