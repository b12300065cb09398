//go:build linux

package pattern

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestPattern(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	whole := make([]byte, 5000)
	Fill(whole, 77, Down, 0)
	scratch := make([]byte, 5000)
	for range 2000 {
		at, n := r.IntN(4000), r.IntN(1000)
		p := make([]byte, n)
		Fill(p, 77, Down, int64(at))
		if !bytes.Equal(p, whole[at:at+n]) {
			t.Fatalf("Fill of %d bytes at %d differs", n, at)
		}
		if flow, d, offset, ok := Owner(p); n >= 23 && (!ok || flow != 77 || d != Down || offset != int64(at)) {
			t.Fatalf("%d bytes at %d are said to be of flow %d, %v, offset %d (%v)", n, at, flow, d, offset, ok)
		}
		if good, wrong := Compare(p, scratch, 77, Down, int64(at)); good != n || wrong != nil {
			t.Fatalf("Compare says %d of %d, %+v", good, n, wrong)
		}
	}
	for x := range uint64(1000) {
		x *= 0x123456789abcdef
		if unmix(mix(x)) != x {
			t.Fatalf("unmix(mix(%#x)) = %#x", x, unmix(mix(x)))
		}
	}
	lost := append(bytes.Clone(whole[:100]), whole[107:]...)
	if good, wrong := Compare(lost, scratch, 77, Down, 0); good != 100 || wrong.Lost != 7 {
		t.Errorf("7 missing bytes: %d, %+v", good, wrong)
	}
	twice := append(bytes.Clone(whole[:100]), whole[90:]...)
	if good, wrong := Compare(twice, make([]byte, 6000), 77, Down, 0); good != 100 || wrong.Duplicate != 10 {
		t.Errorf("10 bytes twice: %d, %+v", good, wrong)
	}
	other := bytes.Clone(whole)
	Fill(other[64:], 78, Up, 1000)
	if good, wrong := Compare(other, scratch, 77, Down, 0); good != 64 || wrong.Lost+wrong.Duplicate != 0 || !strings.Contains(wrong.Text, "flow 78, up, offset 1000") {
		t.Errorf("another flow's bytes: %d, %+v", good, wrong)
	}
}
