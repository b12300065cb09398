package keeping

import (
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// What a worker leaves when it hands over stays: one that lingers still runs what saves changes when the next worker has begun, whose document it is then.
func TestLastStateStays(t *testing.T) {
	file, err := host.MemoryFile(labelState)
	if err != nil {
		t.Fatal(err)
	}
	s := &state{file: saved.NewDocument(file)}
	defer s.file.Close()
	set := upstream.NewSet(upstream.Options{})
	defer set.Close()
	save := func(last bool, reloads int64) {
		t.Helper()
		if err := s.SaveState(set, last, func(time.Time) (Rest, uint64) { return Rest{Reloads: Reloads{Number: reloads}}, 0 }); err != nil {
			t.Fatal(err)
		}
	}
	for i, last := range []bool{false, false, true, false, true} {
		save(last, int64(i))
	}
	text, err := s.file.Read()
	if err != nil {
		t.Fatal(err)
	}
	if left, err := parseState(text); err != nil || left.Reloads.Number != 2 {
		t.Errorf("the next worker finds save %d, and not the last one before its time: %v", left.Reloads.Number, err)
	}
}
