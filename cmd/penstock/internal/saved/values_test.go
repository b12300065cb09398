package saved

import (
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/counts"
)

// What is reported never decreases, whatever this process counts.
func TestGoOnNeverDecreases(t *testing.T) {
	v := NewValues(counts.Heap(ValuesLayout))
	for _, x := range []struct{ n, want int64 }{{0, 0}, {25, 25}, {0, 25}, {7, 25}, {26, 26}} {
		if got := v.GoOn("name", x.n); got != x.want {
			t.Errorf("at %d, %d is reported, want %d", x.n, got, x.want)
		}
	}
}
