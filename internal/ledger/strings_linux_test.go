package ledger

import (
	"fmt"
	"strings"
	"testing"
)

// Strings of which there come ever more leave room for others, and those that are known stay so.
func TestInternMore(t *testing.T) {
	l, err := Create(Config{Slots: 1, Arena: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	name := func(i int) string { return fmt.Sprintf("%d%s", i, strings.Repeat("x", 200)) }
	n := 0
	for ; n < StringsSize; n++ {
		if _, ok := l.InternMore(name(n)); !ok {
			break
		}
	}
	if used := l.strings.n; used < StringsSize/2 || used > StringsSize/4*3 {
		t.Errorf("%d bytes are used after %d strings", used, n)
	}
	ref, ok := l.Intern(name(n))
	again, known := l.InternMore(name(n))
	if first, _ := l.InternMore(name(0)); !ok || !known || ref != again || first != 1 {
		t.Errorf("%d %v, %d %v, %d", ref, ok, again, known, first)
	}
	if ref, ok := l.InternMore(""); ref != 0 || !ok {
		t.Errorf("nothing: %d, %v", ref, ok)
	}
}
