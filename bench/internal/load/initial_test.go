//go:build linux

package load

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/penstock/penstock/quichello"
)

// A relay that wants the name finds it in the packet, or has to wait for the rest.
func TestInitials(t *testing.T) {
	for _, half := range []bool{false, true} {
		all, err := Initials(rand.New(rand.NewPCG(1, 2)), 3, half)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			var a quichello.Assembler
			hello, err := a.Add(b)
			if len(b) != InitialSize || errors.Is(err, quichello.ErrIncomplete) != half || !half && (err != nil || hello.ServerName != "a.test") {
				t.Errorf("half %t: %d bytes, %+v, %v", half, len(b), hello, err)
			}
		}
	}
}
