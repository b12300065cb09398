package ledger

import "testing"

// What belongs to a record goes back to the arena with it, wherever it was.
func TestSetBlobOfNothing(t *testing.T) {
	for _, n := range []int{0, 1, RecordSize - inlineStream, RecordSize - inlineStream + 1, MaxBlob} {
		l, err := Create(Config{Slots: 1, Arena: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		r := l.Begin(0)
		r.SetKind(KindStream)
		if !l.SetBlob(r, make([]byte, n)) {
			t.Fatal("no room")
		}
		l.Publish(0, 1)
		l.Free(0)
		if !l.SetBlob(r, nil) || l.Arena().Used() != 0 {
			t.Errorf("after a blob of %d bytes the arena has lent %d", n, l.Arena().Used())
		}
		if b, ok := l.Blob(r); !ok || len(b) != 0 {
			t.Errorf("%d bytes, %v", len(b), ok)
		}
		l.Close()
	}
}
