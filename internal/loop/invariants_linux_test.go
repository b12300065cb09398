//go:build penstock_invariants

package loop

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// TestInvariants: the checks at the end of a turn find what they are for.
func TestInvariants(t *testing.T) {
	l, err := New(sys.Linux{}, 0, time.Now(), false, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Free()
	h := &struct{ Handler }{}
	var s Slab[int]
	s.Init(&l.Slots, h)
	_, r := s.Take()
	check := func() (text string) {
		defer func() {
			if v := recover(); v != nil {
				text = fmt.Sprint(v)
			}
		}()
		l.checkInvariants()
		return ""
	}
	for _, c := range []struct {
		name     string
		number   int
		do, undo func()
	}{
		{"a timer of a free slot", 10, func() { l.Arm(r.Slot+1, time.Second) }, func() { l.Disarm(r.Slot + 1) }},
		{"a slot too many", 15, func() { l.Slots.Live++ }, func() { l.Slots.Live-- }},
		{"events of the future", 9, func() { l.Seen = l.Now + 1 }, func() { l.Seen = l.Now }},
		{"a request too far", 8, func() { l.nextRequest++ }, func() { l.nextRequest-- }},
	} {
		l.Arm(r.Slot, time.Second)
		if text := check(); text != "" {
			t.Error(text)
		}
		c.do()
		if text := check(); !strings.HasPrefix(text, fmt.Sprintf("invariant %d is violated: loop 0, ", c.number)) {
			t.Errorf("%s: %q, want a violation of invariant %d", c.name, text, c.number)
		}
		c.undo()
	}
}
