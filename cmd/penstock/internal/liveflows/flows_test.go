package liveflows

import (
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// TestLook: members to which something happens one after another wake whoever looks for their flows once, until it has looked, and
// then again.
func TestLook(t *testing.T) {
	f := &Flows{wake: make(chan struct{}, 4)} // more room than there is, so that a second wake-up shows and does not block
	for look, removed := range []int{3, 1, 2} {
		for range removed {
			f.Look(new(upstream.Member)) // which has no flows
		}
		if n := len(f.wake); n != 1 {
			t.Fatalf("look %d: %d wake-ups", look, n)
		}
		<-f.wake
		if took := f.lookForMembers(); took != 0 || len(f.members) != 0 {
			t.Errorf("look %d: members without flows took %v, %d are left", look, took, len(f.members))
		}
	}
}
