package ledger

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// small returns a ledger that is closed at the end of the test.
func small(t testing.TB) *Ledger {
	t.Helper()
	l, err := Create(Config{Loop: 3, Slots: 100, Arena: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// reopen returns what another process would see.
func reopen(t testing.TB, l *Ledger) *Ledger {
	t.Helper()
	fd, e := sys.Dup(l.FD())
	if e != 0 {
		t.Fatal(e)
	}
	again, err := Open(sys.Linux{}, fd)
	if err != nil {
		sys.Linux{}.Close(fd)
		t.Fatal(err)
	}
	t.Cleanup(again.Close)
	return again
}

func TestReopen(t *testing.T) {
	l := small(t)
	ref, ok := l.Intern("tcp://127.0.0.1:80")
	if !ok {
		t.Fatal("no room for a string")
	}
	r := l.Begin(7)
	r.SetKind(KindStream)
	r.SetListener(ref)
	held := l.Arena().Get(1000)
	copy(held, "held")
	block, ok := l.Arena().Ref(held)
	if !ok {
		t.Fatal("a block without a reference")
	}
	r.Half(1).SetBlock(block, len(held))
	if !l.SetBlob(r, []byte("inline")) {
		t.Fatal("no room for a blob")
	}
	l.Publish(7, 5)
	l.Turn().Begin(7, 5)
	l.Turn().Set(1, PhaseRead, 12)
	copy(l.Scratch(), "scratch")
	stats, err := StatsOf[struct{ A, B int64 }](l)
	if err != nil {
		t.Fatal(err)
	}
	stats.B = 42

	m := reopen(t, l)
	n := 0
	for slot, r := range m.All() {
		n++
		if slot != 7 || r.Generation() != 5 || r.Kind() != KindStream || !m.Reserve(r) || m.Reserve(r) {
			t.Errorf("slot %d: generation %d, kind %d", slot, r.Generation(), r.Kind())
		}
		if s, ok := m.String(r.Listener()); s != "tcp://127.0.0.1:80" || !ok {
			t.Errorf("listener %q", s)
		}
		ref, n := r.Half(1).Block()
		if b, ok := m.Arena().Bytes(ref, n); !ok || string(b[:4]) != "held" || len(b) != 1000 {
			t.Errorf("block %q", b)
		}
		if b, ok := m.Blob(r); string(b) != "inline" || !ok {
			t.Errorf("blob %q", b)
		}
	}
	if n != 1 {
		t.Errorf("%d records", n)
	}
	if got, want := m.Turn().Note(), (Note{Slot: 7, Generation: 5, Half: 1, Phase: PhaseRead, N: 12}); got != want {
		t.Errorf("note %+v", got)
	}
	if got := string(m.Scratch()[:7]); got != "scratch" {
		t.Errorf("scratch %q", got)
	}
	again, err := StatsOf[struct{ B, C int64 }](m)
	if err != nil || again.B != 42 || again.C != 0 {
		t.Errorf("stats %+v, %v", again, err)
	}
}

// Check says what Open would say, while the process that writes the ledger still uses it.
func TestCheck(t *testing.T) {
	l := small(t)
	if err := Check(l.FD()); err != nil {
		t.Errorf("a ledger of this version: %v", err)
	}
	binary.LittleEndian.PutUint64(l.mem[16:], 1<<50) // the word after the version
	if err := Check(l.FD()); !errors.Is(err, ErrVersion) {
		t.Errorf("a ledger with an unknown feature: %v", err)
	}
}
