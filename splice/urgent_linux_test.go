package splice

import (
	"testing"

	"github.com/penstock/penstock/internal/testkernel"
)

// TestUrgent: what follows an urgent byte arrives, whether or not the stream
// ends behind it. The byte itself is left out, as io.Copy does.
func TestUrgent(t *testing.T) {
	const before, after, rest = 4 << 20, 300 << 10, 100_000
	eachLine(t, lines[:4], func(t *testing.T, r *rig) {
		r.start(t)
		r.bulk(t, before)
		if err := testkernel.Urgent(r.from, '!'); err != nil {
			t.Fatal(err)
		}
		r.bulk(t, after) // without the end it must not stall
		if err := testkernel.Urgent(r.from, '!'); err != nil {
			t.Fatal(err)
		}
		r.write(t, rest)
		endWriting(r.from)
		r.read(t, rest)
		if n, err := r.wait(t); n != before+after+rest || err != nil {
			t.Errorf("Copy = %d, %v", n, err)
		}
		r.path(t, r.live.Up())
	})
}
